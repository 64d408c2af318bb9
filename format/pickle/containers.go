package pickle

// slabs hand out containers from arrays of them: a large metadata file makes a
// dozen small ones for each item, and allocating each takes half of the time.
type slabs struct {
	values  []Value
	pairs   []Pair
	tuples  []Tuple
	dicts   []Dict
	objects []Object
}

const (
	slab     = 64       // containers in an array
	slabRoom = 4 * slab // items and pairs in an array
)

// room cuts n elements off an array, and off a new one when it is used up. Many
// elements get an array of their own.
func room[T any](array *[]T, n int) []T {
	if n > slabRoom/4 {
		return make([]T, n)
	}
	if n > len(*array) {
		*array = make([]T, slabRoom)
	}
	cut := (*array)[:n:n]
	*array = (*array)[n:]
	return cut
}

// one cuts one container off an array.
func one[T any](array *[]T) *T {
	if len(*array) == 0 {
		*array = make([]T, slab)
	}
	cut := &(*array)[0]
	*array = (*array)[1:]
	return cut
}

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
	t := one(&m.tuples)
	t.Items = room(&m.values, len(items))
	copy(t.Items, items)
	return t, m.place(&t.nesting, items...)
}

func (m *machine) list(items []Value) error {
	l := &List{Items: append([]Value(nil), items...)}
	return m.made(l, &l.nesting, items)
}

func (m *machine) frozenSet(items []Value) error {
	s := &Set{Items: append([]Value(nil), items...), Frozen: true}
	return m.made(s, &s.nesting, items)
}

func (m *machine) set(items []Value) error {
	s := &Set{Items: append([]Value(nil), items...)}
	return m.made(s, &s.nesting, items)
}

func (m *machine) dict(items []Value) error {
	d := one(&m.dicts)
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
	n := len(*pairs)
	if n == 0 {
		*pairs = room(&m.pairs, len(items)/2)[:0]
	}
	for i := 0; i < len(items); i += 2 {
		*pairs = append(*pairs, Pair{items[i], items[i+1]})
	}
	if err := m.checkKeys(to, *pairs, n); err != nil {
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
			for j := range i {
				if sameKey(pairs[i].Key, pairs[j].Key) {
					return m.twice(pairs[i].Key)
				}
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
