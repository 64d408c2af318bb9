package dcp

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"slices"

	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// A save with SerializationFormat.SAFETENSORS writes all tensors of a file as one
// safetensors blob: a header length, a JSON header, and the data. The metadata
// has the begin of the blob as the offset of every tensor, and the size of its
// elements as the length, so that tensors are found by name.

const (
	blobHead   = 9         // bytes that tell a blob: the header's length, and a brace
	mostHeader = 100 << 20 // bytes of a header, as the safetensors library limits it
	mostBlobs  = 4         // headers that are kept
)

// shardingKey is where torch records which chunk of a tensor the blob holds.
const shardingKey = "DCP_SHARDING_INFO"

// blobTypes are the safetensors names of element types.
var blobTypes = map[string]tensor.DType{
	"BOOL": tensor.Bool, "U8": tensor.Uint8, "I8": tensor.Int8, "U16": tensor.Uint16, "I16": tensor.Int16,
	"U32": tensor.Uint32, "I32": tensor.Int32, "U64": tensor.Uint64, "I64": tensor.Int64,
	"F16": tensor.Float16, "BF16": tensor.BFloat16, "F32": tensor.Float32, "F64": tensor.Float64, "C64": tensor.Complex64,
	"F8_E4M3": tensor.Float8E4M3FN, "F8_E5M2": tensor.Float8E5M2, "F8_E8M0": tensor.Float8E8M0FNU,
	"F8_E4M3FNUZ": tensor.Float8E4M3FNUZ, "F8_E5M2FNUZ": tensor.Float8E5M2FNUZ,
}

// isBlob says whether bytes look like a safetensors blob.
func isBlob(raw tensor.Storage) bool {
	head := make([]byte, blobHead)
	n, _ := raw.ReadAt(head, 0)
	return n == blobHead && binary.LittleEndian.Uint64(head) <= mostHeader && head[8] == '{'
}

// blob is the header of a safetensors blob.
type blob struct {
	section // from the begin of the blob to the end of its file
	data    int64
	tensors map[string]blobTensor
	chunks  map[string]blobChunk // by name, where torch recorded them
}

type blobTensor struct {
	DType string   `json:"dtype"`
	Shape []int64  `json:"shape"`
	Range [2]int64 `json:"data_offsets"`
}

type blobChunk struct {
	Offset []int64 `json:"saved_offsets"`
}

// Close has nothing to release.
func (b *blob) Close() error { return nil }

// openBlob reads the header of a blob.
func (d *Directory) openBlob(id blobID) (*blob, error) {
	b := &blob{
		section: section{d, id.file, id.start, d.sizes[id.file] - id.start},
		tensors: make(map[string]blobTensor),
	}
	if !isBlob(b) {
		return nil, fault.New(fault.Corrupt, "neither a torch.save archive nor a safetensors blob begins here").At(id.start)
	}
	head := make([]byte, blobHead-1)
	if _, err := b.ReadAt(head, 0); err != nil {
		return nil, err
	}
	length := int64(binary.LittleEndian.Uint64(head))
	if length > b.Size()-int64(len(head)) {
		return nil, fault.New(fault.Incomplete, "a safetensors header of %d bytes, and the file ends after %d", length, b.Size()-int64(len(head))).At(id.start)
	}
	b.data = int64(len(head)) + length
	if err := b.parse(json.NewDecoder(io.NewSectionReader(b, int64(len(head)), length))); err != nil {
		return nil, fault.New(fault.Corrupt, "the safetensors header is damaged: %w", err).At(id.start)
	}
	return b, nil
}

// parse reads the JSON header, entry by entry.
func (b *blob) parse(decoder *json.Decoder) error {
	if _, err := decoder.Token(); err != nil {
		return err
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		if name == "__metadata__" {
			if err := b.parseMetadata(decoder); err != nil {
				return err
			}
			continue
		}
		if _, twice := b.tensors[name]; twice {
			return fault.New(fault.Corrupt, "it has the key twice").In(name)
		}
		var t blobTensor
		if err := decoder.Decode(&t); err != nil {
			return err
		}
		b.tensors[name] = t
	}
	_, err := decoder.Token()
	return err
}

func (b *blob) parseMetadata(decoder *json.Decoder) error {
	var metadata map[string]string
	if err := decoder.Decode(&metadata); err != nil {
		return err
	}
	if text := metadata[shardingKey]; text != "" {
		return json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&b.chunks)
	}
	return nil
}

// tensor finds the chunk of a tensor in the blob.
func (b *blob) tensor(name string, c *Chunk) (*tensor.Tensor, error) {
	t, ok := b.tensors[name]
	if !ok {
		return nil, fault.New(fault.Corrupt, "the safetensors blob of its file has no tensor of this name").At(b.offset)
	}
	if saved, known := b.chunks[name]; known && !slices.Equal(saved.Offset, c.Offset) {
		return nil, fault.New(fault.Corrupt, "the safetensors blob has the chunk at %v under this name, not the one at %v", saved.Offset, c.Offset).At(b.offset)
	}
	dtype, ok := blobTypes[t.DType]
	if !ok {
		return nil, fault.New(fault.Unsupported, "its dtype in the safetensors blob is %q", t.DType).At(b.offset)
	}
	n, ok := tensor.Volume(append([]int64{int64(dtype.Size())}, t.Shape...))
	start, end := t.Range[0], t.Range[1]
	switch {
	case !ok || start < 0 || end < start || end-start != n:
		return nil, fault.New(fault.Corrupt, "%s of shape %v does not fill bytes %d to %d of the safetensors data", t.DType, t.Shape, start, end).At(b.offset)
	case end > b.Size()-b.data:
		return nil, fault.New(fault.Incomplete, "its bytes %d to %d lie beyond the end of the file, which has %d bytes of safetensors data",
			start, end, b.Size()-b.data).At(b.offset)
	}
	data := &tensor.Section{R: &b.section, Off: b.data + start, N: n}
	return &tensor.Tensor{DType: dtype, Shape: t.Shape, Chunks: []tensor.Chunk{tensor.Whole(t.Shape, data)}}, nil
}

// inBlob finds a chunk of a tensor in the safetensors blob that its place is the
// begin of.
func (d *Directory) inBlob(id itemID) (t *tensor.Tensor, err error) {
	item := &d.Metadata.Items[id.item]
	chunk := &item.Chunks[id.chunk]
	err = d.blobs.use(blobID{chunk.Place.File, chunk.Place.Offset}, func(b *blob) error {
		t, err = b.tensor(item.FQN, chunk)
		return err
	})
	return t, fault.Within(err, d.place(chunk.Place.File), "")
}
