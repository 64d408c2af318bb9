package pickle

// The opcodes that the code names.
const (
	opMark         = '('
	opStop         = '.'
	opNone         = 'N'
	opNewTrue      = 0x88
	opNewFalse     = 0x89
	opBinInt       = 'J'
	opBinInt1      = 'K'
	opBinInt2      = 'M'
	opLong1        = 0x8a
	opLong4        = 0x8b
	opBinFloat     = 'G'
	opBinUnicode   = 'X'
	opShortUnicode = 0x8c
	opUnicode8     = 0x8d
	opBinBytes     = 'B'
	opShortBytes   = 'C'
	opBinBytes8    = 0x8e
	opEmptyTuple   = ')'
	opTuple        = 't'
	opTuple1       = 0x85 // 2 and 3 follow
	opEmptyList    = ']'
	opAppend       = 'a'
	opAppends      = 'e'
	opEmptyDict    = '}'
	opSetItem      = 's'
	opSetItems     = 'u'
	opEmptySet     = 0x8f
	opAddItems     = 0x90
	opFrozenSet    = 0x91
	opGlobal       = 'c'
	opStackGlobal  = 0x93
	opReduce       = 'R'
	opNewObj       = 0x81
	opNewObjEx     = 0x92
	opBuild        = 'b'
	opBinPersID    = 'Q'
	opProto        = 0x80
	opPop          = '0'
	opPopMark      = '1'
	opPut          = 'p'
	opBinPut       = 'q'
	opLongBinPut   = 'r'
	opMemoize      = 0x94
	opGet          = 'g'
	opBinGet       = 'h'
	opLongBinGet   = 'j'
)

// highestProtocol is the newest pickle protocol that there is.
const highestProtocol = 5

// opcode is one instruction of the pickle machine. One without do is refused by
// its name, one without a name is no opcode.
type opcode struct {
	name string
	arg  argument
	do   func(m *machine, arg []byte) error
}

// opcodes is the allow-list: every opcode of protocols 0 to 5.
var opcodes [256]opcode

