package pickle

import (
	"encoding/binary"
	"strconv"
)

// The opcodes that the writer needs by name.
const (
	opMark           = '('
	opStop           = '.'
	opNone           = 'N'
	opNewTrue        = 0x88
	opNewFalse       = 0x89
	opBinInt         = 'J'
	opBinInt1        = 'K'
	opBinInt2        = 'M'
	opLong1          = 0x8a
	opLong4          = 0x8b
	opBinFloat       = 'G'
	opBinUnicode     = 'X'
	opShortUnicode   = 0x8c
	opBinBytes       = 'B'
	opShortBinBytes  = 'C'
	opEmptyTuple     = ')'
	opTuple          = 't'
	opTuple1         = 0x85
	opEmptyList      = ']'
	opAppend         = 'a'
	opAppends        = 'e'
	opEmptyDict      = '}'
	opSetItem        = 's'
	opSetItems       = 'u'
	opGlobal         = 'c'
	opStackGlobal    = 0x93
	opReduce         = 'R'
	opNewObj         = 0x81
	opBuild          = 'b'
	opBinPersID      = 'Q'
	opProto          = 0x80
	opPop            = '0'
	opPopMark        = '1'
	opBinPut         = 'q'
	opLongBinPut     = 'r'
	opMemoize        = 0x94
	opBinGet         = 'h'
	opLongBinGet     = 'j'
	highestProtocol  = 5
	textTrue         = "01"
	textFalse        = "00"
	shortestUnquoted = 2
)

