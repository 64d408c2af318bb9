package dcp

import (
	"bytes"
	"io"
	"slices"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// mostItems is how many chunks stay open, their archives read, beside those in
// use.
const mostItems = 256

var zipMagic = []byte("PK\x03\x04")

// load reads a bytes item. Tensors in it stay on disk.
func (d *Directory) load(i int32) (pickle.Value, error) {
	item := &d.Metadata.Items[i]
	if item.Fault != nil {
		return nil, item.Fault.File(d.Path)
	}
	id := itemID{i, 0}
	raw, err := d.raw(id)
	if err != nil {
		return nil, d.locate(err, id)
	}
	archive, err := torchfile.Open(raw, torchfile.Options{})
	if err != nil {
		return nil, d.locate(err, id)
	}
	return archive.Root(), nil
}

// store is the elements of one chunk, row by row. Its archive is opened when it
// is first read.
type store struct {
	d *Directory
	itemID
}

// Size is the length in bytes.
func (s *store) Size() int64 {
	item := &s.d.Metadata.Items[s.item]
	return volume(item.Chunks[s.chunk].Shape) * int64(item.DType.Size())
}

// ReadAt reads elements where they lie in the file.
func (s *store) ReadAt(p []byte, off int64) (n int, err error) {
	size := s.Size()
	if off < 0 || off >= size {
		return 0, io.EOF
	}
	n = int(min(int64(len(p)), size-off))
	err = s.d.items.use(s.itemID, func(o *opened) error { return o.read(p[:n], off) })
	if err != nil {
		return 0, s.d.locate(err, s.itemID)
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

// locate puts an error of an item where it belongs: into the item's file. The
// offsets that errors of an archive have count from its begin, unless they are
// within one of its members.
func (d *Directory) locate(err error, id itemID) error {
	item := &d.Metadata.Items[id.item]
	chunk := &item.Chunks[id.chunk]
	f := fault.Of(err)
	if f.Path == "" && f.Item == "" && f.Offset != fault.NoOffset && len(d.Metadata.Transforms(chunk)) == 0 {
		f = f.At(f.Offset + chunk.Place.Offset)
	}
	return f.In(item.FQN).File(d.place(chunk.Place.File))
}

// opened is a chunk whose archive was read: its tensor, as it lies in the file.
type opened struct{ tensor.Tensor }

// Close has nothing to release: what the tensor is a view of has pools of its own.
func (o *opened) Close() error { return nil }

// read fills p with the elements' bytes from byte off on.
func (o *opened) read(p []byte, off int64) error {
	size := int64(o.DType.Size())
	before, after := off%size, (size-(off+int64(len(p)))%size)%size
	if before == 0 && after == 0 {
		return o.ReadAt(p, off/size)
	}
	whole := make([]byte, before+int64(len(p))+after)
	if err := o.ReadAt(whole, off/size); err != nil {
		return err
	}
	copy(p, whole[before:])
	return nil
}

// openItem opens a chunk of a tensor, and holds its own header against the
// metadata.
func (d *Directory) openItem(id itemID) (*opened, error) {
	item := &d.Metadata.Items[id.item]
	chunk := &item.Chunks[id.chunk]
	raw, err := d.raw(id)
	if err != nil {
		return nil, err
	}
	head := make([]byte, min(raw.Size(), int64(len(zipMagic))))
	if n, err := raw.ReadAt(head, 0); n < len(head) {
		return nil, err
	}
	var found pickle.Value
	if bytes.Equal(head, zipMagic) {
		archive, err := torchfile.Open(raw, torchfile.Options{})
		if err != nil {
			return nil, err
		}
		found = archive.Root()
	} else if found, err = d.inBlob(id); err != nil {
		return nil, err
	}
	t, ok := found.(*tensor.Tensor)
	if !ok {
		return nil, fault.New(fault.Corrupt, "the item holds %s, and the metadata says a tensor", tree.Describe(found))
	}
	want := tensor.Tensor{DType: item.DType, Shape: chunk.Shape}
	if t.DType != want.DType || !slices.Equal(t.Shape, want.Shape) {
		return nil, fault.New(fault.Corrupt, "the item holds %s, and the metadata says %s", tree.Describe(t), tree.Describe(&want))
	}
	return &opened{*t}, nil
}

// raw is the bytes of a chunk's archive, decompressed if need be.
func (d *Directory) raw(id itemID) (tensor.Storage, error) {
	chunk := &d.Metadata.Items[id.item].Chunks[id.chunk]
	if len(d.Metadata.Transforms(chunk)) == 0 {
		return d.stored(id), nil
	}
	s := &spooled{pool: d.spools, id: id}
	err := d.spools.use(id, func(held *spool) error {
		s.size = held.size
		return nil
	})
	return s, err
}

// stored is the bytes of a chunk as they lie in its file.
func (d *Directory) stored(id itemID) *section {
	place := d.Metadata.Items[id.item].Chunks[id.chunk].Place
	return &section{d, place.File, place.Offset, place.Length}
}
