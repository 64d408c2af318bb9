package dcp

import (
	"fmt"
	"io"
	"sync/atomic"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/internal/fault"
)

// WriteOptions steer a Writer.
type WriteOptions struct {
	// World is the number of ranks, each with a file; 0 means as many as the
	// sharded leaves have parts, and at least 1. A rank without items has an
	// empty file, as torch writes it.
	World int
	// Zstd compresses every item. PyTorch reads such directories from 2.7 on, with
	// a zstd package installed.
	Zstd bool
}

// File is one file of a directory to be written.
type File struct {
	Name string
	// Size is the length in bytes. With Zstd the length is known only when the
	// file is written, and Size is the most that it can be.
	Size int64
}

// Writer writes a directory. The layout is fixed when it is made; then each file
// is written by [Writer.WriteFile], in any order and at the same time, and after
// all of them the metadata by [Writer.WriteMetadata]. Equal trees give equal
// bytes.
type Writer struct {
	// Dropped names the empty dicts of the tree, which a directory cannot hold; the
	// first thousand of them.
	Dropped []string

	m     *Metadata
	known map[any]int64 // sizes of archives
	files [][]output    // by file, in the order of its bytes
	sizes []int64
	zstd  bool
	// written tells which files are, for only then the places of compressed items
	// are known.
	written []atomic.Bool
}

// output is a chunk to be written.
type output struct {
	itemID
	content pickle.Value // *tensor.Tensor, or the value of a bytes item
}

// NewWriter lays out a tree: dicts, lists, plain values, *tensor.Tensor and
// *Sharded. Parts of sharded tensors go into the files of their ranks, everything
// else into rank 0's. The tree must not change before the directory is written.
func NewWriter(root pickle.Value, o WriteOptions) (*Writer, error) {
	f, err := flatten(root)
	if err != nil {
		return nil, err
	}
	w := &Writer{Dropped: f.dropped, m: f.m, known: make(map[any]int64), zstd: o.Zstd}
	world := max(1, o.World)
	for _, leaf := range f.leaves {
		if s, ok := leaf.(*Sharded); ok {
			world = max(world, len(s.Parts))
		}
	}
	if o.World > 0 && world > o.World {
		return nil, fault.New(fault.Internal, "a tensor has parts for %d ranks, and there are %d", world, o.World)
	}
	w.files = make([][]output, world)
	w.written = make([]atomic.Bool, world)
	w.sizes = make([]int64, world)
	for rank := range world {
		w.m.Files = append(w.m.Files, fmt.Sprintf("__%d_0.distcp", rank))
	}
	if o.Zstd {
		w.m.transforms = append(w.m.transforms, []string{zstdName + "/1"})
	}
	for i, leaf := range f.leaves {
		if err := w.layOut(int32(i), leaf); err != nil {
			return nil, fault.Within(err, "", w.m.Items[i].FQN)
		}
	}
	w.m.check()
	if len(w.m.Faults) > 0 {
		return nil, w.m.Faults[0]
	}
	return w, nil
}

// layOut gives the chunks of an item their places, one behind the other.
func (w *Writer) layOut(i int32, leaf pickle.Value) error {
	item := &w.m.Items[i]
	sharded, ok := leaf.(*Sharded)
	if !ok {
		c := Chunk{}
		if item.Tensor {
			c.Offset, c.Shape = make([]int64, len(item.Shape)), item.Shape
		}
		return w.place(i, 0, c, leaf)
	}
	row := int64(0)
	for rank, part := range sharded.Parts {
		if part == nil || part.Len() == 0 && volume(item.Shape) > 0 {
			continue
		}
		c := Chunk{Offset: make([]int64, len(item.Shape)), Shape: part.Shape}
		c.Offset[sharded.Dim] = row
		row += part.Shape[sharded.Dim]
		if err := w.place(i, rank, c, part); err != nil {
			return err
		}
		if volume(item.Shape) == 0 {
			break // one empty chunk stands for all
		}
	}
	return nil
}

