// Package report has what users read: the JSON envelope that every command
// shares, the inspection of a checkpoint, and their tables.
package report

import (
	"encoding/json"
	"io"

	"gefenckpt/internal/fault"
)

// Schema is the version of the JSON objects. Fields are only ever added.
const Schema = 1

// Envelope is embedded in the JSON object of every command.
type Envelope struct {
	Schema   int     `json:"schema"`
	Command  string  `json:"command"`
	Warnings []Fault `json:"warnings"`
	Errors   []Fault `json:"errors"`
}

// NewEnvelope is the envelope of a command that has found nothing yet.
func NewEnvelope(command string) Envelope {
	return Envelope{Schema: Schema, Command: command, Warnings: []Fault{}, Errors: []Fault{}}
}

// Warn adds warnings.
func (e *Envelope) Warn(faults ...*fault.Error) { e.Warnings = appendFaults(e.Warnings, faults) }

// Fail adds errors.
func (e *Envelope) Fail(faults ...*fault.Error) { e.Errors = appendFaults(e.Errors, faults) }

// Fault is a fault as it stands in JSON.
type Fault struct {
	Code    string `json:"code"` // the kind's name, see fault.Kind
	Path    string `json:"path,omitempty"`
	Item    string `json:"item,omitempty"`
	Offset  *int64 `json:"offset,omitempty"` // bytes from the start of path
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func appendFaults(to []Fault, faults []*fault.Error) []Fault {
	for _, f := range faults {
		r := Fault{Code: f.Kind.String(), Path: f.Path, Item: f.Item, Message: f.Message, Hint: f.Hint}
		if f.Offset != fault.NoOffset {
			offset := f.Offset
			r.Offset = &offset
		}
		to = append(to, r)
	}
	return to
}

// WriteJSON prints v as one indented JSON object and a newline.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
