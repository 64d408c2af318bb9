package pickle

import (
	"encoding/binary"
	"math/big"
	"reflect"

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
// less, and the memo ends cycles.
const encodeDepth = 2 * deepest

// Append appends the pickle of v to dst, much as CPython's pickle writes it: what
// v shares by pointer is written once and fetched again, equal values give equal
// bytes, and cycles are kept. Loading it never calls more than v's own globals
// and those that bytes, bytearrays and sets need in protocol 2.
//
// Errors are faults: Resource for values that nest too deep, Internal for those
// that no pickle can hold, and whatever Replace returns.
func Append(dst []byte, v Value, o EncodeOptions) ([]byte, error) {
	switch o.Protocol {
	case 0:
		o.Protocol = 2
	case 2, 4:
	default:
		return nil, fault.New(fault.Internal, "pickle protocol %d is not written, only 2 and 4", o.Protocol)
	}
	e := &encoder{out: dst, opts: o, memo: map[Value]uint32{}}
	e.out = append(e.out, opProto, byte(o.Protocol))
	if err := e.value(v); err != nil {
		return nil, err
	}
	return append(e.out, opStop), nil
}

type encoder struct {
	out  []byte
	opts EncodeOptions
	// memo has the containers, by pointer, bytes by bytesAt, strings by value, and
	// globals by pointer and by className: every mention of one is the same.
	memo  map[Value]uint32
	next  uint32 // memo entry
	depth int
	vain  int // items that were written and dropped, see again
}

// bytesAt identifies bytes that are not empty.
type bytesAt struct {
	first  *byte
	length int
}

// value writes one value, and leaves it on top of the stack of who reads it.
func (e *encoder) value(v Value) error {
	if e.depth++; e.depth > encodeDepth {
		return fault.New(fault.Resource, "a value nests deeper than %d, or a set is part of itself", encodeDepth)
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
	default:
		return e.remembered(v)
	}
	return nil
}

// remembered writes values that take more than a few bytes, most of which are
// fetched from the memo when they come again.
func (e *encoder) remembered(v Value) error {
	switch v := v.(type) {
	case float64:
		e.float(v)
		return nil
	case string:
		return e.string(v)
	case Bytes:
		return e.bytes(v)
	case *Persistent:
		return e.persistent(v)
	case *Global:
		return e.global(v)
	}
	if !isValue(v) {
		return e.replaced(v)
	}
	if e.get(v) {
		return nil
	}
	switch v := v.(type) {
	case *Tuple:
		return e.tuple(v)
	case *List:
		e.empty(v, opEmptyList)
		return e.items(v.Items)
	case *Dict:
		e.empty(v, opEmptyDict)
		return e.pairs(v.Pairs)
	case *Set:
		return e.set(v)
	case *ByteArray:
		return e.call(v, byteArrayClass, NewTuple(Bytes(v.Data)))
	case *Object:
		return e.object(v)
	}
	e.long(v.(*big.Int))
	return nil
}

// isValue says whether v is one of the kinds of Value.
func isValue(v Value) bool {
	switch v.(type) {
	case nil, bool, int64, *big.Int, float64, string, Bytes, *ByteArray, *Tuple, *List, *Dict, *Set, *Global, *Object, *Persistent:
		return true
	}
	return false
}

func (e *encoder) op(code byte) { e.out = append(e.out, code) }

// empty begins a container that is in the memo before its contents, which may
// lead back to it.
func (e *encoder) empty(v Value, code byte) {
	e.op(code)
	e.put(v)
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

// put remembers the value on top of the reader's stack as v.
func (e *encoder) put(v Value) {
	i := e.next
	e.memo[v] = i
	e.next++
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

// mostVain is how many items of values that contain themselves may be written
// again.
const mostVain = 1 << 20

// again is asked when the contents of v are written, of n items. It reports
// whether v itself was written on the way, because it is part of a container in
// it, as CPython does: the items are then to be dropped and v to be fetched.
func (e *encoder) again(v Value, n int) (bool, error) {
	if _, ok := e.memo[v]; !ok {
		return false, nil
	}
	if e.vain += n; e.vain > mostVain {
		return true, fault.New(fault.Resource, "values that contain themselves would be written more than %d times", mostVain)
	}
	return true, nil
}

func (e *encoder) tuple(t *Tuple) error {
	n := len(t.Items)
	if n == 0 {
		e.op(opEmptyTuple)
		return nil
	}
	if n > 3 {
		e.op(opMark)
	}
	if err := e.values(t.Items); err != nil {
		return err
	}
	if written, err := e.again(t, n); written {
		if n > 3 {
			e.op(opPopMark)
		} else {
			e.pop(n)
		}
		e.get(t)
		return err
	}
	if n > 3 {
		e.op(opTuple)
	} else {
		e.op(opTuple1 + byte(n-1))
	}
	e.put(t)
	return nil
}

func (e *encoder) pop(n int) {
	for range n {
		e.op(opPop)
	}
}

func (e *encoder) values(items []Value) error {
	for _, item := range items {
		if err := e.value(item); err != nil {
			return err
		}
	}
	return nil
}

// items appends to the list or object on top of the reader's stack.
func (e *encoder) items(items []Value) error {
	for len(items) > 0 {
		n := min(len(items), batch)
		if n > 1 {
			e.op(opMark)
		}
		if err := e.values(items[:n]); err != nil {
			return err
		}
		if n > 1 {
			e.op(opAppends)
		} else {
			e.op(opAppend)
		}
		items = items[n:]
	}
	return nil
}

// pairs sets entries of the dict or object on top of the reader's stack.
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
		if n > 1 {
			e.op(opSetItems)
		} else {
			e.op(opSetItem)
		}
		pairs = pairs[n:]
	}
	return nil
}

func (e *encoder) set(s *Set) error {
	switch {
	case e.opts.Protocol < 4 && s.Frozen:
		return e.call(s, frozenSetClass, NewTuple(NewList(s.Items...)))
	case e.opts.Protocol < 4:
		return e.call(s, setClass, NewTuple(NewList(s.Items...)))
	case s.Frozen:
		return e.frozenSet(s)
	}
	e.empty(s, opEmptySet)
	for items := s.Items; len(items) > 0; {
		n := min(len(items), batch)
		e.op(opMark)
		if err := e.values(items[:n]); err != nil {
			return err
		}
		e.op(opAddItems)
		items = items[n:]
	}
	return nil
}

func (e *encoder) frozenSet(s *Set) error {
	e.op(opMark)
	if err := e.values(s.Items); err != nil {
		return err
	}
	if written, err := e.again(s, len(s.Items)); written {
		e.op(opPopMark)
		e.get(s)
		return err
	}
	e.op(opFrozenSet)
	e.put(s)
	return nil
}

// replaced writes what the Replace hook makes of v. The same v is asked about
// once.
func (e *encoder) replaced(v Value) error {
	if e.opts.Replace == nil {
		return fault.New(fault.Internal, "a %T cannot be pickled", v)
	}
	comparable := reflect.ValueOf(v).Comparable()
	if comparable && e.get(v) {
		return nil
	}
	r, err := e.opts.Replace(v)
	if err != nil {
		return err
	}
	if err := e.value(r); err != nil {
		return err
	}
	if o, ok := r.(*Object); ok && comparable {
		e.memo[v] = e.memo[o] // remembered once, as CPython does
	} else if comparable {
		e.put(v)
	}
	return nil
}
