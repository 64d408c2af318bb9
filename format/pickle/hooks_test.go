package pickle

import (
	"errors"
	"testing"

	"gefenckpt/internal/fault"
)

// What the hooks return takes the place of what they were given.
func TestHooksReplace(t *testing.T) {
	type folded struct{ n int }
	data := "(cm\nf\np0\nK\x01\x85R" + // f(1), replaced
		"g0\n)\x81}U\x01kK\x02sb" + // an f with a state, folded
		"U\x02idQ" + // a persistent id
		"t."
	var builds, reduces int
	v, err := Decode([]byte(data), Options{
		Persistent: func(id Value, offset int64) (Value, error) {
			if data[offset] != opBinPersID {
				t.Errorf("the persistent id stands at byte %d", offset)
			}
			return folded{len(id.(string))}, nil
		},
		Reduce: func(o *Object) (Value, error) {
			reduces++
			if data[o.Offset] != opReduce || o.New {
				t.Errorf("asked about the object at byte %d", o.Offset)
			}
			return folded{int(o.Args.Items[0].(int64))}, nil
		},
		Build: func(o *Object) error {
			builds++
			state := o.State.(*Dict)
			k, _ := state.Get("k")
			o.State = folded{int(k.(int64))}
			state.Pairs = nil
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	items, _ := Sequence(v)
	if len(items) != 3 || items[0] != (folded{1}) || items[1].(*Object).State != (folded{2}) || items[2] != (folded{2}) {
		t.Errorf("read %v", items)
	}
	if builds != 1 || reduces != 1 {
		t.Errorf("%d calls of Build and %d of Reduce, want one each", builds, reduces)
	}
}

// The state of what the Reduce hook put in place is dropped, not an error.
func TestStateOfReplaced(t *testing.T) {
	v, err := Decode([]byte("cm\nf\n)R}b."), Options{Reduce: func(*Object) (Value, error) { return struct{}{}, nil }})
	if err != nil || v != struct{}{} {
		t.Errorf("got %v, %v", v, err)
	}
}

// Errors of hooks keep their kind, and get the place of the opcode unless they
// have one.
func TestHooksFail(t *testing.T) {
	plain, placed := errors.New("plain"), fault.New(fault.Unsupported, "placed").At(77)
	tests := []struct {
		name   string
		err    error
		kind   fault.Kind
		offset func(opcode int64) int64
	}{
		{"without a place", plain, fault.Internal, func(opcode int64) int64 { return opcode }},
		{"with a place", placed, fault.Unsupported, func(int64) int64 { return 77 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for data, opcode := range map[string]int64{"cm\nf\n)R.": 6, "cm\nf\n)\x81}b.": 8, "NQ.": 1} {
				_, err := Decode([]byte(data), Options{
					Persistent: func(Value, int64) (Value, error) { return nil, test.err },
					Reduce:     func(*Object) (Value, error) { return nil, test.err },
					Build:      func(*Object) error { return test.err },
				})
				f := fault.Of(err)
				if !errors.Is(err, test.err) && f.Message != "placed" || f.Kind != test.kind || f.Offset != test.offset(opcode) {
					t.Errorf("%q: got %v of kind %v at %d", data, err, f.Kind, f.Offset)
				}
			}
		})
	}
}
