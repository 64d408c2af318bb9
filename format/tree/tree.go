// Package tree has what every container gives: a tree of [pickle.Value] with
// *tensor.Tensor leaves whose elements stay on disk and [Lazy] leaves whose
// values do.
package tree

import "gefenckpt/format/pickle"

// Lazy is a value that is read when it is first needed: a bytes item of a DCP
// directory. It is not safe for concurrent use.
type Lazy struct {
	Load   func() (pickle.Value, error)
	value  pickle.Value
	err    error
	loaded bool
}

// Value reads the value, once.
func (l *Lazy) Value() (pickle.Value, error) {
	if !l.loaded {
		l.value, l.err = l.Load()
		l.loaded, l.Load = true, nil
	}
	return l.value, l.err
}

// Resolve returns v, or what a *Lazy holds.
func Resolve(v pickle.Value) (pickle.Value, error) {
	if l, ok := v.(*Lazy); ok {
		return l.Value()
	}
	return v, nil
}
