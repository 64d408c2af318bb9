package torchfile

import (
	"slices"
	"strings"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// rebuild makes tensors of the calls that make tensors when a pickle is loaded.
// A call that describes something which strides over a storage cannot tell stays
// as it is.
func (r *reader) rebuild(o *pickle.Object) (pickle.Value, error) {
	if makesTensor(o.Class) {
		return r.tensor(o)
	}
	switch o.Class.Module + "." + o.Class.Name {
	case "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state":
		return r.parameter(o)
	case "torch._tensor._rebuild_from_type_v2":
		return r.fromType(o)
	}
	return o, nil
}

func makesTensor(g *pickle.Global) bool {
	return g.Module == "torch._utils" && (g.Name == "_rebuild_tensor_v2" || g.Name == "_rebuild_tensor_v3")
}

// tensor makes a tensor of the arguments of _rebuild_tensor_v2: storage, start,
// shape, strides, requires_grad, hooks, and perhaps metadata; or of those of
// _rebuild_tensor_v3, which has the element type after hooks.
func (r *reader) tensor(o *pickle.Object) (pickle.Value, error) {
	args := o.Args.Items
	var dtype pickle.Value
	least := 6
	if o.Class.Name == "_rebuild_tensor_v3" {
		least = 7
	}
	if len(args) < least || len(args) > least+1 {
		return nil, corrupt(o.Offset, "%s has %d arguments, expected %d or %d", o.Class.Name, len(args), least, least+1)
	}
	if least == 7 {
		dtype, args = args[6], slices.Delete(slices.Clone(args), 6, 7)
	}
	if _, elsewhere := args[0].(*pickle.Persistent); elsewhere {
		return o, nil
	}
	s, ok := args[0].(*BareStorage)
	start, ok2 := args[1].(int64)
	shape, ok3 := r.sizes(args[2])
	stride, ok4 := r.sizes(args[3])
	grad, ok5 := args[4].(bool)
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 {
		return nil, corrupt(o.Offset, "a tensor is made of %s, %s, %s, %s and %s, expected a storage, an offset, sizes, strides and requires_grad", pickle.Describe(args[0]),
			pickle.Describe(args[1]), pickle.Describe(args[2]), pickle.Describe(args[3]), pickle.Describe(args[4]))
	}
	if len(args) > 6 && marked(args[6]) {
		return o, nil
	}
	d, ok := elementType(s, dtype)
	if !ok {
		return o, nil
	}
	if s.dtype != 0 && s.dtype != d {
		return nil, corrupt(o.Offset, "a tensor of %s is made of a storage of %s", d, s.dtype)
	}
	if _, ok := tensor.Volume(shape); !ok {
		return nil, corrupt(o.Offset, "shape %v is no tensor's", shape)
	}
	if err := tensor.CheckView(shape, stride, start, s.Data.Size()/int64(d.Size())); err != nil {
		return nil, fault.Of(err).At(o.Offset)
	}
	data, err := s.elements(d)
	if err != nil {
		return nil, fault.Of(err).At(o.Offset)
	}
	return &tensor.Tensor{DType: d, Shape: shape, RequiresGrad: grad, Chunks: []tensor.Chunk{{
		Offset: zeros[:len(shape):len(shape)], Shape: shape, Storage: data, Start: start, Stride: stride,
	}}}, nil
}

// marked says whether a tensor's metadata says anything, such as that its
// elements are to be conjugated or negated, which are all that torch knows.
func marked(v pickle.Value) bool {
	d, ok := v.(*pickle.Dict)
	if !ok {
		return v != nil
	}
	return len(d.Pairs) > 2 || slices.ContainsFunc(d.Pairs, func(p pickle.Pair) bool { return p.Value != false })
}

// elementType is the type that a tensor was given, or that of its storage; false
// for one that is not known.
func elementType(s *BareStorage, dtype pickle.Value) (tensor.DType, bool) {
	if dtype == nil {
		return s.dtype, s.dtype != 0
	}
	g, ok := dtype.(*pickle.Global)
	if !ok || g.Module != "torch" {
		return 0, false
	}
	return tensor.Parse(g.Name)
}

// mostDims is how many dimensions a tensor has at most.
const mostDims = 64

// zeros are the offsets of chunks that are whole tensors.
var zeros [mostDims]int64

// sizes reads sizes or strides. A tuple that many tensors share is read once, for
// what it costs in the pickle is a few bytes each time.
func (r *reader) sizes(v pickle.Value) ([]int64, bool) {
	if o, ok := v.(*pickle.Object); ok && o.Class.Module == "torch" && o.Class.Name == "Size" && len(o.Args.Items) == 1 {
		v = o.Args.Items[0]
	}
	t, ok := v.(*pickle.Tuple)
	if !ok || len(t.Items) > mostDims {
		return nil, false
	}
	if sizes, ok := r.ints[t]; ok {
		return sizes, true
	}
	sizes, ok := pickle.Ints(t)
	if ok {
		r.ints[t] = sizes
	}
	return sizes, ok
}

// parameter makes a parameter of a tensor and requires_grad; a third argument is
// hooks, a fourth the attributes of the parameter.
func (r *reader) parameter(o *pickle.Object) (pickle.Value, error) {
	args := o.Args.Items
	if len(args) < 2 {
		return o, nil
	}
	t, ok := args[0].(*tensor.Tensor)
	grad, ok2 := args[1].(bool)
	if !ok || !ok2 {
		return o, nil
	}
	if len(args) > 3 && named(args[3]) {
		r.attributes++
	}
	p := *t
	p.Parameter, p.RequiresGrad = true, grad
	return &p, nil
}

// fromType reads what _rebuild_from_type_v2 makes of a function, a class, the
// function's arguments and a state: a tensor with Python attributes, which are
// dropped, or a DTensor.
func (r *reader) fromType(o *pickle.Object) (pickle.Value, error) {
	args := o.Args.Items
	if len(args) < 4 {
		return o, nil
	}
	function, ok := args[0].(*pickle.Global)
	class, ok2 := args[1].(*pickle.Global)
	inner, ok3 := args[2].(*pickle.Tuple)
	switch {
	case !ok || !ok2 || !ok3:
		return o, nil
	case class.Name == "DTensor":
		return r.dtensor(o, inner, args[3]), nil
	case class.Module != "torch" || class.Name != "Tensor" || !makesTensor(function):
		return o, nil
	}
	v, err := r.tensor(&pickle.Object{Class: function, Args: inner, Offset: o.Offset})
	if _, ok := v.(*tensor.Tensor); !ok {
		return o, err
	}
	if named(args[3]) {
		r.attributes++
	}
	return v, nil
}

// mostNotes is how many attributes of a tensor are looked at.
const mostNotes = 16

// named says whether a state, a dict or a tuple of two, has attributes that
// somebody gave a name: those that begin with an underscore are PyTorch's own notes.
func named(state pickle.Value) bool {
	parts := []pickle.Value{state}
	if t, ok := state.(*pickle.Tuple); ok && len(t.Items) == 2 {
		parts = t.Items
	}
	return slices.ContainsFunc(parts, func(part pickle.Value) bool {
		d, ok := part.(*pickle.Dict)
		return ok && slices.ContainsFunc(d.Pairs[:min(len(d.Pairs), mostNotes)], func(p pickle.Pair) bool {
			name, ok := p.Key.(string)
			return !ok || !strings.HasPrefix(name, "_")
		})
	})
}
