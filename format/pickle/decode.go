package pickle

import (
	"gefenckpt/internal/fault"
)

// Options steer Decode. The zero value decodes with the default limits and
// keeps everything.
type Options struct {
	Limits
	// Persistent turns a persistent id into a value; nil keeps *Persistent.
	// offset is that of the opcode.
	Persistent func(id Value, offset int64) (Value, error)
	// Reduce is called for each call of a class or function (REDUCE, and INST and
	// OBJ with arguments) with the object just made, and returns what takes its
	// place, the object itself to keep it. A value that is no kind of Value loses
	// what a BUILD sets later. It is not asked about calls that stand for bytes,
	// bytearrays and sets.
	Reduce func(o *Object) (Value, error)
	// Build is called after each BUILD of an object; it may replace o.State by
	// something more compact, and empty the containers that it no longer needs.
	Build func(o *Object) error
}

// Decode reads the one pickle that data holds. Nothing that it returns refers to
// data.
//
// Errors are faults with the byte offset of the opcode: Corrupt for what is not a
// pickle, Resource past a limit, Unsupported for opcodes outside the allow-list
// and objects made by calling other objects.
func Decode(data []byte, o Options) (Value, error) {
	v, n, err := DecodePrefix(data, o)
	if err == nil && n < len(data) {
		return nil, fault.New(fault.Corrupt, "%d bytes follow the end of the pickle", len(data)-n).At(int64(n))
	}
	return v, err
}

// DecodePrefix reads the pickle that data begins with and returns its length in
// bytes too.
func DecodePrefix(data []byte, o Options) (Value, int, error) {
	limits := o.withDefaults(len(data))
	m := &machine{
		scanner: scanner{data: data},
		opts:    o,
		limits:  limits,
		memo:    scanMemo(data, limits.Memo),
		keys:    map[Value]map[Value]struct{}{},
	}
	if err := m.run(); err != nil {
		return nil, 0, err
	}
	return m.stack[0], m.pos, nil
}