// opcodes is the allow-list: what each opcode is called and what it does. Those
// without do are refused by name.
var opcodes = [256]struct {
	name string
	do   func(m *machine) error
}{
	opProto: {"PROTO", func(m *machine) error {
		v, err := m.byte()
		if err == nil && v > highestProtocol {
			err = m.corrupt("pickle protocol %d, expected at most %d", v, highestProtocol)
		}
		return err
	}},
	// Frames say how far a reader may read ahead, which needs nobody here.
	0x95: {"FRAME", func(m *machine) error { _, err := m.uint(8); return err }},

	opMark: {"MARK", func(m *machine) error {
		if len(m.marks) >= m.limits.Stack {
			return exceeded("marks", m.limits.Stack, m.op)
		}
		m.marks = append(m.marks, len(m.stack))
		return nil
	}},
	opPop: {"POP", func(m *machine) error {
		if len(m.stack) == m.floor() && len(m.marks) > 0 {
			_, err := m.popMark()
			return err
		}
		_, err := m.pop(1)
		return err
	}},
	opPopMark: {"POP_MARK", func(m *machine) error { _, err := m.popMark(); return err }},
	'2': {"DUP", func(m *machine) error {
		v, err := m.top(0)
		if err != nil {
			return err
		}
		return m.push(v)
	}},

	opNone:     {"NONE", func(m *machine) error { return m.push(nil) }},
	opNewTrue:  {"NEWTRUE", func(m *machine) error { return m.push(true) }},
	opNewFalse: {"NEWFALSE", func(m *machine) error { return m.push(false) }},
	opBinInt: {"BININT", func(m *machine) error {
		n, err := m.uint(4)
		if err != nil {
			return err
		}
		return m.push(int64(int32(uint32(n))))
	}},
	opBinInt1: {"BININT1", unsigned(1)},
	opBinInt2: {"BININT2", unsigned(2)},
	opLong1:   {"LONG1", counted(1, (*machine).long)},
	opLong4:   {"LONG4", counted(4, (*machine).long)},
	'I': {"INT", line(func(m *machine, s string) error {
		switch s {
		case textTrue:
			return m.push(true)
		case textFalse:
			return m.push(false)
		}
		return m.decimal(s)
	})},
	'L': {"LONG", line((*machine).decimal)},
	opBinFloat: {"BINFLOAT", func(m *machine) error {
		b, err := m.take(8)
		if err != nil {
			return err
		}
		return m.float(binary.BigEndian.Uint64(b))
	}},
	'F': {"FLOAT", line((*machine).decimalFloat)},

	opBinUnicode:   {"BINUNICODE", counted(4, (*machine).text)},
	opShortUnicode: {"SHORT_BINUNICODE", counted(1, (*machine).text)},
	0x8d:           {"BINUNICODE8", counted(8, (*machine).text)},
	'V':            {"UNICODE", line(func(m *machine, s string) error { return m.escaped(s) })},
	// Python 2 strings: torch files have them as keys and locations.
	'U': {"SHORT_BINSTRING", counted(1, (*machine).text)},
	'T': {"BINSTRING", counted(4, (*machine).text)},
	'S': {"STRING", line(func(m *machine, s string) error {
		if len(s) < shortestUnquoted || s[0] != s[len(s)-1] || (s[0] != '\'' && s[0] != '"') {
			return m.corrupt("the string %q is not quoted", s)
		}
		return m.escaped(s[1 : len(s)-1])
	})},
	opBinBytes:      {"BINBYTES", counted(4, pushBytes)},
	opShortBinBytes: {"SHORT_BINBYTES", counted(1, pushBytes)},
	0x8e:            {"BINBYTES8", counted(8, pushBytes)},
	0x96: {"BYTEARRAY8", counted(8, func(m *machine, b []byte) error {
		return m.push(&ByteArray{append([]byte(nil), b...)})
	})},

	opEmptyTuple: {"EMPTY_TUPLE", func(m *machine) error { return m.push(emptyTuple) }},
	opTuple1:     {"TUPLE1", tuple(1)},
	0x86:         {"TUPLE2", tuple(2)},
	0x87:         {"TUPLE3", tuple(3)},
	opTuple:      {"TUPLE", marked((*machine).tuple)},
	opEmptyList:  {"EMPTY_LIST", func(m *machine) error { return m.push(&List{}) }},
	'l': {"LIST", marked(func(m *machine, items []Value) error {
		l := &List{}
		if err := m.appendItems(l, items); err != nil {
			return err
		}
		return m.push(l)
	})},
	opAppend: {"APPEND", func(m *machine) error {
		v, err := m.pop(1)
		if err != nil {
			return err
		}
		to, err := m.top(0)
		if err != nil {
			return err
		}
		return m.appendItems(to, v)
	}},
	opAppends: {"APPENDS", onto((*machine).appendItems)},

	opEmptyDict: {"EMPTY_DICT", func(m *machine) error { return m.push(&Dict{}) }},
	'd': {"DICT", marked(func(m *machine, items []Value) error {
		d := &Dict{}
		if err := m.setItems(d, items); err != nil {
			return err
		}
		return m.push(d)
	})},
	opSetItem: {"SETITEM", func(m *machine) error {
		v, err := m.pop(2)
		if err != nil {
			return err
		}
		to, err := m.top(0)
		if err != nil {
			return err
		}
		return m.setItems(to, v)
	}},
	opSetItems: {"SETITEMS", onto((*machine).setItems)},

	0x8f: {"EMPTY_SET", func(m *machine) error { return m.push(&Set{}) }},
	0x90: {"ADDITEMS", onto(func(m *machine, to Value, items []Value) error {
		s, ok := to.(*Set)
		if !ok {
			return m.corrupt("cannot add items to %s", describe(to))
		}
		s.Items = append(s.Items, items...)
		return m.place(s, items...)
	})},
	0x91: {"FROZENSET", marked(func(m *machine, items []Value) error {
		s := &Set{Items: append([]Value(nil), items...), Frozen: true}
		if err := m.place(s, items...); err != nil {
			return err
		}
		return m.push(s)
	})},

	opGlobal: {"GLOBAL", func(m *machine) error {
		module, err := m.line()
		if err != nil {
			return err
		}
		name, err := m.line()
		if err != nil {
			return err
		}
		return m.global(module, name)
	}},
	opStackGlobal: {"STACK_GLOBAL", func(m *machine) error {
		v, err := m.pop(2)
		if err != nil {
			return err
		}
		module, ok := v[0].(string)
		name, ok2 := v[1].(string)
		if !ok || !ok2 {
			return m.corrupt("a global is named by %s and %s, expected two strings", describe(v[0]), describe(v[1]))
		}
		return m.global(module, name)
	}},
	opReduce: {"REDUCE", func(m *machine) error {
		v, err := m.pop(2)
		if err != nil {
			return err
		}
		return m.object(v[0], v[1], false)
	}},
	opNewObj: {"NEWOBJ", func(m *machine) error {
		v, err := m.pop(2)
		if err != nil {
			return err
		}
		return m.object(v[0], v[1], true)
	}},
	opBuild: {"BUILD", (*machine).build},
	opBinPersID: {"BINPERSID", func(m *machine) error {
		v, err := m.pop(1)
		if err != nil {
			return err
		}
		return m.persistent(v[0])
	}},
	'P': {"PERSID", line(func(m *machine, s string) error { return m.persistent(s) })},

	opBinPut:     {"BINPUT", memo(1, (*machine).put)},
	opLongBinPut: {"LONG_BINPUT", memo(4, (*machine).put)},
	opMemoize:    {"MEMOIZE", func(m *machine) error { return m.put(uint64(len(m.memo))) }},
	'p':          {"PUT", line(numbered((*machine).put))},
	opBinGet:     {"BINGET", memo(1, (*machine).get)},
	opLongBinGet: {"LONG_BINGET", memo(4, (*machine).get)},
	'g':          {"GET", line(numbered((*machine).get))},

	// Refused: extension registries and out-of-band buffers name things that are
	// not in the file; keyword arguments, and classes of Python 1, that no
	// checkpoint has.
	0x82: {name: "EXT1"},
	0x83: {name: "EXT2"},
	0x84: {name: "EXT4"},
	0x97: {name: "NEXT_BUFFER"},
	0x98: {name: "READONLY_BUFFER"},
	0x92: {name: "NEWOBJ_EX"},
	'i':  {name: "INST"},
	'o':  {name: "OBJ"},
}

