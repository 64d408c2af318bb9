package torchfile

import (
	"strconv"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// writer turns tensors into references to storages, and collects these.
type writer struct {
	users    map[tensor.Storage]int
	keys     map[tensor.Storage]reference // of storages that are in the archive as they are
	storages []tensor.Content
}

// reference is how the pickle refers to a storage.
type reference struct {
	key      int
	class    pickle.Global
	elements int64
}

var untyped = pickle.Global{Module: "torch.storage", Name: "UntypedStorage"}

// count notes who uses each storage.
func (w *writer) count(v pickle.Value) (pickle.Value, error) {
	switch v := v.(type) {
	case *tensor.Tensor:
		if len(v.Chunks) == 1 && v.Content == nil {
			w.users[v.Chunks[0].Storage]++
		}
	case *BareStorage:
		w.users[v.Data]++
	case *DTensor:
		return v.Object, nil
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
		o := w.tensor(v)
		if !v.Parameter {
			return o, nil
		}
		return call("torch._utils", "_rebuild_parameter", o, v.RequiresGrad, orderedDict()), nil
	case *BareStorage:
		id, ok := w.share(v.Data, *v.Class, v.Elements)
		if !ok {
			return nil, fault.New(fault.Unsupported, "%s is shared with a tensor of another type", v.Describe())
		}
		return id, nil
	case *DTensor:
		return v.Object, nil
	}
	return nil, fault.New(fault.Internal, "a %T cannot be written to a torch.save archive", v)
}

// tensor is the call that makes a tensor.
func (w *writer) tensor(t *tensor.Tensor) pickle.Value {
	class, size := pickle.Global{Module: "torch", Name: t.DType.StorageClass()}, int64(t.DType.Size())
	if class.Name == "" {
		class, size = untyped, 1
	}
	start, stride := int64(0), tensor.RowMajor(t.Shape)
	id, ok := w.view(t, class, size)
	switch {
	case ok && t.Contiguous(): // torch leaves any stride to dimensions of one index
		start = t.Chunks[0].Start
	case ok:
		start, stride = t.Chunks[0].Start, t.Chunks[0].Stride
	default:
		id = w.refer(w.add(t.Data(), class, t.Bytes()/size))
	}
	grad := t.RequiresGrad && !t.Parameter
	args := []pickle.Value{id, start, pickle.IntTuple(t.Shape), pickle.IntTuple(stride), grad, orderedDict()}
	if class == untyped {
		return call("torch._utils", "_rebuild_tensor_v3", append(args, &pickle.Global{Module: "torch", Name: t.DType.String()})...)
	}
	return call("torch._utils", "_rebuild_tensor_v2", args...)
}

// view refers to the whole storage of a tensor that is one view of it, if others
// view it too, or if it is no larger than the tensor.
func (w *writer) view(t *tensor.Tensor, class pickle.Global, size int64) (pickle.Value, bool) {
	if t.Content != nil || len(t.Chunks) != 1 {
		return nil, false
	}
	s := t.Chunks[0].Storage
	n := s.Size()
	if n%size != 0 || n > t.Bytes() && w.users[s] < 2 {
		return nil, false
	}
	return w.share(s, class, n/size)
}

// share refers to a storage that is in the archive as it is; false if it is there
// already as one of another class.
func (w *writer) share(s tensor.Storage, class pickle.Global, elements int64) (pickle.Value, bool) {
	r, ok := w.keys[s]
	if !ok {
		n := s.Size()
		raw := &tensor.Tensor{DType: tensor.Uint8, Shape: []int64{n}, Chunks: []tensor.Chunk{tensor.Whole([]int64{n}, s)}}
		r = w.add(raw.Data(), class, elements)
		w.keys[s] = r
	}
	return w.refer(r), r.class.Module == class.Module && r.class.Name == class.Name && r.elements == elements
}

func (w *writer) add(c tensor.Content, class pickle.Global, elements int64) reference {
	w.storages = append(w.storages, c)
	return reference{len(w.storages) - 1, class, elements}
}

// refer is the persistent id of a storage.
func (w *writer) refer(r reference) pickle.Value {
	return &pickle.Persistent{ID: pickle.NewTuple("storage", &r.class, strconv.Itoa(r.key), "cpu", r.elements)}
}

func call(module, name string, args ...pickle.Value) *pickle.Object {
	return &pickle.Object{Class: &pickle.Global{Module: module, Name: name}, Args: pickle.NewTuple(args...)}
}

func orderedDict() *pickle.Object { return call("collections", "OrderedDict") }
