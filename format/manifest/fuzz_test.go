package manifest

import (
	"bytes"
	"testing"

	"gefenckpt/internal/fault"
	"gefenckpt/internal/heap"
)

// FuzzManifest reads any bytes as a manifest: a Corrupt fault, or one whose
// encoding reads as the same; in bounded memory.
func FuzzManifest(f *testing.F) {
	sound := Manifest{Schema: 1, Tool: "gefenckpt", Files: []File{{Name: "a.pt", Bytes: 3, SHA256: "00"}},
		Result: Result{Parameters: []Parameter{{Name: "w", Ranks: []Shard{{Rank: 1, Regime: "keep", Period: 4}}}}}}
	data, err := sound.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte(`{"schema":1,"files":[{"name":"../x"}]}`))
	f.Add([]byte(`{"schema":1,"result":{"parameters":[{},{},{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m *Manifest
		var err error
		heap.Within(t, 64*int64(len(data))+1<<20, func() { m, err = Decode(data) })
		if err != nil {
			if fault.KindOf(err) != fault.Corrupt || fault.Of(err).Hint == "" {
				t.Errorf("a %v fault: %v", fault.KindOf(err), err)
			}
			return
		}
		once, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(once)
		if err != nil {
			t.Fatalf("what it encodes to is refused: %v", err)
		}
		if twice, err := again.Encode(); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("it encodes to\n%s\nand that to\n%s (%v)", once, twice, err)
		}
	})
}