// opNames are the names in opcodes, apart because the actions there need them.
var opNames [256]string

func init() {
	for code, op := range opcodes {
		opNames[code] = op.name
	}
}

func unsigned(width uint64) func(*machine) error {
	return func(m *machine) error {
		n, err := m.uint(width)
		if err != nil {
			return err
		}
		return m.push(int64(n))
	}
}

func counted(width uint64, do func(*machine, []byte) error) func(*machine) error {
	return func(m *machine) error {
		b, err := m.counted(width)
		if err != nil {
			return err
		}
		return do(m, b)
	}
}

func line(do func(*machine, string) error) func(*machine) error {
	return func(m *machine) error {
		s, err := m.line()
		if err != nil {
			return err
		}
		return do(m, s)
	}
}

func numbered(do func(*machine, uint64) error) func(*machine, string) error {
	return func(m *machine, s string) error {
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil {
			return m.corrupt("%q is no memo entry", s)
		}
		return do(m, n)
	}
}

func memo(width uint64, do func(*machine, uint64) error) func(*machine) error {
	return func(m *machine) error {
		n, err := m.uint(width)
		if err != nil {
			return err
		}
		return do(m, n)
	}
}

func tuple(n int) func(*machine) error {
	return func(m *machine) error {
		items, err := m.pop(n)
		if err != nil {
			return err
		}
		return m.tuple(items)
	}
}

// marked takes what lies above the last mark.
func marked(do func(*machine, []Value) error) func(*machine) error {
	return func(m *machine) error {
		items, err := m.popMark()
		if err != nil {
			return err
		}
		return do(m, items)
	}
}

// onto adds what lies above the last mark to the value below it.
func onto(do func(*machine, Value, []Value) error) func(*machine) error {
	return func(m *machine) error {
		items, err := m.popMark()
		if err != nil {
			return err
		}
		to, err := m.top(0)
		if err != nil {
			return err
		}
		return do(m, to, items)
	}
}

func pushBytes(m *machine, b []byte) error { return m.push(Bytes(append([]byte(nil), b...))) }

func (m *machine) persistent(id Value) error {
	if m.opts.Persistent == nil {
		return m.push(&Persistent{ID: id, Offset: int64(m.op)})
	}
	v, err := m.opts.Persistent(id, int64(m.op))
	if err != nil {
		return err
	}
	return m.push(v)
}
