package dcp

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/fstest"
	"time"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"

	"github.com/klauspost/compress/zstd"
)

// bounded fails a test if f has more than limit bytes live at a time. What f
// allocates in all is no less, and mostly settles it; else f runs once more and
// its live memory is looked at while it does.
func bounded(t testing.TB, limit int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if after.TotalAlloc-before.TotalAlloc <= uint64(limit) {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	runtime.GC()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	base := live[0].Value.Uint64()
	done, peak := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		for {
			metrics.Read(live)
			most = max(most, live[0].Value.Uint64())
			select {
			case <-done:
				peak <- most
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
	}()
	f()
	close(done)
	if most := <-peak; most > base+uint64(limit) {
		t.Errorf("%d bytes of memory are in use at a time, over %d", most-base, limit)
	}
}

// FuzzMetadata reads metadata files: typed errors, memory bounded by the length
// of the file, and a model that is written and read again the same.
func FuzzMetadata(f *testing.F) {
	paths, err := filepath.Glob("testdata/torch-*/*/.metadata")
	if err != nil || len(paths) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m *Metadata
		var err error
		bounded(t, 64*len(data)+1<<20, func() { m, err = ReadMetadata(data) })
		if err != nil {
			typed(t, err)
			return
		}
		for _, fault := range m.Faults {
			typed(t, fault)
		}
		d, err := OpenFS(fstest.MapFS{metadataName: {Data: data}}, "mem")
		if err != nil {
			t.Fatal("it opens only without a directory: ", err)
		}
		defer d.Close()
		if len(m.Faults) > 0 || !m.Planned {
			return
		}
		if again := rewrite(t, m); summary(again) != summary(m) {
			t.Errorf("written and read again it is\n%s\nand was\n%s", summary(again), summary(m))
		}
	})
}

// archive is a torch.save archive of a value.
func archive(tb testing.TB, v pickle.Value) []byte {
	tb.Helper()
	file, err := torchfile.New(v, torchfile.WriteOptions{Prefix: "archive"})
	if err != nil {
		tb.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := file.WriteTo(&out); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// FuzzItem reads a file with one item: a compressed tensor, a compressed value or
// a tensor of a safetensors blob.
func FuzzItem(f *testing.F) {
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	values := tensor.FromFloat32s([]int64{2, 3}, []float32{0, 1, 2, 3, 4, 5})
	packed := encoder.EncodeAll(archive(f, values), nil)
	f.Add(packed, false)
	f.Add(encoder.EncodeAll(archive(f, int64(5)), nil), false)
	f.Add(frames(encoder, archive(f, values)), false)
	f.Add(encoder.EncodeAll(make([]byte, 10<<20), nil), false)
	f.Add([]byte("\x41\x00\x00\x00\x00\x00\x00\x00"+`{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}        `+string(make([]byte, 24))), true)
	for _, dir := range []string{"safetensors", "safetensors-1", "zstd"} {
		data, err := os.ReadFile("testdata/torch-2.15/" + dir + "/__0_0.distcp")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, dir != "zstd")
	}
	f.Fuzz(func(t *testing.T, data []byte, blob bool) {
		m := &Metadata{Files: []string{"f"}, transforms: [][]string{nil, {"stream.zstd/1"}}, parts: []pickle.Value{"w", "n"}, paths: []int32{0, 1}, Planned: true}
		place := Place{Length: int64(len(data)), transforms: 1}
		if blob {
			place.transforms = 0
		}
		for i, item := range []Item{
			{FQN: "w", Tensor: true, DType: tensor.Float32, Shape: []int64{2, 3}, Chunks: []Chunk{{[]int64{0, 0}, []int64{2, 3}, place}}},
			{FQN: "n", Chunks: []Chunk{{Place: place}}},
		} {
			item.path, item.depth = int32(i), 1
			m.Items = []Item{item}
			var out bytes.Buffer
			if err := emit(&out, m); err != nil {
				t.Fatal(err)
			}
			d, err := OpenFS(fstest.MapFS{metadataName: {Data: out.Bytes()}, "f": {Data: data}}, "mem")
			if err != nil {
				t.Fatal(err)
			}
			// What the decoder takes, what is kept of the item, and its pickle.
			limit := 24<<20 + 64*(archiveOverhead+len(data))
			if !item.Tensor {
				limit = 24<<20 + 64*(bytesOverhead+bytesRatio*len(data))
			}
			bounded(t, limit, func() { err = everything(d) })
			if err != nil {
				typed(t, err)
			}
			d.Close()
		}
	})
}

// frames compresses data as three frames.
func frames(encoder *zstd.Encoder, data []byte) []byte {
	out := encoder.EncodeAll(data[:100], nil)
	out = encoder.EncodeAll(data[100:101], out)
	return encoder.EncodeAll(data[101:], out)
}
