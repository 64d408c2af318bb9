package dcp

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/fstest"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
)

// manyItems is the tree of a directory of n items, two in five of them tensors in
// two chunks.
func manyItems(n int) *pickle.Dict {
	part := tensor.FromFloat32s([]int64{1, 2}, []float32{1, 2})
	state, groups := pickle.NewDict(), pickle.NewDict()
	for i := 0; i < n; i += 5 {
		name := fmt.Sprintf("model.layers.%d.self_attn.q_proj.weight", i/5)
		state.Set(name, pickle.NewDict("momentum", &Sharded{Parts: []*tensor.Tensor{part, part}}, "second_moment", &Sharded{Parts: []*tensor.Tensor{part, part}}))
		groups.Set(name, pickle.NewDict("step", int64(i), "vmean_step", int64(i), "device_type", "cpu"))
	}
	return pickle.NewDict("optimizer", pickle.NewDict("state", state, "signatures", groups))
}

const benchItems = 100_000

func BenchmarkReadMetadata(b *testing.B) {
	w, err := NewWriter(manyItems(benchItems), WriteOptions{})
	if err != nil {
		b.Fatal(err)
	}
	var data bytes.Buffer
	if err := emit(&data, w.m); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(data.Len()))
	b.ReportAllocs()
	var m *Metadata
	for b.Loop() {
		if m, err = ReadMetadata(data.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
	with := heap()
	runtime.KeepAlive(m)
	m = nil
	b.ReportMetric(float64(with-heap())/benchItems, "kept-B/item")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchItems, "ns/item")
}

// heap is what is live.
func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func BenchmarkOpen(b *testing.B) {
	w, err := NewWriter(manyItems(benchItems), WriteOptions{})
	if err != nil {
		b.Fatal(err)
	}
	m := fstest.MapFS{}
	for i, f := range w.Files() {
		var out bytes.Buffer
		if err := w.WriteFile(i, &out); err != nil {
			b.Fatal(err)
		}
		m[f.Name] = &fstest.MapFile{Data: out.Bytes()}
	}
	var data bytes.Buffer
	if err := w.WriteMetadata(&data); err != nil {
		b.Fatal(err)
	}
	m[metadataName] = &fstest.MapFile{Data: data.Bytes()}
	b.ReportAllocs()
	for b.Loop() {
		d, err := OpenFS(m, "mem")
		if err != nil || len(d.Faults) > 0 {
			b.Fatal(err, d)
		}
		d.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchItems, "ns/item")
}

func BenchmarkWrite(b *testing.B) {
	root := manyItems(benchItems)
	b.ReportAllocs()
	for b.Loop() {
		w, err := NewWriter(root, WriteOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for i := range w.Files() {
			if err := w.WriteFile(i, io.Discard); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.WriteMetadata(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchItems, "ns/item")
}