// The table is set here because what it lists looks names up in it.
func init() {
	opcodes = [256]opcode{
		opProto: {"PROTO", 1, (*machine).protocol},
		0x95:    {"FRAME", 8, (*machine).frame},
		opStop:  {"STOP", 0, (*machine).stop},

		opMark:    {"MARK", 0, (*machine).mark},
		opPop:     {"POP", 0, (*machine).popAny},
		opPopMark: {"POP_MARK", 0, marked(func(*machine, []Value) error { return nil })},
		'2':       {"DUP", 0, (*machine).dup},

		opNone:     {"NONE", 0, constant(nil)},
		opNewTrue:  {"NEWTRUE", 0, constant(true)},
		opNewFalse: {"NEWFALSE", 0, constant(false)},
		opBinInt:   {"BININT", 4, (*machine).int32},
		opBinInt1:  {"BININT1", 1, (*machine).uint},
		opBinInt2:  {"BININT2", 2, (*machine).uint},
		opLong1:    {"LONG1", counted1, (*machine).long},
		opLong4:    {"LONG4", counted4, (*machine).long},
		'I':        {"INT", oneLine, (*machine).decimalOrBool},
		'L':        {"LONG", oneLine, (*machine).decimal},
		opBinFloat: {"BINFLOAT", 8, (*machine).float},
		'F':        {"FLOAT", oneLine, (*machine).decimalFloat},

		opBinUnicode:   {"BINUNICODE", counted4, (*machine).text},
		opShortUnicode: {"SHORT_BINUNICODE", counted1, (*machine).text},
		opUnicode8:     {"BINUNICODE8", counted8, (*machine).text},
		'V':            {"UNICODE", oneLine, (*machine).escapedText},
		// The strings of Python 2, which torch reads as UTF-8.
		'U':          {"SHORT_BINSTRING", counted1, (*machine).text},
		'T':          {"BINSTRING", counted4, (*machine).text},
		'S':          {"STRING", oneLine, (*machine).quotedText},
		opBinBytes:   {"BINBYTES", counted4, (*machine).bytes},
		opShortBytes: {"SHORT_BINBYTES", counted1, (*machine).bytes},
		opBinBytes8:  {"BINBYTES8", counted8, (*machine).bytes},
		0x96:         {"BYTEARRAY8", counted8, (*machine).byteArray},

		opEmptyTuple: {"EMPTY_TUPLE", 0, constant(emptyTuple)},
		opTuple1:     {"TUPLE1", 0, tupleOf(1)},
		0x86:         {"TUPLE2", 0, tupleOf(2)},
		0x87:         {"TUPLE3", 0, tupleOf(3)},
		opTuple:      {"TUPLE", 0, marked((*machine).tuple)},
		opEmptyList:  {"EMPTY_LIST", 0, marklessly((*machine).list)},
		'l':          {"LIST", 0, marked((*machine).list)},
		opAppend:     {"APPEND", 0, (*machine).appendOne},
		opAppends:    {"APPENDS", 0, onto((*machine).appendItems)},
		opEmptyDict:  {"EMPTY_DICT", 0, marklessly((*machine).dict)},
		'd':          {"DICT", 0, marked((*machine).dict)},
		opSetItem:    {"SETITEM", 0, (*machine).setOne},
		opSetItems:   {"SETITEMS", 0, onto((*machine).setItems)},
		opEmptySet:   {"EMPTY_SET", 0, marklessly((*machine).set)},
		opAddItems:   {"ADDITEMS", 0, onto((*machine).addItems)},
		opFrozenSet:  {"FROZENSET", 0, marked((*machine).frozenSet)},

		opGlobal:      {"GLOBAL", twoLines, (*machine).globalByLines},
		opStackGlobal: {"STACK_GLOBAL", 0, (*machine).globalByStack},
		opReduce:      {"REDUCE", 0, (*machine).reduce},
		opNewObj:      {"NEWOBJ", 0, (*machine).newObject},
		opNewObjEx:    {"NEWOBJ_EX", 0, (*machine).newObjectEx},
		'i':           {"INST", twoLines, (*machine).instanceByLines},
		'o':           {"OBJ", 0, marked((*machine).instance)},
		opBuild:       {"BUILD", 0, (*machine).build},
		'P':           {"PERSID", oneLine, (*machine).persistentByLine},
		opBinPersID:   {"BINPERSID", 0, (*machine).persistentByStack},

		opPut:        {"PUT", oneLine, (*machine).put},
		opBinPut:     {"BINPUT", 1, (*machine).put},
		opLongBinPut: {"LONG_BINPUT", 4, (*machine).put},
		opMemoize:    {"MEMOIZE", 0, (*machine).memoize},
		opGet:        {"GET", oneLine, (*machine).get},
		opBinGet:     {"BINGET", 1, (*machine).get},
		opLongBinGet: {"LONG_BINGET", 4, (*machine).get},

		// Refused: what these mean is not in the file, but in a registry or a
		// buffer of the program that wrote it.
		0x82: {name: "EXT1", arg: 1},
		0x83: {name: "EXT2", arg: 2},
		0x84: {name: "EXT4", arg: 4},
		0x97: {name: "NEXT_BUFFER"},
		0x98: {name: "READONLY_BUFFER"},
	}
}

// constant pushes a value that is the same each time.
func constant(v Value) func(*machine, []byte) error {
	return func(m *machine, _ []byte) error { return m.push(v) }
}

// marklessly makes an empty container.
func marklessly(do func(*machine, []Value) error) func(*machine, []byte) error {
	return func(m *machine, _ []byte) error { return do(m, nil) }
}

// tupleOf makes a tuple of the top n values.
func tupleOf(n int) func(*machine, []byte) error {
	return func(m *machine, _ []byte) error {
		items, err := m.pop(n)
		if err != nil {
			return err
		}
		return m.tuple(items)
	}
}

// marked takes what lies above the last mark.
func marked(do func(*machine, []Value) error) func(*machine, []byte) error {
	return func(m *machine, _ []byte) error {
		items, err := m.popMark()
		if err != nil {
			return err
		}
		return do(m, items)
	}
}

// onto adds what lies above the last mark to the value below it.
func onto(do func(m *machine, to Value, items []Value) error) func(*machine, []byte) error {
	return func(m *machine, _ []byte) error {
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
