package dcp

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
)

// The opcodes of protocol 2 that a metadata file needs.
const (
	opProto       = 0x80
	opStop        = '.'
	opMark        = '('
	opGlobal      = 'c'
	opEmptyTuple  = ')'
	opTuple       = 't'
	opTuple1      = 0x85 // 2 and 3 follow
	opEmptyDict   = '}'
	opSetItems    = 'u'
	opEmptyList   = ']'
	opAppends     = 'e'
	opReduce      = 'R'
	opNewObj      = 0x81
	opBuild       = 'b'
	opNone        = 'N'
	opTrue        = 0x88
	opFalse       = 0x89
	opBinInt1     = 'K'
	opBinInt2     = 'M'
	opBinInt      = 'J'
	opLong1       = 0x8a
	opBinUnicode  = 'X'
	opLongBinPut  = 'r'
	opLongBinGet  = 'j'
	emittedBlocks = 1000 // entries per SETITEMS and APPENDS, as CPython writes them
)

// emitter writes a metadata file in a form that PyTorch 2.4 and newer load:
// protocol 2, five-part TensorProperties, a storage_meta of strings, and none of
// the newer fields. It streams, because the pickle of a million items is large
// and a tree of it would be many times larger.
type emitter struct {
	m    *Metadata
	w    *bufio.Writer
	memo map[string]uint32 // of constants: classes, names of attributes, files
	// Names of items and steps of paths have memo entries of their own, from
	// firstName and firstPart on; seen tells which are written.
	firstName, firstPart uint32
	seenNames, seenParts []bool
	scratch              [8]byte
}

// Names that the storage_meta of every written directory has, so that equal
// trees give equal bytes.
const (
	checkpointID = "gefenckpt"
	saveID       = "00000000-0000-0000-0000-000000000000"
)

// mostConstants bounds the memo entries of constants but for the files.
const mostConstants = 256

// emit writes m to w.
func emit(w io.Writer, m *Metadata) error {
	first := uint32(mostConstants + len(m.Files))
	e := &emitter{
		m:         m,
		w:         bufio.NewWriterSize(w, 1<<16),
		memo:      make(map[string]uint32),
		firstName: first,
		firstPart: first + uint32(len(m.Items)),
		seenNames: make([]bool, len(m.Items)),
		seenParts: make([]bool, len(m.parts)),
	}
	e.op(opProto, 2)
	e.object(metadataModule, "Metadata")
	e.op(opEmptyDict, opMark)
	e.constant("state_dict_metadata")
	e.entries(len(m.Items), func(i int) {
		e.name(i)
		e.item(&m.Items[i])
	})
	e.constant("planner_data")
	e.entries(len(m.Items), func(i int) {
		e.name(i)
		steps := m.steps(&m.Items[i])
		e.tuple(len(steps), func(k int) { e.step(steps[k]) })
	})
	e.constant("storage_data")
	e.places()
	e.constant("storage_meta")
	e.object(metadataModule, "StorageMeta")
	e.op(opEmptyDict, opMark)
	e.constant("checkpoint_id")
	e.text(checkpointID)
	e.constant("save_id")
	e.text(saveID)
	e.constant("load_id")
	e.op(opNone, opSetItems, opBuild)
	e.op(opSetItems, opBuild, opStop)
	return e.w.Flush()
}

// entries writes a dict of n entries.
func (e *emitter) entries(n int, entry func(i int)) {
	e.op(opEmptyDict)
	for i := range n {
		if i%emittedBlocks == 0 {
			e.op(opMark)
		}
		entry(i)
		if i%emittedBlocks == emittedBlocks-1 || i == n-1 {
			e.op(opSetItems)
		}
	}
}

// item writes a TensorStorageMetadata or a BytesStorageMetadata.
func (e *emitter) item(item *Item) {
	if !item.Tensor {
		e.object(metadataModule, "BytesStorageMetadata")
		return
	}
	e.object(metadataModule, "TensorStorageMetadata")
	e.op(opEmptyDict, opMark)
	e.constant("properties")
	e.object(metadataModule, "TensorProperties")
	e.op(opMark)
	e.global("torch", item.DType.String())
	e.call("torch.serialization", "_get_layout", func() { e.text("torch.strided") })
	e.bool(item.RequiresGrad)
	e.call(metadataModule, "_MEM_FORMAT_ENCODING", func() { e.int(0) })
	e.bool(false)
	e.op(opTuple, opBuild)
	e.constant("size")
	e.size(item.Shape)
	e.constant("chunks")
	e.op(opEmptyList, opMark)
	for i := range item.Chunks {
		c := &item.Chunks[i]
		e.object(metadataModule, "ChunkStorageMetadata")
		e.op(opEmptyDict, opMark)
		e.constant("offsets")
		e.size(c.Offset)
		e.constant("sizes")
		e.size(c.Shape)
		e.op(opSetItems, opBuild)
	}
	e.op(opAppends, opSetItems, opBuild)
}

