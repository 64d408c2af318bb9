package pickle

import (
	"encoding/binary"
	"math"
	"math/big"
	"strings"

	"gefenckpt/internal/fault"
)

// EncodeOptions steer Append.
type EncodeOptions struct {
	// Protocol is 2, the default and the only one that torch's weights_only
	// loader takes, or 4.
	Protocol int
	// Replace is asked about every value that is not one of the kinds of Value
	// (a *tensor.Tensor, say); what it returns is written in its place. nil
	// refuses them.
	Replace func(v Value) (Value, error)
}

// batch is how many items one APPENDS or SETITEMS takes, as in CPython.
const batch = 1000

// encodeDepth bounds the recursion of Append: values that Decode returned nest
// less, cycles aside, and the memo ends those.
const encodeDepth = 2000

// Append appends the pickle of v to dst. What v shares by pointer is written
// once; equal values give equal bytes. Loading it never calls more than v's own
// globals.
func Append(dst []byte, v Value, o EncodeOptions) ([]byte, error) {
	if o.Protocol == 0 {
		o.Protocol = 2
	}
	e := &encoder{out: dst, opts: o, memo: map[Value]uint32{}}
	e.out = append(e.out, opProto, byte(o.Protocol))
	if err := e.value(v); err != nil {
		return nil, err
	}
	return append(e.out, opStop), nil
}

type encoder struct {
	out   []byte
	opts  EncodeOptions
	memo  map[Value]uint32 // containers by pointer, strings and globals by value
	depth int
}

// globalName keys the memo for globals: every mention of one is the same object.
type globalName struct{ module, name string }

func (e *encoder) value(v Value) error {
	if e.depth++; e.depth > encodeDepth {
		return fault.New(fault.Resource, "a value nests deeper than %d", encodeDepth)
	}
	defer func() { e.depth-- }()
	switch v := v.(type) {
	case nil:
		e.op(opNone)
	case bool:
		if v {
			e.op(opNewTrue)
		} else {
			e.op(opNewFalse)
		}
	case int:
		e.int(int64(v))
	case int64:
		e.int(v)
	case *big.Int:
		e.long(v)
	case float64:
		e.op(opBinFloat)
		e.out = binary.BigEndian.AppendUint64(e.out, math.Float64bits(v))
	case string:
		e.string(v)
	case Bytes:
		return e.bytes(v)
	case *ByteArray:
		return e.shared(v, func() error {
			return e.call(&Global{Module: "builtins", Name: "bytearray"}, NewTuple(Bytes(v.Data)))
		})
	case *Tuple:
		return e.tuple(v)
	case *List:
		return e.container(v, opEmptyList, func() error { return e.items(v.Items) })
	case *Dict:
		return e.container(v, opEmptyDict, func() error { return e.pairs(v.Pairs) })
	case *Set:
		name := "set"
		if v.Frozen {
			name = "frozenset"
		}
		return e.shared(v, func() error {
			return e.call(&Global{Module: "builtins", Name: name}, NewTuple(&List{Items: v.Items}))
		})
	case *Global:
		return e.global(v)
	case *Object:
		return e.object(v)
	case *Persistent:
		return e.persistent(v)
	default:
		return e.replaced(v)
	}
	return nil
}

func (e *encoder) op(code byte) { e.out = append(e.out, code) }

// shared writes a value once: again, it is fetched from the memo.
func (e *encoder) shared(v Value, write func() error) error {
	if e.get(v) {
		return nil
	}
	if err := write(); err != nil {
		return err
	}
	e.put(v)
	return nil
}

// container writes a mutable container; it is in the memo before its contents,
// which may lead back to it.
func (e *encoder) container(v Value, empty byte, contents func() error) error {
	if e.get(v) {
		return nil
	}
	e.op(empty)
	e.put(v)
	return contents()
}

