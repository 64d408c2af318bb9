package fsx

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"gefenckpt/internal/fault"
)

// The journal of a staging says how far its files are durable, so that a later
// run of the same work can go on from there. It is a file of JSON lines in the
// staging directory: the pins first, then a line for each length that a file has
// safely reached. What is behind the last whole line is not counted; a staging
// without a readable journal begins anew.

// Pin is something that must be equal in the run that goes on: an option, the
// version of the tool, the fingerprint of a source file.
type Pin struct {
	What  string `json:"what"`
	Value string `json:"value"`
}

// journalName is the journal's name in the staging directory.
const journalName = "journal.gefenckpt"

// mostJournal is the length of a journal that is read: some 400,000 lines, more
// than the files of any cluster.
const mostJournal = 64 << 20

// line is one line of a journal.
type line struct {
	Pins []Pin `json:"pins,omitempty"`
	progress
}

// progress is what is durable of a staged file.
type progress struct {
	Name   string `json:"name,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of these bytes, hexadecimal
	Done   bool   `json:"done,omitempty"`   // the file has no more
}

// journal is what a dead run's journal says.
type journal struct {
	pins  []Pin
	files map[string]progress
	bytes int64 // of its whole lines
}

// readJournal reads as much of a journal as is well formed. It is nil if there
// are no pins in it.
func readJournal(r io.Reader) *journal {
	data, err := io.ReadAll(io.LimitReader(r, mostJournal+1))
	if err != nil || len(data) > mostJournal {
		return nil
	}
	var j *journal
	for rest := data; ; {
		text, behind, whole := bytes.Cut(rest, []byte("\n"))
		var l line
		if !whole || json.Unmarshal(text, &l) != nil {
			return j
		}
		switch {
		case j == nil && l.Pins == nil:
			return nil
		case j == nil:
			j = &journal{pins: l.Pins, files: map[string]progress{}}
		case l.Bytes < 0 || l.Name == "" || filepath.Base(l.Name) != l.Name || l.Name == journalName:
			return j
		default:
			j.files[l.Name] = l.progress
		}
		rest = behind
		j.bytes = int64(len(data) - len(rest))
	}
}

// differs names the first pin in which a dead run is not this one.
func (j *journal) differs(pins []Pin) error {
	value := func(pins []Pin, what string) (string, bool) {
		i := slices.IndexFunc(pins, func(p Pin) bool { return p.What == what })
		if i < 0 {
			return "none", false
		}
		return pins[i].Value, true
	}
	for _, side := range [][]Pin{pins, j.pins} {
		for _, p := range side {
			then, was := value(j.pins, p.What)
			now, is := value(pins, p.What)
			if was != is || then != now {
				return fault.New(fault.Usage, "the interrupted run was another one: %s was %s then, and is %s now", p.What, then, now).
					WithHint("run it as it was, or without --resume to begin anew")
			}
		}
	}
	return nil
}

// resume takes over what a dead run has staged, and removes what it does not
// vouch for. It reports whether there was anything to take over.
func (s *Staging) resume() (bool, error) {
	path := filepath.Join(s.dir, journalName)
	j, err := s.oldJournal(path)
	if j == nil || err != nil {
		return false, err
	}
	if err := j.differs(s.opts.Pins); err != nil {
		return false, fault.Within(err, s.target, "")
	}
	names, err := s.plainFiles(s.dir)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		p, noted := j.files[name]
		path := filepath.Join(s.dir, name)
		info, err := s.fs.Lstat(path)
		switch {
		case name == journalName:
		case err != nil:
			return false, failure(err, path, "what an interrupted run has left cannot be looked at")
		case noted && info.Mode().IsRegular() && info.Size() >= p.Bytes:
			s.kept[name] = p
			s.keptBytes += p.Bytes
		default:
			if err := s.fs.Remove(path); err != nil {
				return false, failure(err, path, "the file cannot be removed")
			}
		}
	}
	if s.journal, err = s.fs.Append(path, j.bytes); err != nil {
		return false, failure(err, path, "the journal cannot be written on")
	}
	return true, nil
}

func (s *Staging) oldJournal(path string) (*journal, error) {
	switch info, err := s.fs.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, failure(err, path, "the journal cannot be looked at")
	case !info.Mode().IsRegular():
		return nil, nil
	}
	r, err := s.fs.Open(path)
	if err != nil {
		return nil, failure(err, path, "the journal cannot be read")
	}
	defer r.Close()
	return readJournal(r), nil
}

// beginJournal makes the journal of a staging that begins anew.
func (s *Staging) beginJournal() error {
	path := filepath.Join(s.dir, journalName)
	var err error
	if s.journal, err = s.fs.Create(path); err != nil {
		return failure(err, path, "the journal cannot be made")
	}
	pins := s.opts.Pins
	if pins == nil {
		pins = []Pin{}
	}
	return s.note(struct {
		Pins []Pin `json:"pins"`
	}{pins})
}

// note appends a line to the journal. It is not synced: a line that a crash takes
// costs work, and a line that it leaves tells the truth, as the bytes it speaks
// of were synced before. The caller holds s.mu, or is alone.
func (s *Staging) note(l any) error {
	text, err := json.Marshal(l)
	if err == nil {
		_, err = io.Copy(s.journal, bytes.NewReader(append(text, '\n')))
	}
	if err != nil {
		return failure(err, filepath.Join(s.dir, journalName), "writing the journal")
	}
	return nil
}

// dropJournal removes the journal from what is about to be committed.
func (s *Staging) dropJournal() error {
	path := filepath.Join(s.dir, journalName)
	err := s.journal.Close()
	s.journal = nil
	if err == nil {
		err = s.fs.Remove(path)
	}
	if err != nil {
		return failure(err, path, "the journal cannot be removed")
	}
	return nil
}
