package pickle

import "gefenckpt/internal/fault"

// Limits bound what a pickle may ask for. A zero field means its default. The
// length of strings, bytes and names needs no limit of its own: it is checked
// against the bytes that are really left before anything is allocated. With the
// defaults, decoding holds at most 64 bytes for each byte of the pickle, and
// 1 MiB.
type Limits struct {
	// Depth is how deep containers may nest; default 500, at most 1,000. Values
	// that Decode returns, and those that it passes to hooks, can be walked
	// recursively, if the walk visits each container once.
	Depth int
	// Stack is the height of the machine's stack, and the number of its open
	// marks; default the length of the pickle.
	Stack int
	// Memo is the number of memo entries; default 1,024 plus half the length of
	// the pickle, because an entry takes a byte and what it remembers another.
	Memo int
	// Nodes is the number of containers, classes and objects that are made;
	// default 4,096 plus half the length of the pickle, because CPython remembers
	// each in the memo.
	Nodes int
	// LongBytes is the length of one integer; default 4,096 bytes.
	LongBytes int
	// Repeat is how many bytes of strings, bytes, names and long integers may be
	// fetched again from the memo in all; default 256 MiB plus 64 times the length
	// of the pickle. Who walks a value meets these bytes anew at each mention.
	Repeat int64
}

const deepest = 1000

func (l Limits) withDefaults(length int) Limits {
	l.Depth = min(either(l.Depth, 500), deepest)
	l.Stack = either(l.Stack, length)
	l.Memo = either(l.Memo, 1<<10+length/2)
	l.Nodes = either(l.Nodes, 1<<12+length/2)
	l.LongBytes = either(l.LongBytes, 4096)
	l.Repeat = either(l.Repeat, 1<<28+64*int64(length))
	return l
}

// either is the value of a limit, or its default.
func either[T int | int64](value, byDefault T) T {
	if value == 0 {
		return byDefault
	}
	return value
}

// exceeded is the fault of a pickle that asks for more than a limit.
func exceeded[T int | int64](what string, limit T, offset int) error {
	return fault.New(fault.Resource, "the pickle exceeds the limit on %s, %d", what, limit).At(int64(offset)).
		WithHint("no checkpoint comes near this limit: the file is damaged, or made to exhaust memory")
}
