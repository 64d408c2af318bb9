package pickle

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"gefenckpt/internal/fault"
)

// Pickles that no writer makes: each is refused where it goes wrong, and says
// what it is.
func TestHostilePickles(t *testing.T) {
	tests := []struct {
		name   string
		data   string
		kind   fault.Kind
		offset int64
		says   string
	}{
		{"nothing", "", fault.Corrupt, 0, "ends after 0 bytes, before its STOP"},
		{"no stop", "\x80\x02N", fault.Corrupt, 3, "ends after 3 bytes, before its STOP"},
		{"stop with nothing", ".", fault.Corrupt, 0, "ends with 0 values and 0 marks"},
		{"stop with two values", "NN.", fault.Corrupt, 2, "ends with 2 values and 0 marks"},
		{"stop with a mark", "N(.", fault.Corrupt, 2, "ends with 1 values and 1 marks"},
		{"bytes behind stop", "N.N.", fault.Corrupt, 2, "2 bytes follow the end"},
		{"no opcode", "N\xff", fault.Corrupt, 1, "0xff is no pickle opcode"},
		{"protocol 6", "\x80\x06N.", fault.Unsupported, 0, "protocol 6, expected at most 5"},
		{"no protocol", "\x80", fault.Corrupt, 0, "PROTO needs 1 bytes, 0 are left"},
		{"EXT1", "\x82\x01.", fault.Unsupported, 0, "EXT1 (0x82) is not read"},
		{"EXT2", "\x83\x01\x00.", fault.Unsupported, 0, "EXT2 (0x83) is not read"},
		{"EXT4", "\x84\x01\x00\x00\x00.", fault.Unsupported, 0, "EXT4 (0x84) is not read"},
		{"NEXT_BUFFER", "\x97.", fault.Unsupported, 0, "NEXT_BUFFER (0x97) is not read"},
		{"READONLY_BUFFER", "\x98.", fault.Unsupported, 0, "READONLY_BUFFER (0x98) is not read"},

		{"frame past the end", "\x80\x04\x95\x03\x00\x00\x00\x00\x00\x00\x00N.", fault.Corrupt, 2, "FRAME needs 3 bytes, 2 are left"},
		{"huge frame", "\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", fault.Corrupt, 0, "FRAME needs 18446744073709551615 bytes, 2 are left"},
		{"huge SHORT_BINUNICODE", "\x8c\xff", fault.Corrupt, 0, "SHORT_BINUNICODE needs 255 bytes, 0 are left"},
		{"huge BINUNICODE", "X\xff\xff\xff\xffabc", fault.Corrupt, 0, "BINUNICODE needs 4294967295 bytes, 3 are left"},
		{"huge BINUNICODE8", "\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc", fault.Corrupt, 0, "BINUNICODE8 needs 18446744073709551615 bytes, 3 are left"},
		{"huge SHORT_BINSTRING", "U\xff", fault.Corrupt, 0, "SHORT_BINSTRING needs 255 bytes"},
		{"huge BINSTRING", "T\xff\xff\xff\x7f", fault.Corrupt, 0, "BINSTRING needs 2147483647 bytes"},
		{"huge SHORT_BINBYTES", "C\xff", fault.Corrupt, 0, "SHORT_BINBYTES needs 255 bytes"},
		{"huge BINBYTES", "B\xff\xff\xff\xff", fault.Corrupt, 0, "BINBYTES needs 4294967295 bytes"},
		{"huge BINBYTES8", "\x8e\xff\xff\xff\xff\xff\xff\xff\x7f", fault.Corrupt, 0, "BINBYTES8 needs 9223372036854775807 bytes"},
		{"huge BYTEARRAY8", "\x96\x00\x00\x00\x00\x00\x01\x00\x00", fault.Corrupt, 0, "BYTEARRAY8 needs 1099511627776 bytes"},
		{"huge LONG1", "\x8a\xff", fault.Corrupt, 0, "LONG1 needs 255 bytes"},
		{"huge LONG4", "\x8b\xff\xff\xff\x7f", fault.Corrupt, 0, "LONG4 needs 2147483647 bytes"},
		{"length cut off", "X\x01\x00", fault.Corrupt, 0, "BINUNICODE needs 4 bytes, 2 are left"},
		{"number cut off", "J\x01\x00", fault.Corrupt, 0, "BININT needs 4 bytes, 2 are left"},
		{"float cut off", "G\x01\x00", fault.Corrupt, 0, "BINFLOAT needs 8 bytes, 2 are left"},
		{"line without end", "I123", fault.Corrupt, 0, "INT has no newline"},
		{"global without name", "cos\nsystem", fault.Corrupt, 0, "GLOBAL has no newline"},

		{"pop from nothing", "0N.", fault.Corrupt, 0, "POP needs 1 values, the stack has 0"},
		{"dup of nothing", "2.", fault.Corrupt, 0, "DUP needs 1 values"},
		{"tuple below a mark", "N(N\x86.", fault.Corrupt, 3, "TUPLE2 needs 2 values, the stack has 1"},
		{"tuple without a mark", "NNt.", fault.Corrupt, 2, "TUPLE needs a mark"},
		{"append to nothing", "Na.", fault.Corrupt, 1, "APPEND needs 1 values, the stack has 0"},
		{"append to a dict", "}Na.", fault.Corrupt, 2, "cannot append to a dict of 0"},
		{"append to a tuple", ")(Ne.", fault.Corrupt, 3, "cannot append to a tuple of 0"},
		{"set on a list", "]NNs.", fault.Corrupt, 3, "cannot set an entry of a list of 0"},
		{"odd SETITEMS", "}(NNNu.", fault.Corrupt, 5, "a key without a value"},
		{"odd DICT", "(Nd.", fault.Corrupt, 2, "a key without a value"},
		{"add to a list", "](N\x90.", fault.Corrupt, 3, "cannot add items to a list of 0"},
		{"add to a frozenset", "(\x91(N\x90.", fault.Corrupt, 4, "cannot add items to a set of 0"},

		{"key twice", "}U\x01kNsU\x01kNs.", fault.Corrupt, 10, `a dict has the key "k" twice`},
		{"key twice at once", "}(K\x01NK\x01Nu.", fault.Corrupt, 8, "a dict has the key 1 twice"},
		{"key twice in an OrderedDict", "cx\ny\n)R(K\x01NK\x01Nu.", fault.Corrupt, 14, "a dict has the key 1 twice"},
		{"key twice in a large dict", "}(" + numberedKeys(0, 300) + "K\x07Nu.", fault.Corrupt, 2 + 4*300 + 3, "a dict has the key 7 twice"},
		{"key twice among batches", "}(" + numberedKeys(0, 300) + "u(" + numberedKeys(299, 1) + "u.", fault.Corrupt, 2 + 4*300 + 2 + 4, "a dict has the key 299 twice"},

		{"memo entry that is not there", "h\x00.", fault.Corrupt, 0, "memo entry 0 is fetched before it is set"},
		{"memo entry set later", "h\x00Nq\x00.", fault.Corrupt, 0, "memo entry 0 is fetched before it is set"},
		{"memo of nothing", "q\x00.", fault.Corrupt, 0, "BINPUT needs 1 values"},
		{"memo entry 4 billion", "Nr\xff\xff\xff\xff.", fault.Resource, 1, "the limit on memo entries, 1027"},
		{"memo entry 4 billion fetched", "Nj\xff\xff\xff\xff.", fault.Corrupt, 1, "memo entry 4294967295 is fetched before"},
		{"memo entry in words", "Npone\n.", fault.Corrupt, 1, `"one" is no memo entry`},
		{"memo entry below 0", "Ng-1\n.", fault.Corrupt, 1, `"-1" is no memo entry`},
		{"MEMOIZE after a gap", "Nq\x05\x94.", fault.Corrupt, 3, "MEMOIZE after memo entries out of order"},

		{"call of a string", "U\x01x)R.", fault.Corrupt, 4, `calls "x", expected a class or function`},
		{"call of an object", "cx\ny\n)R)R.", fault.Unsupported, 8, "calls an object of x.y"},
		{"call with a list", "cx\ny\n]R.", fault.Corrupt, 6, "x.y is called with a list of 0, expected a tuple"},
		{"keywords in a list", "cx\ny\n)]\x92.", fault.Corrupt, 7, "keyword arguments are a list of 0"},
		{"OBJ without a class", "(o.", fault.Corrupt, 1, "OBJ without a class"},
		{"global named by numbers", "K\x01K\x02\x93.", fault.Corrupt, 4, "named by 1 and 2, expected two strings"},
		{"global with a newline", "U\x01xU\x02y\n\x93.", fault.Corrupt, 7, `named by "x" and "y\n", which is no name`},
		{"global that is not UTF-8", "c\xff\ny\n.", fault.Corrupt, 0, "byte 0 of a string, 0xff, is not UTF-8"},
		{"state of a list", "]}b.", fault.Corrupt, 2, "cannot set the state of a list of 0"},
		{"state of None", "N}b.", fault.Corrupt, 2, "cannot set the state of None"},
		{"state set twice", "cx\ny\n)\x81}b}b.", fault.Corrupt, 10, "the state of an object of x.y is set twice"},

		{"persistent id of a persistent id", "NQQ.", fault.Corrupt, 2, "a persistent id is the id of another"},

		{"string that is not UTF-8", "U\x03a\xffb.", fault.Corrupt, 0, "byte 1 of a string, 0xff, is not UTF-8"},
		{"half a surrogate", "U\x02\xed\xa0.", fault.Corrupt, 0, "byte 0 of a string, 0xed, is not UTF-8"},
		{"string without quotes", "Sabc\n.", fault.Corrupt, 0, "is not quoted"},
		{"string of one quote", "S'\n.", fault.Corrupt, 0, "is not quoted"},
		{"string with a bad escape", "S'\\x1'\n.", fault.Corrupt, 0, "has the escape"},
		{"text with a bad escape", "V\\u12\n.", fault.Corrupt, 0, "has the escape"},
		{"text past Unicode", "V\\U00110000\n.", fault.Corrupt, 0, "has the escape"},
		{"integer in words", "Ione\n.", fault.Corrupt, 0, `"one" is no integer`},
		{"float in words", "Fone\n.", fault.Corrupt, 0, `"one" is no float`},
		{"long name in the text", "U\xff" + strings.Repeat("x", 255) + ")R.", fault.Corrupt, 258, `"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"...`},

		{"deep lists", repeat(600, "]") + repeat(599, "a") + ".", fault.Resource, 600 + 499, "the limit on nesting, 500"},
		{"deep tuples", "N" + repeat(1<<20, "\x85") + ".", fault.Resource, 501, "the limit on nesting, 500"},
		{"deep persistent ids", ")" + repeat(1<<20, "Q\x85") + ".", fault.Resource, 501, "the limit on nesting, 500"},
		{"deep objects", "cx\ny\n\x94" + repeat(999, "h\x00") + ")" + repeat(999, "R\x85") + ".", fault.Resource, 7 + 1998 + 1 + 499, "the limit on nesting, 500"},
		{"long integer", "\x8b\x01\x10\x00\x00" + repeat(4097, "\x01") + ".", fault.Resource, 0, "the limit on the bytes of one integer, 4096"},
		{"long digits", "L" + repeat(20000, "9") + "L\n.", fault.Resource, 0, "the limit on the bytes of one integer, 4096"},
		{"many containers", "(" + repeat(1<<14, "]") + "t.", fault.Resource, 1 + 1<<12 + 1<<13 + 1, "the limit on the number of containers"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Decode([]byte(test.data), Options{})
			var f *fault.Error
			if !errors.As(err, &f) {
				t.Fatalf("got error %v, want a fault", err)
			}
			if f.Kind != test.kind || f.Offset != test.offset || !strings.Contains(f.Message, test.says) {
				t.Errorf("got %v at %d: %s\nwant %v at %d: ...%s...", f.Kind, f.Offset, f.Message, test.kind, test.offset, test.says)
			}
		})
	}
}