// places writes storage_data.
func (e *emitter) places() {
	total := 0
	for i := range e.m.Items {
		total += len(e.m.Items[i].Chunks)
	}
	item, chunk := 0, 0
	e.entries(total, func(int) {
		for chunk == len(e.m.Items[item].Chunks) {
			item, chunk = item+1, 0
		}
		c := &e.m.Items[item].Chunks[chunk]
		e.object(metadataModule, "MetadataIndex")
		e.op(opEmptyDict, opMark)
		e.constant("fqn")
		e.name(item)
		e.constant("index")
		if e.m.Items[item].Tensor {
			e.int(int64(chunk))
			e.constant("offset")
			e.size(c.Offset)
		} else {
			e.op(opNone)
		}
		e.op(opSetItems, opBuild)
		e.place(&c.Place)
		chunk++
	})
}

// place writes a _StorageInfo.
func (e *emitter) place(p *Place) {
	e.object(filesystemModule, "_StorageInfo")
	e.op(opEmptyDict, opMark)
	e.constant("relative_path")
	e.constant(e.m.Files[p.File])
	e.constant("offset")
	e.int(p.Offset)
	e.constant("length")
	e.int(p.Length)
	if names := e.m.transforms[p.transforms]; len(names) > 0 {
		e.constant("transform_descriptors")
		e.op(opEmptyList, opMark)
		for _, name := range names {
			e.constant(name)
		}
		e.op(opAppends)
	}
	e.op(opSetItems, opBuild)
}

// The bufio.Writer keeps the first error, which Flush returns.

func (e *emitter) op(codes ...byte) { e.w.Write(codes) }

// remembered writes a constant the first time, and fetches it from the memo
// again. Keys of globals and calls have a newline, which no other constant has.
func (e *emitter) remembered(key string, write func()) {
	if i, ok := e.memo[key]; ok {
		e.memoOp(opLongBinGet, i)
		return
	}
	write()
	i := uint32(len(e.memo))
	e.memo[key] = i
	e.memoOp(opLongBinPut, i)
}

func (e *emitter) memoOp(code byte, i uint32) {
	e.op(code)
	binary.LittleEndian.PutUint32(e.scratch[:4], i)
	e.w.Write(e.scratch[:4])
}

func (e *emitter) global(module, name string) {
	key := module + "\n" + name
	e.remembered(key, func() {
		e.op(opGlobal)
		e.w.WriteString(key)
		e.op('\n')
	})
}

// object writes an instance without state.
func (e *emitter) object(module, name string) {
	e.global(module, name)
	e.op(opEmptyTuple, opNewObj)
}

// call writes the call of a function with one constant argument.
func (e *emitter) call(module, name string, argument func()) {
	e.remembered(module+"\n"+name+"\n()", func() {
		e.global(module, name)
		argument()
		e.op(opTuple1, opReduce)
	})
}

func (e *emitter) constant(s string) { e.remembered(s, func() { e.text(s) }) }

// name writes the name of an item.
func (e *emitter) name(i int) {
	e.once(e.seenNames, i, e.firstName, e.m.Items[i].FQN)
}

// step writes a step of a path.
func (e *emitter) step(i int32) {
	switch step := e.m.parts[i].(type) {
	case string:
		e.once(e.seenParts, int(i), e.firstPart, step)
	case int64:
		e.int(step)
	}
}

// once writes the string i of a list the first time, and fetches it again.
func (e *emitter) once(seen []bool, i int, first uint32, s string) {
	if seen[i] {
		e.memoOp(opLongBinGet, first+uint32(i))
		return
	}
	seen[i] = true
	e.text(s)
	e.memoOp(opLongBinPut, first+uint32(i))
}

func (e *emitter) text(s string) {
	e.op(opBinUnicode)
	binary.LittleEndian.PutUint32(e.scratch[:4], uint32(len(s)))
	e.w.Write(e.scratch[:4])
	e.w.WriteString(s)
}

func (e *emitter) bool(b bool) {
	if b {
		e.op(opTrue)
	} else {
		e.op(opFalse)
	}
}

func (e *emitter) int(n int64) {
	b := e.scratch[:]
	binary.LittleEndian.PutUint64(b, uint64(n))
	switch {
	case n < 1<<8:
		e.op(opBinInt1, b[0])
	case n < 1<<16:
		e.op(opBinInt2, b[0], b[1])
	case n <= math.MaxInt32:
		e.op(opBinInt)
		e.w.Write(b[:4])
	default: // the shortest two's complement form, its highest bit 0
		length := 5
		for length < 8 && n>>(8*length-1) != 0 {
			length++
		}
		e.op(opLong1, byte(length))
		e.w.Write(b[:length])
	}
}

// size writes a torch.Size.
func (e *emitter) size(dims []int64) {
	e.global("torch", "Size")
	e.tuple(len(dims), func(i int) { e.int(dims[i]) })
	e.op(opTuple1, opReduce)
}

func (e *emitter) tuple(n int, item func(i int)) {
	if n == 0 {
		e.op(opEmptyTuple)
		return
	}
	if n > 3 {
		e.op(opMark)
	}
	for i := range n {
		item(i)
	}
	if n > 3 {
		e.op(opTuple)
	} else {
		e.op(opTuple1 + byte(n) - 1)
	}
}
