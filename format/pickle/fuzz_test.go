package pickle

import (
	"errors"
	"runtime"
	"testing"

	"gefenckpt/internal/fault"
)

// FuzzDecode looks for pickles that panic, hold more memory than they may, are
// refused without a reason, or are not the same when written and read again.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"testdata/real/*", "testdata/python/*.pickle", "testdata/written/*.pickle"} {
		for _, file := range files(f, pattern) {
			f.Add(load(f, file))
		}
	}
	for _, bomb := range bombs {
		f.Add([]byte(bomb(1 << 10)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// What is written nests deeper than what was read, where sets are calls.
		v, err := decodeWithin(t, data, Options{Limits: Limits{Depth: 200}})
		if err != nil {
			var f *fault.Error
			if !errors.As(err, &f) || f.Message == "" || f.Offset < 0 || f.Offset > int64(len(data)) {
				t.Fatalf("refused without a place: %v", err)
			}
			switch f.Kind {
			case fault.Corrupt, fault.Resource, fault.Unsupported:
			default:
				t.Fatalf("refused as %v: %v", f.Kind, err)
			}
			return
		}
		for _, protocol := range []int{2, 4} {
			again, err := Append(nil, v, EncodeOptions{Protocol: protocol})
			if err != nil && fault.KindOf(err) == fault.Resource {
				continue // a value that contains itself as Python's cannot
			}
			if err != nil {
				t.Fatal(err)
			}
			w, err := Decode(again, Options{Limits: Limits{Depth: deepest}})
			if err != nil {
				t.Fatalf("protocol %d: %v", protocol, err)
			}
			if !Equal(v, w) {
				t.Fatalf("protocol %d: the value read back differs", protocol)
			}
		}
	})
}

// decodeWithin decodes and checks how much memory that took: what was allocated
// in all, and only if that is much, what of it stays.
func decodeWithin(t *testing.T, data []byte, o Options) (Value, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v, err := Decode(data, o)
	runtime.ReadMemStats(&after)
	if after.TotalAlloc-before.TotalAlloc <= allowed(data) {
		return v, err
	}
	v = nil
	if live := peak(func() { v, err = Decode(data, o) }); live > allowed(data) {
		t.Fatalf("%d bytes live for a pickle of %d, want at most %d", live, len(data), allowed(data))
	}
	return v, err
}