// numberedKeys are n entries of a dict with integer keys of 2 bytes.
func numberedKeys(from, n int) string {
	var b strings.Builder
	for i := from; i < from+n; i++ {
		b.Write([]byte{'M', byte(i), byte(i >> 8), 'N'})
	}
	return b.String()
}

// Real pickles that are cut off anywhere are refused, with a place in what is left.
func TestTruncatedPickles(t *testing.T) {
	for file, step := range map[string]int{
		"testdata/real/native-factored-1-full.pkl": 7,
		"testdata/python/objects.4.pickle":         1,
		"testdata/python/containers.0.pickle":      1,
	} {
		data := load(t, file)
		for n := 0; n < len(data); n += step {
			_, err := Decode(data[:n], Options{})
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Corrupt || f.Offset < 0 || f.Offset > int64(n) {
				t.Fatalf("%s cut to %d bytes: %v", file, n, err)
			}
		}
	}
}

// Pickles that would run code in Python are inert.
func TestNothingIsCalled(t *testing.T) {
	for name, data := range map[string]string{
		"REDUCE":        "cos\nsystem\n(U\x0aecho pwnedtR.",
		"INST":          "(U\x0aecho pwnedios\nsystem\n.",
		"OBJ":           "(cos\nsystem\nU\x0aecho pwnedo.",
		"STACK_GLOBAL":  "\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0aecho pwned\x85R.",
		"protocol zero": "cos\nsystem\n(S'echo pwned'\ntR.",
	} {
		t.Run(name, func(t *testing.T) {
			if want, got := called("os", "system", "echo pwned"), mustDecode(t, []byte(data)); !Equal(want, got) {
				t.Errorf("read %s", Describe(got))
			}
		})
	}
}

