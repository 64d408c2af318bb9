package pickle

import "slices"

type className struct{ module, name string }

// python2Names are the names that protocols 0 to 2 use for what Python 3 calls
// otherwise, of the modules that these protocols still need: CPython's writer
// does the same.
var python2Names = []struct{ python2, python3 className }{
	{className{"__builtin__", "xrange"}, className{"builtins", "range"}},
	{className{"__builtin__", "reduce"}, className{"functools", "reduce"}},
	{className{"__builtin__", "intern"}, className{"sys", "intern"}},
	{className{"__builtin__", "unichr"}, className{"builtins", "chr"}},
	{className{"__builtin__", "unicode"}, className{"builtins", "str"}},
	{className{"__builtin__", "long"}, className{"builtins", "int"}},
	{className{"__builtin__", "basestring"}, className{"builtins", "str"}},
}

// python2Modules are the modules that were renamed as a whole.
var python2Modules = []struct{ python2, python3 string }{
	{"__builtin__", "builtins"},
	{"copy_reg", "copyreg"},
}

func python3Name(module, name string) (string, string) {
	for _, renamed := range python2Modules {
		if module != renamed.python2 {
			continue
		}
		for _, n := range python2Names {
			if n.python2 == (className{module, name}) {
				return n.python3.module, n.python3.name
			}
		}
		return renamed.python3, name
	}
	return module, name
}

func python2Name(module, name string) (string, string) {
	for _, n := range python2Names {
		if n.python3 == (className{module, name}) {
			return n.python2.module, n.python2.name
		}
	}
	for _, renamed := range python2Modules {
		if module == renamed.python3 {
			return renamed.python2, name
		}
	}
	return module, name
}

// What protocol 2 writes as calls, because it has no opcodes for it.
var (
	encodeFunction   = &Global{Module: "_codecs", Name: "encode"}
	byteArrayClass   = &Global{Module: "builtins", Name: "bytearray"}
	setClass         = &Global{Module: "builtins", Name: "set"}
	frozenSetClass   = &Global{Module: "builtins", Name: "frozenset"}
	newObjExFunction = &Global{Module: "copyreg", Name: "__newobj_ex__"}
)

func (g *Global) is(other *Global) bool { return g.Name == other.Name && g.Module == other.Module }

// builtin makes what the call o stands for, where that is one of those, or an
// empty bytes object; otherwise it returns o.
func builtin(o *Object) Value {
	args := o.Args.Items
	switch {
	case o.Class.is(encodeFunction):
		if len(args) == 2 && (args[1] == "latin1" || args[1] == "latin-1") {
			if b, ok := latin1(args[0]); ok {
				return b
			}
		}
	case o.Class.Name == "bytes" && o.Class.Module == "builtins":
		if len(args) == 0 {
			return Bytes{}
		}
	case o.Class.is(byteArrayClass):
		if b, ok := byteArray(args); ok {
			return &ByteArray{Data: b}
		}
	case o.Class.is(setClass), o.Class.is(frozenSetClass):
		s := &Set{Frozen: o.Class.Name == frozenSetClass.Name}
		if len(args) == 0 {
			return s
		}
		if l, ok := args[0].(*List); ok && len(args) == 1 {
			s.Items, s.nesting = slices.Clip(l.Items), nesting{depth: l.depth}
			return s
		}
	case o.Class.is(newObjExFunction):
		if object, ok := newObjEx(o, args); ok {
			return object
		}
	}
	return o
}

// byteArray is the content of a bytearray made of args: nothing, bytes, or text
// and its encoding.
func byteArray(args []Value) ([]byte, bool) {
	switch len(args) {
	case 0:
		return nil, true
	case 1:
		b, ok := args[0].(Bytes)
		return slices.Clone(b), ok
	case 2:
		if args[1] == "latin1" || args[1] == "latin-1" {
			return latin1(args[0])
		}
	}
	return nil, false
}

// newObjEx is the object of opcode NEWOBJ_EX, from (class, args, kwargs).
func newObjEx(o *Object, args []Value) (*Object, bool) {
	if len(args) != 3 {
		return nil, false
	}
	class, ok := args[0].(*Global)
	positional, ok2 := args[1].(*Tuple)
	kwargs, ok3 := args[2].(*Dict)
	if !ok || !ok2 || !ok3 {
		return nil, false
	}
	return &Object{
		Class: class, Args: positional, New: true, Offset: o.Offset, nesting: o.nesting,
		Extra: &Extra{Kwargs: kwargs},
	}, true
}

// latin1 turns each code point of a string into one byte.
func latin1(v Value) (Bytes, bool) {
	s, ok := v.(string)
	if !ok {
		return nil, false
	}
	b := make(Bytes, 0, len(s))
	for _, r := range s {
		if r > 0xff {
			return nil, false
		}
		b = append(b, byte(r))
	}
	return b, true
}
