package pickle

import "slices"

// count counts a container, class or object against the limit.
func (m *machine) count() error {
	if m.nodes++; m.nodes > m.limits.Nodes {
		return exceeded("the number of containers", m.limits.Nodes, m.op)
	}
	return nil
}

// place puts children into a container: it bounds the nesting and notes what
// CPython never writes.
func (m *machine) place(parent *nesting, children ...Value) error {
	if parent.placed && len(children) > 0 {
		m.replaced = true
	}
	for _, child := range children {
		n := nestingOf(child)
		if n == nil {
			continue
		}
		n.placed = true
		parent.depth = max(parent.depth, n.depth+1)
	}
	if int(parent.depth) >= m.limits.Depth {
		return exceeded("nesting", m.limits.Depth, m.op)
	}
	return nil
}

// emptyTuple is shared, as in CPython.
var emptyTuple = &Tuple{}

func (m *machine) tuple(items []Value) error {
	t, err := m.newTuple(items)
	if err != nil {
		return err
	}
	return m.push(t)
}

func (m *machine) newTuple(items []Value) (*Tuple, error) {
	if len(items) == 0 {
		return emptyTuple, nil
	}
	if err := m.count(); err != nil {
		return nil, err
	}
	t := tupleFor(len(items))
	copy(t.Items, items)
	return t, m.place(&t.nesting, items...)
}

// tupleFor makes a tuple of n items, together with their room where they are few:
// most are pairs, and a large metadata file has millions.
func tupleFor(n int) *Tuple {
	switch n {
	case 1:
		t := &struct {
			Tuple
			room [1]Value
		}{}
		t.Items = t.room[:]
		return &t.Tuple
	case 2:
		t := &struct {
			Tuple
			room [2]Value
		}{}
		t.Items = t.room[:]
		return &t.Tuple
	}
	return &Tuple{Items: make([]Value, n)}
}

func (m *machine) list(items []Value) error {
	l := &List{Items: slices.Clone(items)}
	return m.made(l, &l.nesting, items)
}

func (m *machine) frozenSet(items []Value) error {
	s := &Set{Items: slices.Clone(items), Frozen: true}
	return m.made(s, &s.nesting, items)
}

func (m *machine) set(items []Value) error {
	s := &Set{Items: slices.Clone(items)}
	return m.made(s, &s.nesting, items)
}

func (m *machine) dict(items []Value) error {
	d := &Dict{}
	if err := m.setItems(d, items); err != nil {
		return err
	}
	return m.made(d, &d.nesting, nil)
}

// made pushes a new container that holds items.
func (m *machine) made(v Value, n *nesting, items []Value) error {
	if err := m.count(); err != nil {
		return err
	}
	if err := m.place(n, items...); err != nil {
		return err
	}
	return m.push(v)
}

func (m *machine) appendOne([]byte) error {
	v, err := m.pop(1)
	if err != nil {
		return err
	}
	to, err := m.top(0)
	if err != nil {
		return err
	}
	return m.appendItems(to, v)
}

func (m *machine) appendItems(to Value, items []Value) error {
	switch to := to.(type) {
	case *List:
		to.Items = append(to.Items, items...)
		return m.place(&to.nesting, items...)
	case *Object:
		if len(items) > 0 {
			to.extra().Items = append(to.extra().Items, items...)
		}
		return m.place(&to.nesting, items...)
	}
	return m.corrupt("cannot append to %s", Describe(to))
}

func (m *machine) addItems(to Value, items []Value) error {
	s, ok := to.(*Set)
	if !ok || s.Frozen {
		return m.corrupt("cannot add items to %s", Describe(to))
	}
	s.Items = append(s.Items, items...)
	return m.place(&s.nesting, items...)
}

func (m *machine) setOne([]byte) error {
	v, err := m.pop(2)
	if err != nil {
		return err
	}
	to, err := m.top(0)
	if err != nil {
		return err
	}
	return m.setItems(to, v)
}

func (m *machine) setItems(to Value, items []Value) error {
	if len(items)%2 != 0 {
		return m.corrupt("a key without a value")
	}
	var pairs *[]Pair
	switch to := to.(type) {
	case *Dict:
		pairs = &to.Pairs
	case *Object:
		if len(items) == 0 {
			return nil
		}
		pairs = &to.extra().Pairs
	default:
		return m.corrupt("cannot set an entry of %s", Describe(to))
	}
	known := len(*pairs)
	*pairs = slices.Grow(*pairs, len(items)/2)
	for i := 0; i < len(items); i += 2 {
		*pairs = append(*pairs, Pair{items[i], items[i+1]})
	}
	if err := m.checkKeys(to, *pairs, known); err != nil {
		return err
	}
	return m.place(nestingOf(to), items...)
}

// checkKeys looks for keys that stand twice, which CPython never writes, among
// pairs of which the first known are checked already. Keys other than strings and
// integers are not looked at.
func (m *machine) checkKeys(of Value, pairs []Pair, known int) error {
	if len(pairs) <= smallDict {
		for i := known; i < len(pairs); i++ {
			if search(pairs[:i], pairs[i].Key) >= 0 {
				return m.twice(pairs[i].Key)
			}
		}
		return nil
	}
	keys := m.keys[of]
	if keys == nil {
		keys, known = make(map[Value]struct{}), 0
		m.keys[of] = keys
	}
	for _, p := range pairs[known:] {
		if !hashable(p.Key) {
			continue
		}
		before := len(keys)
		if keys[p.Key] = struct{}{}; len(keys) == before {
			return m.twice(p.Key)
		}
	}
	return nil
}

func (m *machine) twice(key Value) error {
	return m.corrupt("a dict has the key %s twice", Describe(key))
}
