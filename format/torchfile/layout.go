package torchfile

import (
	"strconv"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// WriteOptions steer New.
type WriteOptions struct {
	// Prefix is the folder of all members; default "archive". torch.save uses
	// the stem of the file's name.
	Prefix string
}

// File is an archive that is laid out and yet to be written: all sizes are
// known, so it can be the content of a tensor in another archive. It is a
// tensor.Content; what it writes depends on the tree and the prefix alone.
type File struct {
	members []member
	dirOff  int64
	dirLen  int64
	size    int64
}

// member is one member of the archive and its place.
type member struct {
	name    string
	content tensor.Content
	size    int64
	header  int64 // offset of the local header
	padding int   // bytes of Z in the padding field
}

// alignment is what every member's data starts at a multiple of, in bytes.
const alignment = 64

// New lays out the archive of root. Tensors in the tree may be stored or have
// Content. Stored tensors that share a storage share it in the archive too;
// a tensor that is alone in a larger storage is written without the rest.
func New(root pickle.Value, o WriteOptions) (*File, error) {
	if o.Prefix == "" {
		o.Prefix = "archive"
	}
	w := &writer{users: map[tensor.Storage]int{}, written: map[tensor.Storage]written{}}
	// A first pass counts who uses each storage; nothing is kept of it.
	if _, err := pickle.Append(nil, root, pickle.EncodeOptions{Replace: w.count}); err != nil {
		return nil, err
	}
	data, err := pickle.Append(nil, root, pickle.EncodeOptions{Replace: w.replace})
	if err != nil {
		return nil, err
	}
	f := &File{}
	f.add(o.Prefix+"/data.pkl", bytesContent(data))
	f.add(o.Prefix+"/byteorder", bytesContent("little"))
	for i, c := range w.storages {
		f.add(o.Prefix+"/data/"+strconv.Itoa(i), c)
	}
	f.add(o.Prefix+"/version", bytesContent("3\n"))
	f.dirOff = f.size
	for _, m := range f.members {
		f.dirLen += int64(len(m.central(0)))
	}
	f.size += f.dirLen + end64Len + locatorLen + endLen
	return f, nil
}

// Size is the length of the archive in bytes.
func (f *File) Size() int64 { return f.size }

// add places a member behind the others.
func (f *File) add(name string, c tensor.Content) {
	m := member{name: name, content: c, size: c.Size(), header: f.size}
	start := m.header + localLen + int64(len(name)) + int64(len(m.zip64Local())) + 4
	m.padding = int((alignment - start%alignment) % alignment)
	f.size = start + int64(m.padding) + m.size + int64(len(m.descriptor(0)))
	f.members = append(f.members, m)
}

// writer turns tensors into references to storages, and collects these.
type writer struct {
	users    map[tensor.Storage]int
	written  map[tensor.Storage]written
	storages []tensor.Content
}

// written is a storage that is in the archive already.
type written struct {
	key   int
	dtype tensor.DType
}

// count notes the tensors of each storage; see New.
func (w *writer) count(v pickle.Value) (pickle.Value, error) {
	if t, ok := v.(*tensor.Tensor); ok && len(t.Chunks) == 1 && t.Content == nil {
		w.users[t.Chunks[0].Storage]++
	}
	return nil, nil
}

// replace is the pickle of a tensor.
func (w *writer) replace(v pickle.Value) (pickle.Value, error) {
	switch v := v.(type) {
	case *tensor.Tensor:
		if err := v.Validate(); err != nil {
			return nil, err
		}
		o, err := w.tensor(v)
		if err != nil || !v.Parameter {
			return o, err
		}
		return call("torch._utils", "_rebuild_parameter", o, v.RequiresGrad, orderedDict()), nil
	case *DTensor:
		return nil, fault.New(fault.Unsupported, "a DTensor of %v is not written: its layout differs from release to release", v.Shape).
			WithHint("save full tensors, or a DCP directory")
	}
	return nil, fault.New(fault.Internal, "a %T cannot be written to a torch.save archive", v)
}

func (w *writer) tensor(t *tensor.Tensor) (pickle.Value, error) {
	start, stride := int64(0), tensor.RowMajor(t.Shape)
	elements := t.Len()
	var key int
	if shared, ok := w.sharedStorage(t); ok {
		c := t.Chunks[0]
		start, stride, elements, key = c.Start, c.Stride, c.Storage.Size()/int64(t.DType.Size()), shared
	} else {
		key = len(w.storages)
		w.storages = append(w.storages, t.Data())
	}
	class, count := &pickle.Global{Module: "torch", Name: t.DType.StorageClass()}, elements
	if class.Name == "" {
		class, count = &pickle.Global{Module: "torch.storage", Name: "UntypedStorage"}, elements*int64(t.DType.Size())
	}
	id := &pickle.Persistent{ID: pickle.NewTuple("storage", class, strconv.Itoa(key), "cpu", count)}
	grad := t.RequiresGrad && !t.Parameter
	args := []pickle.Value{id, start, pickle.IntTuple(t.Shape), pickle.IntTuple(stride), grad, orderedDict()}
	if t.DType.StorageClass() == "" {
		return call("torch._utils", "_rebuild_tensor_v3", append(args, &pickle.Global{Module: "torch", Name: t.DType.String()})...), nil
	}
	return call("torch._utils", "_rebuild_tensor_v2", args...), nil
}

// sharedStorage is the key of a storage that several tensors use, and that is
// therefore written whole; false for a tensor that gets a storage of its own.
func (w *writer) sharedStorage(t *tensor.Tensor) (int, bool) {
	if len(t.Chunks) != 1 || t.Content != nil || w.users[t.Chunks[0].Storage] < 2 {
		return 0, false
	}
	s := t.Chunks[0].Storage
	if s.Size()%int64(t.DType.Size()) != 0 {
		return 0, false
	}
	if was, ok := w.written[s]; ok {
		return was.key, was.dtype == t.DType
	}
	key := len(w.storages)
	w.written[s] = written{key, t.DType}
	n := s.Size() / int64(t.DType.Size())
	whole := &tensor.Tensor{DType: t.DType, Shape: []int64{n}, Chunks: []tensor.Chunk{tensor.Whole([]int64{n}, s)}}
	w.storages = append(w.storages, whole.Data())
	return key, true
}

func call(module, name string, args ...pickle.Value) *pickle.Object {
	return &pickle.Object{Class: &pickle.Global{Module: module, Name: name}, Args: pickle.NewTuple(args...)}
}

func orderedDict() *pickle.Object { return call("collections", "OrderedDict") }
