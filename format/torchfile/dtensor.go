package torchfile

import (
	"fmt"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
)

// DTensor is a torch.distributed DTensor that was pickled whole: one rank's local
// tensor and how the whole is laid out. How the mesh is told differs from release
// to release, so it is left as it was.
type DTensor struct {
	Local        *tensor.Tensor // may lie in a larger storage: FSDP2 pads shards
	Shape        []int64        // of the whole
	RequiresGrad bool
	Parameter    bool
	Spec         pickle.Value   // DTensorSpec, with the mesh
	Object       *pickle.Object // as it was pickled
}

// Describe is the tensor in a few words, for error texts.
func (d *DTensor) Describe() string {
	return fmt.Sprintf("a DTensor %s %v, placed as %v, of which the file has %v", d.Local.DType, d.Shape, d.Placements(), d.Local.Shape)
}

// dtensor reads a DTensor from the arguments of its constructor (class, type,
// shape, strides, offset, layout, device, requires_grad) and its state (attributes
// as of any tensor, and those of DTensor). What is something else stays an object.
func (r *reader) dtensor(o *pickle.Object, args *pickle.Tuple, state pickle.Value) pickle.Value {
	items, ok := pickle.Sequence(state)
	if !ok || len(items) != 2 || len(args.Items) < 8 {
		return o
	}
	attributes, ok := items[1].(*pickle.Dict)
	shape, ok2 := r.sizes(args.Items[2])
	grad, ok3 := args.Items[7].(bool)
	if !ok || !ok2 || !ok3 {
		return o
	}
	local, _ := attributes.Get("_local_tensor")
	spec, _ := attributes.Get("_spec")
	d := &DTensor{Shape: shape, RequiresGrad: grad, Spec: spec, Object: o}
	if d.Local, ok = local.(*tensor.Tensor); !ok {
		return o
	}
	if general, ok := items[0].(*pickle.Dict); ok {
		parameter, _ := general.Get("_is_param")
		d.Parameter = parameter == true
	}
	return d
}

// Placements say how the whole lies on each dimension of the mesh, as torch
// prints them: "Shard(0)", "Replicate()". They are nil for a spec that is not
// understood.
func (d *DTensor) Placements() []string {
	fields, ok := state(d.Spec)
	if !ok {
		return nil
	}
	v, _ := fields.Get("placements")
	items, _ := pickle.Sequence(v)
	var out []string
	for _, item := range items[:min(len(items), mostDims)] {
		o, ok := item.(*pickle.Object)
		if !ok {
			return nil
		}
		dim := ""
		if fields, ok := state(o); ok {
			if v, ok := fields.Get("dim"); ok {
				dim = pickle.Describe(v)
			}
		}
		out = append(out, o.Class.Name+"("+dim+")")
	}
	return out
}

// state is the dict of an object's attributes.
func state(v pickle.Value) (*pickle.Dict, bool) {
	o, ok := v.(*pickle.Object)
	if !ok || !o.HasState {
		return nil, false
	}
	d, ok := o.State.(*pickle.Dict)
	return d, ok
}
