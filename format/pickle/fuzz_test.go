package pickle

import (
	"errors"
	"runtime"
	"testing"

	"gefenckpt/internal/fault"
)

// FuzzDecode looks for pickles that panic, hold more memory than they may, are
// refused without a reason, or are not the same when written and read again.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"testdata/real/*", "testdata/python/*.pickle", "testdata/written/*.pickle"} {
		for _, file := range files(f, pattern) {
			// Large seeds leave no time for mutations.
			if data := load(f, file); len(data) < 1<<13 {
				f.Add(data)
			}
		}
	}
	for _, bomb := range bombs {
		f.Add([]byte(bomb(1 << 8)))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkDecode(t, data) })
}

// instructions are what FuzzInstructions makes pickles of: most of them valid,
// wherever they stand.
var instructions = []string{
	"N", "\x88", "K\x01", "K\x02", "M\x01\x01", "\x8a\x09aaaaaaaaa", "G\x7f\xf8\x00\x00\x00\x00\x00\x01", "U\x01k", "U\x03abc", "C\x01a", "C\x00",
	"(", "(", "(", "0", "1", "2", ")", "]", "}", "\x8f", "\x91", "t", "l", "d", "\x85", "\x86", "\x87", "a", "a", "e", "s", "s", "u", "\x90",
	"\x94", "\x94", "h\x00", "h\x01", "h\x02", "h\x03", "h\x04", "h\x05", "h\x06", "h\x07",
	"cm\nf\n", "c__builtin__\nset\n", "c__builtin__\nfrozenset\n", "c__builtin__\nbytearray\n", "c_codecs\nencode\n", "U\x06latin1",
	"ccopy_reg\n__newobj_ex__\n", "ccollections\nOrderedDict\n", "R", "R", "\x81", "\x92", "(cm\nf\n", "o", "b", "b", "Q",
}

// FuzzInstructions does the same with pickles that are made of valid
// instructions, one for each byte, and so get further.
func FuzzInstructions(f *testing.F) {
	number := map[string]byte{}
	for i, instruction := range instructions {
		number[instruction] = byte(i)
	}
	for _, program := range [][]string{
		{"]", "\x94", "h\x00", "a"},                                          // a list in itself
		{"]", "\x94", "\x85", "\x94", "h\x00", "h\x01", "a"},                 // a tuple in itself
		{"cm\nf\n", "]", "\x94", "\x85", "R", "\x94", "h\x00", "h\x01", "a"}, // an object in its arguments
		{"\x8f", "\x94", "(", "h\x00", "\x85", "\x90"},                       // a set in itself
		{"cm\nf\n", ")", "}", "\x94", "\x92", "\x94", "h\x00", "U\x01k", "h\x01", "s"},
		{"c__builtin__\nset\n", "]", "\x94", "\x85", "R", "h\x00", "N", "a"},
	} {
		var data []byte
		for _, instruction := range program {
			data = append(data, number[instruction])
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		program := []byte("(")
		for _, b := range data {
			program = append(program, instructions[int(b)%len(instructions)]...)
		}
		// However many marks are open, one of these closes them all.
		for range 4 {
			program = append(program, 't')
			checkDecode(t, append(program, opStop))
		}
	})
}

// checkDecode decodes, writes and decodes again.
func checkDecode(t *testing.T, data []byte) {
	// What is written nests deeper than what was read, where sets are calls.
	v, err := decodeWithin(t, data, Options{Limits: Limits{Depth: 200}})
	if err != nil {
		var f *fault.Error
		if !errors.As(err, &f) || f.Message == "" || f.Offset < 0 || f.Offset > int64(len(data)) {
			t.Fatalf("refused without a place: %v", err)
		}
		switch f.Kind {
		case fault.Corrupt, fault.Resource, fault.Unsupported:
		default:
			t.Fatalf("refused as %v: %v", f.Kind, err)
		}
		return
	}
	for _, protocol := range []int{2, 4} {
		again, err := Append(nil, v, EncodeOptions{Protocol: protocol})
		if err != nil && fault.KindOf(err) == fault.Resource {
			continue // a value that contains itself as Python's cannot
		}
		if err != nil {
			t.Fatal(err)
		}
		w, err := Decode(again, Options{Limits: Limits{Depth: deepest}})
		if err != nil {
			t.Fatalf("protocol %d: %v", protocol, err)
		}
		if !Equal(v, w) {
			t.Fatalf("protocol %d: the value read back differs", protocol)
		}
	}
}

// decodeWithin decodes and checks how much memory that took: what was allocated
// in all, and only if that is much, what of it stays.
func decodeWithin(t *testing.T, data []byte, o Options) (Value, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v, err := Decode(data, o)
	runtime.ReadMemStats(&after)
	if after.TotalAlloc-before.TotalAlloc <= allowed(data) {
		return v, err
	}
	v = nil
	if live := peak(func() { v, err = Decode(data, o) }); live > allowed(data) {
		t.Fatalf("%d bytes live for a pickle of %d, want at most %d", live, len(data), allowed(data))
	}
	return v, err
}
