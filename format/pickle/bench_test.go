package pickle

import (
	"fmt"
	"testing"
)

// metadataPickle is a pickle like those of torch's distributed checkpoints, with
// one chunk and one storage entry for each of items, in protocol 4 and with the
// memo as CPython writes it.
func metadataPickle(items int) []byte {
	const chunksPerTensor = 8
	p := &metadataWriter{encoder: encoder{opts: EncodeOptions{Protocol: 4}, memo: map[Value]uint32{}}}
	p.out = append(p.out, opProto, 4)
	p.object("torch.distributed.checkpoint.metadata", "Metadata")
	p.dict(func() {
		p.string("state_dict_metadata")
		p.dictOf(items/chunksPerTensor, func(tensor int) {
			p.string(fmt.Sprintf("optimizer.state.layers.%d.weight.exp_avg", tensor))
			p.object("torch.distributed.checkpoint.metadata", "TensorStorageMetadata")
			p.dict(func() {
				p.string("properties")
				p.properties()
				p.string("size")
				p.size(chunksPerTensor*1000, 4096)
				p.string("chunks")
				p.op(opEmptyList)
				p.memoize()
				p.op(opMark)
				for chunk := range int64(chunksPerTensor) {
					p.object("torch.distributed.checkpoint.metadata", "ChunkStorageMetadata")
					p.dict(func() {
						p.string("offsets")
						p.size(chunk*1000, 0)
						p.string("sizes")
						p.size(1000, 4096)
					})
				}
				p.op(opAppends)
			})
		})
		p.string("storage_data")
		p.dictOf(items, func(item int) {
			chunk := int64(item % chunksPerTensor)
			p.object("torch.distributed.checkpoint.metadata", "MetadataIndex")
			p.dict(func() {
				p.string("fqn")
				p.string(fmt.Sprintf("optimizer.state.layers.%d.weight.exp_avg", item/chunksPerTensor))
				p.string("offset")
				p.size(chunk*1000, 0)
				p.string("index")
				p.int(chunk)
			})
			p.object("torch.distributed.checkpoint.filesystem", "_StorageInfo")
			p.dict(func() {
				p.string("relative_path")
				p.string(fmt.Sprintf("__%d_0.distcp", chunk))
				p.string("offset")
				p.int(int64(item) * 4096)
				p.string("length")
				p.int(4096)
			})
		})
	})
	return append(p.out, opStop)
}

// metadataWriter writes containers as they come, so that no tree is held.
type metadataWriter struct{ encoder }

func (p *metadataWriter) memoize() {
	p.op(opMemoize)
	p.next++
}

func (p *metadataWriter) dict(entries func()) {
	p.op(opEmptyDict)
	p.memoize()
	p.op(opMark)
	entries()
	p.op(opSetItems)
	p.op(opBuild)
}

func (p *metadataWriter) dictOf(n int, entry func(i int)) {
	p.op(opEmptyDict)
	p.memoize()
	for i := range n {
		if i%batch == 0 {
			p.op(opMark)
		}
		entry(i)
		if i%batch == batch-1 || i == n-1 {
			p.op(opSetItems)
		}
	}
}
func (p *metadataWriter) object(module, name string) {
	p.global(&Global{Module: module, Name: name})
	p.op(opEmptyTuple)
	p.op(opNewObj)
	p.memoize()
}

// properties are those of a float32 tensor.
func (p *metadataWriter) properties() {
	p.object("torch.distributed.checkpoint.metadata", "TensorProperties")
	p.op(opMark)
	p.global(&Global{Module: "torch", Name: "float32"})
	p.call("torch.serialization", "_get_layout", "torch.strided")
	p.op(opNewFalse)
	p.call("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING", int64(0))
	p.op(opNewFalse)
	p.op(opTuple)
	p.memoize()
	p.op(opBuild)
}

func (p *metadataWriter) call(module, name string, arg Value) {
	p.global(&Global{Module: module, Name: name})
	if err := p.value(arg); err != nil {
		panic(err)
	}
	p.op(opTuple1)
	p.memoize()
	p.op(opReduce)
	p.memoize()
}

func (p *metadataWriter) size(n ...int64) {
	p.global(&Global{Module: "torch", Name: "Size"})
	for _, n := range n {
		p.int(n)
	}
	p.op(opTuple1 + byte(len(n)) - 1)
	p.memoize()
	p.op(opTuple1)
	p.memoize()
	p.op(opReduce)
	p.memoize()
}

func BenchmarkDecode(b *testing.B) {
	for _, items := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(items), func(b *testing.B) {
			data := metadataPickle(items)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(data, Options{Build: benchFold}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*items), "ns/item")
		})
	}
}

// benchFold keeps two numbers of each chunk and entry, and no dict.
func benchFold(o *Object) error {
	type pair struct{ offset, size []int64 }
	d, ok := o.State.(*Dict)
	if !ok {
		return nil
	}
	switch o.Class.Name {
	case "ChunkStorageMetadata":
		var p pair
		for _, x := range d.Pairs {
			n, _ := Ints(x.Value)
			if x.Key == "offsets" {
				p.offset = n
			} else {
				p.size = n
			}
		}
		o.State = &p
		d.Pairs = nil
	case "MetadataIndex", "_StorageInfo":
		o.State = &pair{}
		d.Pairs = nil
	}
	return nil
}
