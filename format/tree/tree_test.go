package tree

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// example is {"model": {"w": 1}, "optimizer": {"state": {0: "s"}, "groups": [{"lr": 0.5}, (1, 2)]}, "late": lazy}.
func example() *pickle.Dict {
	groups := pickle.NewList(pickle.NewDict("lr", 0.5), pickle.NewTuple(int64(1), int64(2)))
	return pickle.NewDict(
		"model", pickle.NewDict("w", int64(1)),
		"optimizer", pickle.NewDict("state", pickle.NewDict(int64(0), "s"), "groups", groups),
		"late", &Lazy{Load: func() (pickle.Value, error) { return pickle.NewDict("inner", "here"), nil }},
	)
}

func TestGet(t *testing.T) {
	for _, c := range []struct {
		path Path
		want pickle.Value
	}{
		{Keys("model", "w"), int64(1)},
		{Path{"optimizer", "state", int64(0)}, "s"},
		{Path{"optimizer", "groups", int64(0), "lr"}, 0.5},
		{Path{"optimizer", "groups", int64(1), int64(1)}, int64(2)},
		{Keys("late", "inner"), "here"},
		{Keys("optimizer", "state", "0"), "s"},
		{Keys("optimizer", "groups", "1", "1"), int64(2)},
	} {
		got, err := Get(example(), c.path...)
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v; want %v", c.path, got, err, c.want)
		}
	}
}

func TestGetSaysHowFarThePathLed(t *testing.T) {
	broken := errors.New("disk on fire")
	root := pickle.NewDict("late", &Lazy{Load: func() (pickle.Value, error) { return nil, broken }}, "a", example())
	for _, c := range []struct {
		path Path
		want string
	}{
		{Keys("a", "optimizer", "stat"), `a.optimizer: a dict of 2 has no "stat"`},
		{Path{"a", "optimizer", "groups", int64(2)}, `a.optimizer.groups: a list of 2 has no "2"`},
		{Path{"a", "model", "w", "x"}, `a.model.w: 1 has no "x"`},
		{Path{"a", "optimizer", "groups", int64(-1)}, `a list of 2 has no "-1"`},
		{Keys("late", "inner"), "late: disk on fire"},
	} {
		_, err := Get(root, c.path...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.path, err, c.want)
		}
	}
	if _, err := Get(root, "late"); !errors.Is(err, broken) {
		t.Errorf("the cause is lost: %v", err)
	}
	if _, err := Get(root, "nowhere"); fault.KindOf(err) != fault.Corrupt {
		t.Errorf("kind %v", fault.KindOf(err))
	}
}

func TestLazyLoadsOnce(t *testing.T) {
	n := 0
	l := &Lazy{Load: func() (pickle.Value, error) { n++; return int64(n), nil }}
	for range 3 {
		if v, err := Resolve(l); v != int64(1) || err != nil {
			t.Fatalf("%v, %v", v, err)
		}
	}
}

