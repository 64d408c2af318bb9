package pickle

import "gefenckpt/internal/fault"

// Limits bound what a pickle may ask for. A zero field means its default.
type Limits struct {
	// Depth is how deep containers may nest; default 500. Values that Decode
	// returns can be walked recursively, if the walk stops at cycles.
	Depth int
	// Stack is the height of the machine's stack; default 65,536 plus half the
	// length of the pickle.
	Stack int
	// Memo is the number of memo entries; default 65,536 plus half the length of
	// the pickle.
	Memo int
	// LongBytes is the length of one integer; default 4,096 bytes.
	LongBytes int
}

func (l Limits) withDefaults(length int) Limits {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&l.Depth, 500)
	set(&l.Stack, 1<<16+length/2)
	set(&l.Memo, 1<<16+length/2)
	set(&l.LongBytes, 4096)
	return l
}

// exceeded is the fault of a pickle that asks for more than a limit.
func exceeded(what string, limit, offset int) error {
	return fault.New(fault.Resource, "pickle exceeds the limit on %s, %d", what, limit).At(int64(offset)).
		WithHint("no checkpoint comes near this limit: the file is damaged, or made to exhaust memory")
}