// place appends one chunk to a file.
func (w *Writer) place(i int32, file int, c Chunk, content pickle.Value) error {
	length, err := w.archiveSize(content)
	if err != nil {
		return err
	}
	item := &w.m.Items[i]
	c.Place = Place{Offset: w.sizes[file], Length: length, File: int32(file)}
	if w.zstd {
		c.Place.transforms = 1
		c.Place.Length = zstdBound(c.Place.Length)
	}
	w.sizes[file] += c.Place.Length
	w.files[file] = append(w.files[file], output{itemID{i, int32(len(item.Chunks))}, content})
	item.Chunks = append(item.Chunks, c)
	return nil
}

// mostKnown is how many sizes of archives are remembered.
const mostKnown = 4096

// archiveSize is the length of the archive of one item. Most items are alike: a
// number, or a tensor of a dtype and shape that decide on the length.
func (w *Writer) archiveSize(content pickle.Value) (int64, error) {
	var key any
	switch v := content.(type) {
	case bool, int64, float64:
		key = v
	case *tensor.Tensor:
		key = fmt.Sprint(v.DType, v.Shape)
	}
	if size, ok := w.known[key]; ok {
		return size, nil
	}
	archive, err := newArchive(content)
	if err != nil {
		return 0, err
	}
	if key != nil && len(w.known) < mostKnown {
		w.known[key] = archive.Size()
	}
	return archive.Size(), nil
}

// newArchive is the archive that holds one item.
func newArchive(content pickle.Value) (*torchfile.File, error) {
	if t, ok := content.(*tensor.Tensor); ok && (t.Parameter || t.RequiresGrad) {
		plain := *t // as torch does: items are detached
		plain.Parameter, plain.RequiresGrad = false, false
		content = &plain
	}
	return torchfile.New(content, torchfile.WriteOptions{Prefix: "archive"})
}

// Files are the files with items, in the order of their ranks.
func (w *Writer) Files() []File {
	files := make([]File, len(w.files))
	for i, name := range w.m.Files {
		files[i] = File{name, w.sizes[i]}
	}
	return files
}

// WriteFile writes the file that Files()[i] describes.
func (w *Writer) WriteFile(i int, dst io.Writer) error {
	offset := int64(0)
	for _, out := range w.files[i] {
		item := &w.m.Items[out.item]
		place := &item.Chunks[out.chunk].Place
		n, err := w.writeItem(out.content, dst)
		if err != nil {
			return fault.Within(err, "", item.FQN)
		}
		if w.zstd {
			place.Offset, place.Length = offset, n
		} else if n != place.Length {
			return fault.New(fault.Internal, "the item came out %d bytes long, and %d were planned", n, place.Length).In(item.FQN)
		}
		offset += n
	}
	w.written[i].Store(true)
	return nil
}

// Written says that the file Files()[i] was written elsewhere, byte for byte as
// WriteFile would. It cannot be told for Zstd, whose lengths it would not know.
func (w *Writer) Written(i int) { w.written[i].Store(true) }

// writeItem writes one archive and returns its length in the file.
func (w *Writer) writeItem(content pickle.Value, dst io.Writer) (int64, error) {
	archive, err := newArchive(content)
	if err != nil {
		return 0, err
	}
	if !w.zstd {
		return archive.WriteTo(dst)
	}
	return compress(dst, archive)
}

// WriteMetadata writes .metadata. It must come last: the metadata makes a
// directory complete, and with Zstd it is known only when all files are written.
func (w *Writer) WriteMetadata(dst io.Writer) error {
	for i := range w.written {
		if !w.written[i].Load() {
			return fault.New(fault.Internal, "the metadata would be written before %s", w.m.Files[i])
		}
	}
	return emit(dst, w.m)
}

// MetadataSize is the number of bytes of .metadata; with Zstd, the most that it
// can be.
func (w *Writer) MetadataSize() int64 {
	var n counter
	emit(&n, w.m) // which fails only where its writer does
	return int64(n)
}

// counter counts the bytes written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