func TestWalkOrderAndPaths(t *testing.T) {
	var got []string
	Walk(example(), func(path Path, v pickle.Value) bool {
		got = append(got, path.String()+" "+Describe(v))
		return path.String() != "model"
	})
	want := []string{
		" a dict of 3", "model a dict of 1", "optimizer a dict of 2", "optimizer.state a dict of 1", `optimizer.state.0 "s"`,
		"optimizer.groups a list of 2", "optimizer.groups.0 a dict of 1", "optimizer.groups.0.lr 0.5",
		"optimizer.groups.1 a tuple of 2", "optimizer.groups.1.0 1", "optimizer.groups.1.1 2", "late a value yet to be read",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A list in itself ends, and a value that doubles 60 times is entered 60 times.
func TestWalkSharedAndCyclic(t *testing.T) {
	cycle := pickle.NewList(int64(1))
	cycle.Items = append(cycle.Items, cycle)
	visits := 0
	Walk(cycle, func(Path, pickle.Value) bool { visits++; return true })
	if visits != 3 {
		t.Errorf("%d visits of a list in itself, want 3", visits)
	}
	var v pickle.Value = int64(1)
	for range 60 {
		v = pickle.NewTuple(v, v)
	}
	visits = 0
	Walk(v, func(Path, pickle.Value) bool { visits++; return true })
	if visits != 121 {
		t.Errorf("%d visits of a shared value, want 121", visits)
	}
}

func TestReplace(t *testing.T) {
	root := example()
	out, err := Replace(root, "new", "optimizer", "groups", int64(0))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := Get(out, "optimizer", "groups", int64(0)); got != "new" {
		t.Errorf("got %v", got)
	}
	if got, _ := Get(root, "optimizer", "groups", int64(0), "lr"); got != 0.5 {
		t.Errorf("the source was changed: %v", got)
	}
	before, _ := Get(root, "model")
	after, _ := Get(out, "model")
	if before != after {
		t.Error("what is beside the path was copied")
	}
	if out, err = Replace(root, "added", "model", "b"); err != nil {
		t.Fatal(err)
	}
	if got, _ := Get(out, "model", "b"); got != "added" {
		t.Errorf("got %v", got)
	}
	if out, err = Replace(root, "s", Keys("optimizer", "groups", "1")...); err != nil {
		t.Fatal(err)
	}
	if got, _ := Get(out, "optimizer", "groups", int64(1)); got != "s" {
		t.Errorf("got %v", got)
	}
	if out, err = Replace(root, "t", Keys("optimizer", "state", "0")...); err != nil {
		t.Fatal(err)
	}
	if got, _ := Get(out, "optimizer", "state"); got.(*pickle.Dict).Len() != 1 || got.(*pickle.Dict).Pairs[0] != (pickle.Pair{Key: int64(0), Value: "t"}) {
		t.Errorf("got %v", got)
	}
	if out, err = Replace(root, "all"); out != "all" || err != nil {
		t.Errorf("%v, %v", out, err)
	}
	for _, path := range []Path{Keys("model", "w", "x"), Keys("none", "x"), {"optimizer", "groups", int64(2)}} {
		if _, err := Replace(root, nil, path...); fault.KindOf(err) != fault.Corrupt {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestReplaceKeepsTheClassOfAnOrderedDict(t *testing.T) {
	ordered := &pickle.Object{
		Class: &pickle.Global{Module: "collections", Name: "OrderedDict"},
		Args:  pickle.NewTuple(),
		Extra: &pickle.Extra{Pairs: []pickle.Pair{{Key: "a", Value: int64(1)}}},
	}
	out, err := Replace(ordered, int64(2), "a")
	if err != nil {
		t.Fatal(err)
	}
	copied, ok := out.(*pickle.Object)
	if !ok || copied.Class != ordered.Class || copied.Extra.Pairs[0].Value != int64(2) || ordered.Extra.Pairs[0].Value != int64(1) {
		t.Errorf("got %v", Describe(out))
	}
	empty := &pickle.Object{Class: ordered.Class, Args: pickle.NewTuple()}
	if out, err = Replace(empty, int64(3), "b"); err != nil {
		t.Fatal(err)
	}
	if got, _ := Get(out, "b"); got != int64(3) {
		t.Errorf("got %v", got)
	}
}

func TestDifference(t *testing.T) {
	change := func(value pickle.Value, path ...pickle.Value) pickle.Value {
		out, err := Replace(example(), value, path...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	plane := func(values ...float32) *tensor.Tensor {
		return tensor.FromFloat32s([]int64{int64(len(values))}, values)
	}
	same := pickle.NewDict("optimizer", must(Get(example(), "optimizer")), "late", must(Get(example(), "late")), "model", must(Get(example(), "model")))
	for name, c := range map[string]struct {
		a, b pickle.Value
		want string
	}{
		"same, in another order": {example(), same, "<nil>"},
		"a value":                {example(), change(0.25, "optimizer", "groups", int64(0), "lr"), "optimizer.groups.0.lr"},
		"a type":                 {example(), change(pickle.NewList(int64(1), int64(2)), "optimizer", "groups", int64(1)), "optimizer.groups.1"},
		"a key more":             {example(), change(nil, "model", "b"), "model"},
		"equal elements":         {plane(1, 2), plane(1, 2), "<nil>"},
		"an element":             {pickle.NewList(plane(1, 2)), pickle.NewList(plane(1, 3)), "0"},
		"a shape":                {plane(1, 2), plane(1), ""},
		"the whole":              {int64(1), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := Difference(c.a, c.b)
			got := "<nil>"
			if path != nil {
				got = path.String()
			}
			if got != c.want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func must(v pickle.Value, err error) pickle.Value {
	if err != nil {
		panic(err)
	}
	return v
}
