package convert

import (
	"path/filepath"
	"testing"

	"gefenckpt/internal/heap"
)

// FuzzPartRecord reads any bytes as the record of a part, in bounded memory: an
// error, or names of files that lie in the part's directory.
func FuzzPartRecord(f *testing.F) {
	f.Add([]byte(`{"part":1,"ranks":[{"rank":0,"codebook":null,"gap":0,"shards":[{"period":4,"operation":1,"error":{"Momentum":1e-9},"measured":true}]}],"files":[{"name":"payload-0.pt","bytes":3}]}`))
	f.Add([]byte(`{"part":2}`))
	f.Add([]byte(`{"part":1,"files":[{"name":"../x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var rec *partRecord
		var err error
		// A rank of two bytes in JSON has a codebook of 1 KiB.
		heap.Within(t, 2048*int64(len(data))+1<<20, func() { rec, err = decodeRecord(data, 1) })
		if err != nil {
			return
		}
		if rec.Part != 1 {
			t.Errorf("it is of part %d", rec.Part)
		}
		for _, file := range rec.Files {
			if file.Bytes < 0 || filepath.Dir(file.Name) != "." {
				t.Errorf("the file %q of %d bytes is taken", file.Name, file.Bytes)
			}
		}
	})
}
