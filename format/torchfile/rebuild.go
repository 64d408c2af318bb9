package torchfile

import (
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// storage is a storage that the pickle refers to: a record with an element type,
// or a claim that could not be met, whose error waits until a tensor needs it.
type storage struct {
	record   *Record
	data     tensor.Storage // of record, in little-endian order
	dtype    tensor.DType   // 0: untyped, its elements are bytes
	elements int64
	location string
	err      error
}

func unsupported(offset int64, format string, args ...any) error {
	return fault.New(fault.Unsupported, format, args...).At(offset)
}

// DTensor is a torch.distributed DTensor that was pickled whole: one rank's
// local tensor and how the whole is laid out. The layout's encoding differs from
// release to release, so it is left as it was.
type DTensor struct {
	Local *tensor.Tensor
	Shape []int64      // of the whole
	Spec  pickle.Value // DTensorSpec
}

// persistent resolves ('storage', class, key, location, elements). Other ids
// stay as they are.
func (r *reader) persistent(id pickle.Value, offset int64) (pickle.Value, error) {
	keep := &pickle.Persistent{ID: id, Offset: offset}
	items, ok := pickle.Sequence(id)
	if !ok || len(items) != 5 || items[0] != "storage" {
		return keep, nil
	}
	class, ok := items[1].(*pickle.Global)
	key, ok2 := items[2].(string)
	location, ok3 := items[3].(string)
	elements, ok4 := items[4].(int64)
	if !ok || !ok2 || !ok3 || !ok4 {
		return nil, corrupt(offset, "storage %s is described by values of the wrong kind", pickle.Describe(items[2]))
	}
	if s, ok := r.storages[key]; ok {
		if d, _ := tensor.OfStorageClass(class.Name); d != s.dtype || elements != s.elements {
			return nil, corrupt(offset, "storage %q is described twice, differently", key)
		}
		return s, nil
	}
	s := &storage{elements: elements, location: location}
	r.storages[key] = s
	s.err = r.load(s, class, key, offset)
	return s, nil
}

// load finds the record of a storage and checks its length.
func (r *reader) load(s *storage, class *pickle.Global, key string, offset int64) error {
	size := int64(1)
	switch d, ok := tensor.OfStorageClass(class.Name); {
	case ok && class.Module == "torch":
		s.dtype, size = d, int64(d.Size())
	case class.Module == "torch.storage" && class.Name == "UntypedStorage":
	default:
		return unsupported(offset, "storage %q is of class %s.%s, which is not read", key, class.Module, class.Name)
	}
	if s.location == "meta" {
		return unsupported(offset, "storage %q is on the meta device: its elements were never saved", key)
	}
	rec, err := r.record("data/" + key)
	if err != nil {
		return err
	}
	if n, ok := tensor.Volume([]int64{s.elements, size}); !ok || n != rec.Size() {
		return corrupt(offset, "storage %q has %d bytes, expected %d elements of %d", key, rec.Size(), s.elements, size).In(rec.name)
	}
	s.record, s.data = rec, rec
	return nil
}

// rebuild turns the calls that make tensors into tensors.
func (r *reader) rebuild(o *pickle.Object) (pickle.Value, error) {
	args := o.Args.Items
	switch o.Class.Module + "." + o.Class.Name {
	case "torch._utils._rebuild_tensor_v2":
		return r.tensor(o, args, nil)
	case "torch._utils._rebuild_tensor_v3":
		if len(args) < 7 {
			return nil, corrupt(o.Offset, "a tensor is described by %d values, expected 7", len(args))
		}
		return r.tensor(o, append(args[:6:6], args[7:]...), args[6])
	case "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state":
		if len(args) < 2 {
			return o, nil
		}
		t, ok := args[0].(*tensor.Tensor)
		grad, ok2 := args[1].(bool)
		if !ok || !ok2 {
			return o, nil
		}
		p := *t
		p.Parameter, p.RequiresGrad = true, grad
		return &p, nil
	case "torch._tensor._rebuild_from_type_v2":
		return r.fromType(o)
	}
	return o, nil
}

// tensor makes a tensor of (storage, start, shape, stride, requires_grad, hooks
// and optionally metadata); dtype is nil where the storage has it.
func (r *reader) tensor(o *pickle.Object, args []pickle.Value, dtype pickle.Value) (pickle.Value, error) {
	if len(args) < 6 {
		return nil, corrupt(o.Offset, "a tensor is described by %d values, expected 6", len(args))
	}
	s, ok := args[0].(*storage)
	start, ok2 := args[1].(int64)
	shape, ok3 := pickle.Ints(args[2])
	stride, ok4 := pickle.Ints(args[3])
	grad, ok5 := args[4].(bool)
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 {
		return nil, corrupt(o.Offset, "a tensor is described by values of the wrong kind")
	}
	if s.err != nil {
		return nil, s.err
	}
	d := s.dtype
	if dtype != nil {
		g, ok := dtype.(*pickle.Global)
		if !ok || g.Module != "torch" {
			return nil, corrupt(o.Offset, "a tensor's element type is %s", pickle.Describe(dtype))
		}
		if d, ok = tensor.Parse(g.Name); !ok {
			return nil, unsupported(o.Offset, "element type torch.%s is not read", g.Name)
		}
	}
	if d == 0 {
		return nil, corrupt(o.Offset, "a tensor over an untyped storage has no element type")
	}
	if len(args) > 6 {
		if m, ok := args[6].(*pickle.Dict); ok && (truthy(m, "conj") || truthy(m, "neg")) {
			return nil, unsupported(o.Offset, "a tensor is a conjugated or negated view, which is not read")
		}
	}
	t := &tensor.Tensor{DType: d, Shape: shape, RequiresGrad: grad, Chunks: []tensor.Chunk{{
		Offset: make([]int64, len(shape)), Shape: shape, Storage: s.as(d, r.big), Start: start, Stride: stride,
	}}}
	if _, ok := tensor.Volume(shape); !ok {
		return nil, corrupt(o.Offset, "shape %v is no tensor's", shape)
	}
	if err := tensor.CheckView(shape, stride, start, s.record.Size()/int64(d.Size())); err != nil {
		return nil, err
	}
	return t, nil
}

func truthy(d *pickle.Dict, key string) bool {
	v, _ := d.Get(key)
	return v == true
}

// as is the storage in little-endian order for elements of type d.
func (s *storage) as(d tensor.DType, big bool) tensor.Storage {
	if !big || d.Size() == 1 {
		return s.data
	}
	if _, done := s.data.(*swapped); !done {
		width := d.Size()
		if d == tensor.Complex64 || d == tensor.Complex128 {
			width /= 2
		}
		s.data = &swapped{s.record, int64(width)}
	}
	return s.data
}

// swapped reverses the bytes of each element of a big-endian storage.
type swapped struct {
	*Record
	width int64
}

// ReadAt reads whole elements around the range and swaps them.
func (s *swapped) ReadAt(p []byte, off int64) (int, error) {
	first := off / s.width * s.width
	last := min((off+int64(len(p))+s.width-1)/s.width*s.width, s.Size())
	if last <= first {
		return s.Record.ReadAt(p, off)
	}
	whole := make([]byte, last-first)
	n, err := s.Record.ReadAt(whole, first)
	if n < len(whole) {
		return 0, err
	}
	for i := int64(0); i+s.width <= int64(len(whole)); i += s.width {
		for a, b := i, i+s.width-1; a < b; a, b = a+1, b-1 {
			whole[a], whole[b] = whole[b], whole[a]
		}
	}
	return copy(p, whole[off-first:]), nil
}

// fromType reads a tensor with Python attributes, whose attributes are dropped,
// and a DTensor. Others stay as they are.
func (r *reader) fromType(o *pickle.Object) (pickle.Value, error) {
	args := o.Args.Items
	if len(args) < 4 {
		return o, nil
	}
	fn, ok := args[0].(*pickle.Global)
	class, ok2 := args[1].(*pickle.Global)
	inner, ok3 := args[2].(*pickle.Tuple)
	switch {
	case !ok || !ok2 || !ok3:
		return o, nil
	case class.Name == "DTensor":
		return dtensor(o, inner.Items, args[3]), nil
	case fn.Name == "_rebuild_tensor_v2" && class.Module == "torch" && class.Name == "Tensor":
		return r.tensor(o, inner.Items, nil)
	}
	return o, nil
}

// dtensor takes the global shape from the constructor's arguments and the local
// tensor from the state.
func dtensor(o *pickle.Object, args []pickle.Value, state pickle.Value) pickle.Value {
	items, ok := pickle.Sequence(state)
	if !ok || len(items) != 2 || len(args) < 3 {
		return o
	}
	attributes, ok := pickle.AsDict(items[1])
	shape, ok2 := pickle.Ints(args[2])
	if !ok || !ok2 {
		return o
	}
	local, _ := attributes.Get("_local_tensor")
	t, ok := local.(*tensor.Tensor)
	if !ok {
		return o
	}
	spec, _ := attributes.Get("_spec")
	return &DTensor{Local: t, Shape: shape, Spec: spec}
}
