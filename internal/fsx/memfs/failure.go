package memfs

import "errors"

// Failure is what goes wrong.
type Failure struct {
	// At is the operation that fails, counted from 1 by Ops; 0 is none.
	At int
	// Err is what it fails with.
	Err error
	// Short makes a write that fails report its half without an error.
	Short bool
	// After makes every operation after it fail too.
	After bool
}

// ErrPower is the error of all operations after a power cut.
var ErrPower = errors.New("the power is cut")

// PowerCut lets no operation happen from number k on.
func PowerCut(k int) Failure { return Failure{At: k, Err: ErrPower, After: true} }

// Fail sets what goes wrong from now on.
func (m *FS) Fail(f Failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failure = f
}

// Ops is how many operations there were.
func (m *FS) Ops() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops
}

// step counts an operation; the error is that which it is to fail with.
func (m *FS) step() error {
	m.ops++
	f := m.failure
	if f.At != 0 && (m.ops == f.At || f.After && m.ops > f.At) {
		return f.Err
	}
	return nil
}