// Each limit is kept to, and is named in the error.
func TestLimits(t *testing.T) {
	tests := []struct {
		name   string
		limits Limits
		data   string
		says   string
	}{
		{"depth", Limits{Depth: 3}, "]]]]aaa.", "the limit on nesting, 3"},
		{"depth is never unlimited", Limits{Depth: 1 << 30}, "N" + repeat(2000, "\x85") + ".", "the limit on nesting, 1000"},
		{"stack", Limits{Stack: 3}, "(NNNNt.", "the limit on the height of the stack, 3"},
		{"marks", Limits{Stack: 3}, "((((tttt.", "the limit on open marks, 3"},
		{"memo", Limits{Memo: 3}, "N\x94\x94\x94\x94.", "the limit on memo entries, 3"},
		{"nodes", Limits{Nodes: 3}, "]]]]aaa.", "the limit on the number of containers, 3"},
		{"long", Limits{LongBytes: 9}, "\x8a\x0a1234567890.", "the limit on the bytes of one integer, 9"},
		{"repeated strings", Limits{Repeat: 9}, "(U\x0512345\x94h\x00h\x00t.", "the limit on bytes that are repeated from the memo, 9"},
		{"repeated bytes", Limits{Repeat: 9}, "(C\x051234522t.", "the limit on bytes that are repeated from the memo, 9"},
		{"repeated names", Limits{Repeat: 9}, "(c123\n4\n222t.", "the limit on bytes that are repeated from the memo, 9"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := Decode([]byte(test.data), Options{Limits: test.limits}); fault.KindOf(err) != fault.Resource || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want ...%s...", err, test.says)
			}
		})
	}
}

