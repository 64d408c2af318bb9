package native

import (
	"slices"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// places where a native state keeps what belongs to the whole optimizer: beside
// state and param_groups, and in every group's metadata.
var places = [...]struct {
	top, metadata string
	absent        pickle.Value // what a loader makes of metadata without the key
}{
	{"gefen_global_step", "global_step", int64(0)},
	{"gefen_deterministic", "deterministic", nil},
	{"gefen_codebook", "codebook", nil},
}

// common holds, for each of places, the value of one place.
type common [len(places)]pickle.Value

// sources is what the file says of the whole optimizer, everywhere.
type sources struct {
	r *reader
	// top and groups are nil where the file has nothing of the kind.
	top    *common
	groups []*common
}

// commonRules are what Gefen's loader demands of a native state as a whole, by
// the numbers of docs/rules.md. N5, that momentum needs a codebook, is S16.
var commonRules = []struct {
	number string
	check  func(*sources)
}{
	{"N1", (*sources).everyGroup},
	{"N2", (*sources).version},
	{"N3", (*sources).equalGroups},
	{"N4", (*sources).equalTop},
	{"N6", (*sources).deterministic},
	{"N7", (*sources).globalStep},
}

// common reads step, policy and codebook, from the first place that has them.
func (r *reader) common() *tensor.Tensor {
	s := &sources{r: r}
	for i, place := range places {
		if v, ok := r.s.Top.Get(place.top); ok {
			if s.top == nil {
				s.top = &common{}
			}
			s.top[i] = r.resolve(v, place.top)
		}
	}
	for g, group := range r.s.Groups {
		var c *common
		if group.Metadata != nil {
			c = &common{}
			for i, place := range places {
				v, ok := group.Metadata.Get(place.metadata)
				if c[i] = r.resolve(v, groupItem(g)+"."+layout.KeyMetadata+"."+place.metadata); !ok {
					c[i] = place.absent
				}
			}
		}
		s.groups = append(s.groups, c)
	}
	for _, rule := range commonRules {
		rule.check(s)
	}
	if n, ok := s.value(0).(int64); ok && n >= 0 {
		r.c.GlobalStep = n
	}
	if b, ok := s.value(1).(bool); ok {
		r.c.Deterministic = &b
	}
	book, ok := s.value(2).(*tensor.Tensor)
	if v := s.value(2); v != nil && !ok {
		r.c.Fault(fault.Corrupt, places[2].top, "it is %s, expected a tensor or None", tree.Describe(v))
	}
	return book
}

// value is what counts: the top level's, or the first group's where that has
// none.
func (s *sources) value(i int) pickle.Value {
	if s.top != nil && s.top[i] != nil {
		return s.top[i]
	}
	if first := s.first(); first != nil {
		return first[i]
	}
	return nil
}

// first is the first group's metadata.
func (s *sources) first() *common {
	if g := slices.IndexFunc(s.groups, func(c *common) bool { return c != nil }); g >= 0 {
		return s.groups[g]
	}
	return nil
}

func (s *sources) everyGroup() {
	missing := 0
	for _, c := range s.groups {
		if c == nil {
			missing++
		}
	}
	if missing > 0 && missing < len(s.groups) {
		s.r.c.Fault(fault.Corrupt, layout.KeyGroups, "%d of %d groups have no %s", missing, len(s.groups), layout.KeyMetadata)
	}
}

func (s *sources) version() {
	for g, group := range s.r.s.Groups {
		if group.Metadata != nil {
			layout.CheckVersion(s.r.c, group.Metadata, groupItem(g))
			return
		}
	}
}

func (s *sources) equalGroups() {
	first := s.first()
	for g, c := range s.groups {
		if c == nil || c == first {
			continue
		}
		for i, place := range places {
			if !same(c[i], first[i]) {
				s.r.c.Fault(fault.Corrupt, groupItem(g)+"."+layout.KeyMetadata+"."+place.metadata, "the groups disagree about it")
			}
		}
	}
}

func (s *sources) equalTop() {
	first := s.first()
	if s.top == nil || first == nil {
		return
	}
	for i, place := range places {
		if s.top[i] != nil && !same(s.top[i], first[i]) && !(i == 1 && first[i] == nil) {
			s.r.c.Fault(fault.Corrupt, place.top, "it is %s, and the groups' metadata has %s", tree.Describe(s.top[i]), tree.Describe(first[i]))
		}
	}
}

func (s *sources) deterministic() {
	check := func(v pickle.Value, item string) {
		if _, ok := v.(bool); v != nil && !ok {
			s.r.c.Fault(fault.Corrupt, item, "it is %s, expected True or False", tree.Describe(v))
		}
	}
	if s.top != nil {
		check(s.top[1], places[1].top)
	}
	if first := s.first(); first != nil {
		check(first[1], layout.KeyMetadata+"."+places[1].metadata)
	}
}

func (s *sources) globalStep() {
	if v := s.value(0); v != nil {
		if n, ok := v.(int64); !ok || n < 0 {
			s.r.c.Fault(fault.Corrupt, places[0].top, "it is %s, expected an integer of at least 0", tree.Describe(v))
		}
	}
}

// same compares two values of the same place; codebooks by their bytes.
func same(a, b pickle.Value) bool {
	x, ok := a.(*tensor.Tensor)
	y, ok2 := b.(*tensor.Tensor)
	if !ok || !ok2 || x == y {
		return pickle.Equal(a, b)
	}
	if x.DType != y.DType || !slices.Equal(x.Shape, y.Shape) || x.Len() != checkpoint.Codewords {
		return false
	}
	p, err := x.ReadAll()
	q, err2 := y.ReadAll()
	return err == nil && err2 == nil && string(p) == string(q)
}