func (e *encoder) get(v Value) bool {
	i, ok := e.memo[v]
	if !ok {
		return false
	}
	if i < 1<<8 {
		e.out = append(e.out, opBinGet, byte(i))
	} else {
		e.op(opLongBinGet)
		e.out = binary.LittleEndian.AppendUint32(e.out, i)
	}
	return true
}

func (e *encoder) put(v Value) {
	i := uint32(len(e.memo))
	e.memo[v] = i
	switch {
	case e.opts.Protocol >= 4:
		e.op(opMemoize)
	case i < 1<<8:
		e.out = append(e.out, opBinPut, byte(i))
	default:
		e.op(opLongBinPut)
		e.out = binary.LittleEndian.AppendUint32(e.out, i)
	}
}

func (e *encoder) int(n int64) {
	switch {
	case n >= 0 && n < 1<<8:
		e.out = append(e.out, opBinInt1, byte(n))
	case n >= 0 && n < 1<<16:
		e.op(opBinInt2)
		e.out = binary.LittleEndian.AppendUint16(e.out, uint16(n))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		e.op(opBinInt)
		e.out = binary.LittleEndian.AppendUint32(e.out, uint32(int32(n)))
	default:
		e.long(big.NewInt(n))
	}
}

// long writes the shortest two's complement form, little-endian.
func (e *encoder) long(n *big.Int) {
	length := 0
	if n.Sign() != 0 {
		// One bit more than the magnitude, for the sign; a negative power of two
		// needs none.
		bits := n.BitLen() + 1
		if n.Sign() < 0 && new(big.Int).Neg(n).TrailingZeroBits() == uint(n.BitLen()-1) {
			bits--
		}
		length = (bits + 7) / 8
	}
	twos := new(big.Int).Set(n)
	if n.Sign() < 0 {
		twos.Add(twos, new(big.Int).Lsh(big.NewInt(1), uint(8*length)))
	}
	b := twos.FillBytes(make([]byte, length))
	if length < 1<<8 {
		e.out = append(e.out, opLong1, byte(length))
	} else {
		e.op(opLong4)
		e.out = binary.LittleEndian.AppendUint32(e.out, uint32(length))
	}
	for i := range b {
		e.op(b[len(b)-1-i])
	}
}

func (e *encoder) string(s string) {
	if e.get(s) {
		return
	}
	if e.opts.Protocol >= 4 && len(s) < 1<<8 {
		e.out = append(e.out, opShortUnicode, byte(len(s)))
	} else {
		e.op(opBinUnicode)
		e.out = binary.LittleEndian.AppendUint32(e.out, uint32(len(s)))
	}
	e.out = append(e.out, s...)
	e.put(s)
}

// bytes writes bytes; protocol 2 has none, so CPython encodes a string whose
// code points are the bytes.
func (e *encoder) bytes(b []byte) error {
	if e.opts.Protocol >= 3 {
		if len(b) < 1<<8 {
			e.out = append(e.out, opShortBinBytes, byte(len(b)))
		} else {
			e.op(opBinBytes)
			e.out = binary.LittleEndian.AppendUint32(e.out, uint32(len(b)))
		}
		e.out = append(e.out, b...)
		return nil
	}
	if len(b) == 0 {
		return e.call(&Global{Module: "builtins", Name: "bytes"}, emptyTuple)
	}
	var text strings.Builder
	for _, c := range b {
		text.WriteRune(rune(c))
	}
	return e.call(&Global{Module: "_codecs", Name: "encode"}, NewTuple(text.String(), "latin1"))
}

func (e *encoder) tuple(t *Tuple) error {
	if len(t.Items) == 0 {
		e.op(opEmptyTuple)
		return nil
	}
	if e.get(t) {
		return nil
	}
	if len(t.Items) > 3 {
		e.op(opMark)
	}
	for _, item := range t.Items {
		if err := e.value(item); err != nil {
			return err
		}
	}
	if _, ok := e.memo[t]; ok {
		// The tuple contains itself, through something mutable, and is written by
		// now: drop the items and fetch it.
		if len(t.Items) > 3 {
			e.op(opPopMark)
		} else {
			for range t.Items {
				e.op(opPop)
			}
		}
		e.get(t)
		return nil
	}
	if len(t.Items) > 3 {
		e.op(opTuple)
	} else {
		e.op(opTuple1 + byte(len(t.Items)-1))
	}
	e.put(t)
	return nil
}