// Containers that are changed after they were put into others can nest deeper
// than was counted when they were.
func TestDepthBehindTheMemo(t *testing.T) {
	// Each list is put into the next while it is still empty, and gets the last
	// one only then.
	chain := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "]p%d\n", i)
		}
		for i := n - 1; i > 0; i-- { // stack: lists 0 to i
			b.WriteString("a") // list i into list i-1, which is below it
		}
		return b.String()
	}
	late := func(n int) string {
		var b strings.Builder
		b.WriteString("(")
		for i := range n {
			fmt.Fprintf(&b, "]p%d\n", i)
		}
		b.WriteString("t0") // all lists are made; the tuple of them is dropped
		for i := range n - 1 {
			fmt.Fprintf(&b, "g%d\ng%d\na0", i, i+1) // list i+1 into list i
		}
		b.WriteString("g0\n")
		return b.String()
	}
	for _, test := range []struct {
		name string
		data string
		ok   bool
	}{
		{"shallow chain", chain(400) + ".", true},
		{"deep chain", chain(600) + ".", false},
		{"shallow, late", late(400) + ".", true},
		{"deep, late", late(600) + ".", false},
		{"deep, late, seen by a hook", late(600) + "0cx\ny\ng0\n\x85R0N.", false},
		{"deep, late, dropped before anyone sees it", late(600) + "0N.", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Decode([]byte(test.data), Options{Reduce: func(o *Object) (Value, error) { return o, nil }})
			if test.ok && err != nil || !test.ok && fault.KindOf(err) != fault.Resource {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Counting the nesting again for each call of a hook would take quadratic time.
func TestDepthIsNotCountedForever(t *testing.T) {
	data := "cx\ny\np0\n0]p1\n(" + repeat(20000, "N") + "e\x85p2\n0g1\ng1\na0" + repeat(20000, "g0\ng2\nR0") + "g2\n."
	_, err := Decode([]byte(data), Options{Reduce: func(o *Object) (Value, error) { return o, nil }})
	if fault.KindOf(err) != fault.Resource || !strings.Contains(err.Error(), "searches for the nesting of cyclic values") {
		t.Errorf("got %v", err)
	}
}

// A small pickle can hold exponentially many paths; nothing walks each of them.
func TestDoubledTuples(t *testing.T) {
	var b strings.Builder
	b.WriteString(")\x85\x94")
	for range 400 {
		b.WriteString("2\x86")
	}
	v, w := mustDecode(t, []byte(b.String()+".")), mustDecode(t, []byte(b.String()+"."))
	if !Equal(v, w) {
		t.Error("doubled tuples are not equal to themselves")
	}
	if n := distinct(v); n != 401 {
		t.Errorf("%d tuples, want 401", n)
	}
	for _, protocol := range []int{2, 4} {
		if data := mustAppend(t, v, protocol); len(data) > 401*8 {
			t.Errorf("protocol %d: written in %d bytes", protocol, len(data))
		}
	}
	if _, err := Decode([]byte(b.String()+"}2s0N."), Options{}); fault.KindOf(err) != fault.Corrupt {
		t.Errorf("got %v", err)
	}
}

// What Python 2 and protocols 0 and 1 write is read as well.
func TestOldOpcodes(t *testing.T) {
	tests := []struct {
		name string
		data string
		want Value
	}{
		{"INT", "I-12\n.", int64(-12)},
		{"INT true", "I01\n.", true},
		{"INT false", "I00\n.", false},
		{"INT one", "I1\n.", int64(1)},
		{"LONG", "L12L\n.", int64(12)},
		{"LONG without L", "L12\n.", int64(12)},
		{"LONG beyond 64 bits", "L-18446744073709551616L\n.", negative(power(64, 0))},
		{"LONG1 of no bytes", "\x8a\x00.", int64(0)},
		{"LONG1 with a long sign", "\x8a\x0a" + repeat(10, "\xff") + ".", int64(-1)},
		{"FLOAT", "F-1.5e3\n.", -1500.0},
		{"STRING", `S'a\'b\\c\n\x41\101\q'` + "\n.", "a'b\\c\nAA\\q"},
		{"STRING in double quotes", "S\"it's\"\n.", "it's"},
		{"STRING in UTF-8", "S'caf\\xc3\\xa9'\n.", "caf\u00e9"},
		{"BINSTRING", "T\x03\x00\x00\x00abc.", "abc"},
		{"UNICODE", "V\\u6f22\xe9\\U0001f600\\\\u0041\\ud800\n.", "\u6f22\u00e9\U0001f600\\\\u0041\xed\xa0\x80"},
		{"UNICODE with a backslash at the end", "Va\\\n.", "a\\"},
		{"LIST", "(K\x01K\x02l.", NewList(int64(1), int64(2))},
		{"DICT", "(K\x01K\x02d.", NewDict(int64(1), int64(2))},
		{"TUPLE", "(K\x01t.", NewTuple(int64(1))},
		{"empty TUPLE", "(t.", NewTuple()},
		{"PUT and GET", "]p7\n0g7\n.", NewList()},
		{"POP", "NK\x010.", nil},
		{"POP of a mark", "N(0.", nil},
		{"POP_MARK", "N(NN1.", nil},
		{"DUP", "K\x012\x86.", NewTuple(int64(1), int64(1))},
		{"PERSID", "Pan id\n.", &Persistent{ID: "an id"}},
		{"INST", "(K\x01ix\ny\n.", called("x", "y", int64(1))},
		{"INST without arguments", "(ithings\nThing\n.", thing("Thing")},
		{"OBJ", "(cx\ny\nK\x01o.", called("x", "y", int64(1))},
		{"OBJ without arguments", "(cthings\nThing\no.", thing("Thing")},
		{"OBJ of a set", "(c__builtin__\nset\n]o.", &Set{}},
		{"module of Python 2", "c__builtin__\nlist\n.", &Global{Module: "builtins", Name: "list"}},
		{"other module of Python 2", "ccopy_reg\n_reconstructor\n.", &Global{Module: "copyreg", Name: "_reconstructor"}},
		{"name of Python 2", "c__builtin__\nreduce\n.", &Global{Module: "functools", Name: "reduce"}},
		{"bytearray from text", "c__builtin__\nbytearray\n(U\x01aU\x07latin-1tR.", &ByteArray{Data: []byte("a")}},
		{"bytes of nothing", "c__builtin__\nbytes\n)R.", Bytes{}},
		{"text that is not Latin-1", "c_codecs\nencode\n(X\x03\x00\x00\x00\xe6\xbc\xa2U\x06latin1tR.", called("_codecs", "encode", "\u6f22", "latin1")},
		{"__newobj_ex__", "ccopy_reg\n__newobj_ex__\n(cthings\nNamed\n(K\x01t(U\x01yNdtR.", &Object{
			Class: &Global{Module: "things", Name: "Named"}, Args: NewTuple(int64(1)), New: true, Extra: &Extra{Kwargs: NewDict("y", nil)},
		}},
		{"extreme integers", "(\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00t.", NewTuple(int64(-1<<63), new(big.Int).SetUint64(1<<64-1))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := mustDecode(t, []byte(test.data)); !Equal(test.want, got) {
				t.Errorf("read %s, want %s", Describe(got), Describe(test.want))
			}
		})
	}
}

// Several pickles can stand one behind the other.
func TestDecodePrefix(t *testing.T) {
	data := []byte("\x80\x02K\x01.\x80\x02K\x02.tail")
	for _, want := range []int64{1, 2} {
		v, n, err := DecodePrefix(data, Options{})
		if err != nil || n != 5 || v != want {
			t.Fatalf("got %v of %d bytes, error %v, want %d of 5", v, n, err, want)
		}
		data = data[n:]
	}
}
