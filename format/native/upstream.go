package native

import (
	"encoding/binary"
	"io"
	"math"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// Upstream Gefen, which Gefen-X comes from, keeps the same state a little
// otherwise: magnitudes and second moments have the gradient's type; where the
// period is 1, several elements share a magnitude; and there is no counter of the
// second moment, which is as old as the momentum.

// keyUpstreamShape is in every state of upstream Gefen, and in none of Gefen-X.
const keyUpstreamShape = "m_codebook_shape"

// upstreamKeys say in other words what the tensors' shapes do.
var upstreamKeys = map[string]bool{keyUpstreamShape: true, "parameter_shape": true, "period_one_divisor": true}

func isUpstream(d *pickle.Dict) bool {
	_, ok := d.Get(keyUpstreamShape)
	return ok
}

// expand is the state as Gefen-X would have it: float32 throughout, and one
// magnitude for every block. The values are those of the file, exactly.
func expand(d *pickle.Dict) (*pickle.Dict, error) {
	v, _ := d.Get(checkpoint.KeyIndex)
	v, err := tree.Resolve(v)
	if err != nil {
		return nil, err
	}
	index, ok := v.(*tensor.Tensor)
	if !ok || len(index.Shape) != 2 {
		return nil, fault.New(fault.Corrupt, "it is %s, expected a tensor of blocks", tree.Describe(v)).In(checkpoint.KeyIndex)
	}
	out := &pickle.Dict{}
	for _, p := range d.Pairs {
		key, _ := p.Key.(string)
		if upstreamKeys[key] {
			continue
		}
		value, err := tree.Resolve(p.Value)
		if err != nil {
			return nil, fault.Within(err, "", key)
		}
		if t, ok := value.(*tensor.Tensor); ok && (key == checkpoint.KeyMagnitude || key == checkpoint.KeyVmean) {
			if value, err = perBlock(t, index.Shape[0]); err != nil {
				return nil, fault.Within(err, "", key)
			}
		}
		out.Set(p.Key, value)
	}
	if _, ok := out.Get(checkpoint.KeyVmeanStep); !ok {
		if step, ok := out.Get(checkpoint.KeyStep); ok {
			out.Set(checkpoint.KeyVmeanStep, step)
		}
	}
	return out, nil
}

// perBlock is a plane as float32 (blocks, 1), each value repeated for as many
// blocks as share it.
func perBlock(t *tensor.Tensor, blocks int64) (*tensor.Tensor, error) {
	n := t.Len()
	if n == 0 || blocks%n != 0 {
		return nil, fault.New(fault.Corrupt, "there are %d values for %d blocks", n, blocks)
	}
	if _, ok := widths[t.DType]; !ok {
		return nil, fault.New(fault.Corrupt, "it is %s, expected floating-point numbers", t.DType)
	}
	shape := []int64{blocks, 1}
	if t.DType == tensor.Float32 && n == blocks {
		same := *t
		return &same, nil
	}
	return &tensor.Tensor{DType: tensor.Float32, Shape: shape, Chunks: []tensor.Chunk{tensor.Whole(shape, &repeated{t, blocks / n})}}, nil
}

// widths are the types that can be widened to float32, and how.
var widths = map[tensor.DType]func(b []byte) uint32{
	tensor.Float32:  binary.LittleEndian.Uint32,
	tensor.BFloat16: func(b []byte) uint32 { return uint32(binary.LittleEndian.Uint16(b)) << 16 },
	tensor.Float16:  func(b []byte) uint32 { return fromHalf(binary.LittleEndian.Uint16(b)) },
}

// fromHalf is the float32 with the value of a float16.
func fromHalf(h uint16) uint32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0: // zero or subnormal: fraction * 2^-24
		return sign | math.Float32bits(float32(fraction)*0x1p-24)
	case 0x1f:
		return sign | 0x7f800000 | fraction<<13
	}
	return sign | (exponent+112)<<23 | fraction<<13
}

// repeated is a plane of float32 whose every value stands several times. It is a
// tensor.Storage.
type repeated struct {
	t     *tensor.Tensor
	times int64
}

// Size is in bytes.
func (r *repeated) Size() int64 { return 4 * r.t.Len() * r.times }

// ReadAt widens the values around the range, a few at a time.
func (r *repeated) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= r.Size() {
		return 0, io.EOF
	}
	const most = 1 << 12 // values read at once
	widen, size := widths[r.t.DType], int64(r.t.DType.Size())
	end := min(off+int64(len(p)), r.Size())
	raw := make([]byte, most*size)
	var word [4]byte
	for at := off; at < end; {
		first := at / 4 / r.times
		n := min(most, (end-1)/4/r.times-first+1)
		if err := r.t.ReadAt(raw[:n*size], first); err != nil {
			return int(at - off), err
		}
		for ; at < end && at/4/r.times < first+n; at++ {
			if at%4 == 0 || at == off {
				i := at/4/r.times - first
				binary.LittleEndian.PutUint32(word[:], widen(raw[i*size:]))
			}
			p[at-off] = word[at%4]
		}
	}
	if end-off < int64(len(p)) {
		return int(end - off), io.EOF
	}
	return len(p), nil
}