func (e *encoder) items(items []Value) error {
	for len(items) > 0 {
		n := min(len(items), batch)
		if n > 1 {
			e.op(opMark)
		}
		for _, item := range items[:n] {
			if err := e.value(item); err != nil {
				return err
			}
		}
		e.op(either(n > 1, opAppends, opAppend))
		items = items[n:]
	}
	return nil
}

func (e *encoder) pairs(pairs []Pair) error {
	for len(pairs) > 0 {
		n := min(len(pairs), batch)
		if n > 1 {
			e.op(opMark)
		}
		for _, p := range pairs[:n] {
			if err := e.value(p.Key); err != nil {
				return err
			}
			if err := e.value(p.Value); err != nil {
				return err
			}
		}
		e.op(either(n > 1, opSetItems, opSetItem))
		pairs = pairs[n:]
	}
	return nil
}

func either(first bool, a, b byte) byte {
	if first {
		return a
	}
	return b
}

// global writes a global under its Python 2 module, as CPython does below
// protocol 3.
func (e *encoder) global(g *Global) error {
	key := globalName{g.Module, g.Name}
	if e.get(key) {
		return nil
	}
	module := g.Module
	if e.opts.Protocol < 3 {
		for old, py3 := range renamed {
			if py3 == module {
				module = old
			}
		}
	}
	if strings.Contains(module+g.Name, "\n") {
		return fault.New(fault.Corrupt, "the global %q.%q has a newline in its name", g.Module, g.Name)
	}
	if e.opts.Protocol >= 4 {
		e.string(module)
		e.string(g.Name)
		e.op(opStackGlobal)
	} else {
		e.op(opGlobal)
		e.out = append(e.out, module+"\n"+g.Name+"\n"...)
	}
	e.put(key)
	return nil
}

// call writes callable(*args).
func (e *encoder) call(callable *Global, args *Tuple) error {
	if err := e.global(callable); err != nil {
		return err
	}
	if err := e.value(args); err != nil {
		return err
	}
	e.op(opReduce)
	return nil
}

func (e *encoder) object(o *Object) error {
	if e.get(o) {
		return nil
	}
	args := o.Args
	if args == nil {
		args = emptyTuple
	}
	if err := e.global(o.Class); err != nil {
		return err
	}
	if err := e.value(args); err != nil {
		return err
	}
	if _, ok := e.memo[o]; ok {
		return fault.New(fault.Unsupported, "an object of %s.%s is among its own arguments", o.Class.Module, o.Class.Name)
	}
	e.op(either(o.New, opNewObj, opReduce))
	e.put(o)
	if o.Extra != nil {
		if err := e.items(o.Extra.Items); err != nil {
			return err
		}
		if err := e.pairs(o.Extra.Pairs); err != nil {
			return err
		}
	}
	if o.HasState {
		if err := e.value(o.State); err != nil {
			return err
		}
		e.op(opBuild)
	}
	return nil
}

func (e *encoder) persistent(p *Persistent) error {
	if err := e.value(p.ID); err != nil {
		return err
	}
	e.op(opBinPersID)
	return nil
}

// replaced writes what the Replace hook makes of v. The same v, by pointer, is
// asked about once.
func (e *encoder) replaced(v Value) error {
	if e.opts.Replace == nil {
		return fault.New(fault.Internal, "a %T cannot be pickled", v)
	}
	if e.get(v) {
		return nil
	}
	r, err := e.opts.Replace(v)
	if err != nil {
		return err
	}
	if err := e.value(r); err != nil {
		return err
	}
	e.put(v)
	return nil
}
