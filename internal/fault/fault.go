// Package fault has the one error type that reaches a user: what is wrong
// (file, item, offset), why (what was expected and found) and what to do next.
//
// Its Kind decides the exit code of the command; see [Kind.ExitCode].
package fault

import (
	"errors"
	"fmt"
	"strings"
)

// Kind sorts faults by what the user can do about them.
type Kind uint8

// The kinds, each with the exit code of a command that ends with it.
const (
	Internal    Kind = iota // 1: unexpected failure
	Usage                   // 2: usage or configuration
	Incomplete              // 3: a rank, a file or .metadata is missing
	Corrupt                 // 4: bytes contradict each other or their checksum
	Unsupported             // 5: a form or version that is known, or unknown, but not handled
	Unfaithful              // 6: verification failed
	Output                  // 7: the output exists or cannot be committed
	Resource                // 8: out of memory, disk, or past a limit
	Interrupted             // 130: stopped by the user
)

var kinds = [...]struct {
	name string
	exit int
}{
	Internal:    {"internal", 1},
	Usage:       {"usage", 2},
	Incomplete:  {"incomplete", 3},
	Corrupt:     {"corrupt", 4},
	Unsupported: {"unsupported", 5},
	Unfaithful:  {"unfaithful", 6},
	Output:      {"output", 7},
	Resource:    {"resource", 8},
	Interrupted: {"interrupted", 130},
}

// String is the kind's name as it stands in JSON reports.
func (k Kind) String() string { return kinds[k].name }

// ExitCode is the process exit code that belongs to the kind.
func (k Kind) ExitCode() int { return kinds[k].exit }

// NoOffset is the Offset of a fault that has no place in a file.
const NoOffset = -1

// Error is one fault. Message says what is wrong and why; Path, Item and
// Offset say where; Hint says what to do next. All but Kind and Message may be
// empty (Offset: NoOffset).
type Error struct {
	Kind    Kind
	Path    string // file or directory
	Item    string // key path, FQN, archive record or rank inside Path
	Offset  int64  // byte offset in Path, or NoOffset
	Message string
	Hint    string
	Err     error // what caused it, for errors.Is and errors.As
}

// New makes a fault without a place. Message takes fmt verbs; a %w operand
// becomes the fault's cause.
func New(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Offset: NoOffset, Message: err.Error(), Err: errors.Unwrap(err)}
}

// At returns a copy of e at a byte offset.
func (e *Error) At(offset int64) *Error {
	c := *e
	c.Offset = offset
	return &c
}

// In returns a copy of e within item, which is put before the item e already has.
func (e *Error) In(item string) *Error {
	c := *e
	switch {
	case c.Item == "":
		c.Item = item
	case item != "":
		c.Item = item + ": " + c.Item
	}
	return &c
}

// File returns a copy of e in the file path, unless e already names one.
func (e *Error) File(path string) *Error {
	c := *e
	if c.Path == "" {
		c.Path = path
	}
	return &c
}

// WithHint returns a copy of e that says what to do next.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// Error is the fault in one line: path: item: offset: message; hint.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	if e.Item != "" {
		b.WriteString(e.Item + ": ")
	}
	if e.Offset != NoOffset {
		fmt.Fprintf(&b, "at byte %d: ", e.Offset)
	}
	b.WriteString(e.Message)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Of returns the fault in err's chain. An error without one is Internal.
func Of(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: Internal, Offset: NoOffset, Message: err.Error(), Err: err}
}

// KindOf is the kind of the fault in err's chain, Internal if there is none.
func KindOf(err error) Kind { return Of(err).Kind }

// Within places err: it returns the fault in err's chain with item put before
// its own and with path where it names none. It returns nil for nil.
func Within(err error, path, item string) error {
	if err == nil {
		return nil
	}
	return Of(err).In(item).File(path)
}
