package fsx

import (
	"bytes"
	"testing"

	"gefenckpt/internal/heap"
)

// A journal of any bytes is read without a panic, in memory bounded by its
// length, and what is taken from it is taken again from its whole lines alone.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"pins":[{"what":"--to","value":"4"}]}` + "\n" + `{"name":"a","bytes":3,"sha256":"00"}` + "\n" + `{"name":"a","bytes":5,"done":true}` + "\n"))
	f.Add([]byte(`{"pins":[]}` + "\n" + `{"name":"../a","bytes":3}` + "\n"))
	f.Add([]byte(`{"pins":[]}` + "\n" + `{"name":"a","bytes":-3}` + "\n{"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var j *journal
		heap.Within(t, 64*int64(len(data))+1<<20, func() { j = readJournal(bytes.NewReader(data)) })
		if j == nil {
			return
		}
		for name, p := range j.files {
			if name == "" || p.Bytes < 0 || bytes.ContainsRune([]byte(name), '/') {
				t.Errorf("the file %q of %d bytes is taken", name, p.Bytes)
			}
		}
		again := readJournal(bytes.NewReader(data[:j.bytes]))
		if again == nil || len(again.files) != len(j.files) || again.bytes != j.bytes {
			t.Errorf("its whole lines say %+v, and all of it %+v", again, j)
		}
	})
}
