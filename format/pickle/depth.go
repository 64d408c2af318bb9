package pickle

// children calls each for the values that v holds.
func children(v Value, each func(Value)) {
	all := func(items []Value) {
		for _, item := range items {
			each(item)
		}
	}
	pairs := func(pairs []Pair) {
		for _, p := range pairs {
			each(p.Key)
			each(p.Value)
		}
	}
	switch v := v.(type) {
	case *Tuple:
		all(v.Items)
	case *List:
		all(v.Items)
	case *Set:
		all(v.Items)
	case *Dict:
		pairs(v.Pairs)
	case *Object:
		if v.Args != nil {
			each(v.Args)
		}
		each(v.State)
		if v.Extra != nil {
			all(v.Extra.Items)
			pairs(v.Extra.Pairs)
			if v.Extra.Kwargs != nil {
				each(v.Extra.Kwargs)
			}
		}
	case *Persistent:
		each(v.ID)
	}
}

// checkDepth bounds the nesting of v exactly, where what was counted on the way
// may be too small. All searches together take time linear in the pickle.
func (m *machine) checkDepth(v Value) error {
	if !m.replaced || nestingOf(v) == nil {
		return nil
	}
	s := depthSearch{depth: map[Value]int{}, limit: m.limits.Depth, budget: 1<<16 + 16*len(m.data) - m.searched}
	deep := s.deeper(v)
	m.searched += s.visited
	switch {
	case s.visited > s.budget:
		return exceeded("searches for the nesting of cyclic values", 1<<16+16*len(m.data), m.op)
	case deep:
		return exceeded("nesting", m.limits.Depth, m.op)
	}
	return nil
}

// depthSearch finds the longest path into a value, cycles cut where they close.
// It keeps its own stack, since the path may be longer than recursion can go.
type depthSearch struct {
	depth   map[Value]int // of containers below which all is known, or open
	path    []step
	limit   int
	visited int // containers and their entries
	budget  int
}

// step is a container on the path and what it holds that was not searched yet.
type step struct {
	container Value
	next      []Value
	deepest   int // of its contents
}

// open is the depth of what is on the path: an entry that leads there closes a
// cycle.
const open = -1

// deeper says whether v nests deeper than the limit. It gives up past the budget.
func (s *depthSearch) deeper(v Value) bool {
	s.enter(v)
	for len(s.path) > 0 && s.visited <= s.budget {
		if len(s.path) > s.limit {
			return true
		}
		top := &s.path[len(s.path)-1]
		if len(top.next) > 0 {
			child := top.next[len(top.next)-1]
			top.next = top.next[:len(top.next)-1]
			if depth, seen := s.depth[child]; !seen {
				s.enter(child)
			} else if depth != open {
				top.deepest = max(top.deepest, depth)
			}
			continue
		}
		depth := top.deepest + 1
		if depth > s.limit {
			return true
		}
		s.depth[top.container] = depth
		s.path = s.path[:len(s.path)-1]
		if len(s.path) > 0 {
			up := &s.path[len(s.path)-1]
			up.deepest = max(up.deepest, depth)
		}
	}
	return false
}

func (s *depthSearch) enter(v Value) {
	s.depth[v] = open
	entered := step{container: v}
	s.visited++
	children(v, func(child Value) {
		s.visited++
		if nestingOf(child) != nil {
			entered.next = append(entered.next, child)
		}
	})
	s.path = append(s.path, entered)
}
