package dense

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"sort"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/dcp"
	"gefenckpt/format/moments"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/gefen"
	"gefenckpt/internal/fault"
)

// KeyOrigin is where a dense directory that gefenckpt wrote keeps what the slots
// do not say of the compact checkpoint it was made from; see the package comment.
const KeyOrigin = "gefenckpt"

// The keys below KeyOrigin.
const (
	keyOriginVersion = "version"
	keyDescription   = "description"
	keyCodebooks     = "codebooks"
	keyPeriods       = "periods"
	keySteps         = "steps"
	keyVmeanSteps    = "vmean_steps"
	keyMagnitude     = "magnitude"
	keyIndex         = "index"
	keyStored        = "stored_indices"
)

// originVersion is the version of this format.
const originVersion = 1

// Remember makes what stands under KeyOrigin beside the slots of c, a compact
// checkpoint: with it, [Restore] gives back c in every byte. It reads the indices
// once. Where a dense directory cannot lead back to c (not all parameters are
// Shard(0), or a state has more than plain Gefen's), it returns nil.
func Remember(ctx context.Context, c *checkpoint.Checkpoint) (*pickle.Dict, error) {
	if !restorable(c) {
		return nil, nil
	}
	n := int64(len(c.Ranks))
	shape := []int64{int64(len(c.Params)), n}
	var periods, steps, vmeanSteps []int64
	books := make([]float32, n*checkpoint.Codewords)
	for r := range c.Ranks {
		if t := c.Ranks[r].Codebook; t != nil {
			book, err := moments.Codebook(t)
			if err != nil {
				return nil, err
			}
			copy(books[r*checkpoint.Codewords:], book[:])
		}
	}
	for p := range c.Params {
		for r := range c.Ranks {
			period, step, vmeanStep := int64(0), int64(0), int64(0)
			if s := c.Ranks[r].Shards[p].State; s != nil {
				period, step, vmeanStep = s.Period, s.Step, s.VmeanStep
			}
			periods, steps, vmeanSteps = append(periods, period), append(steps, step), append(vmeanSteps, vmeanStep)
		}
	}
	out := pickle.NewDict(
		keyOriginVersion, tensor.FromInt64(originVersion),
		keyDescription, pickle.NewTuple(describe(c)),
		keyCodebooks, tensor.FromFloat32s([]int64{n, checkpoint.Codewords}, books),
		keyPeriods, integers(shape, periods), keySteps, integers(shape, steps), keyVmeanSteps, integers(shape, vmeanSteps),
	)
	flags := make([]byte, len(c.Params)*len(c.Ranks))
	for p := range c.Params {
		if err := rememberPlanes(ctx, out, c, p, flags[p*len(c.Ranks):]); err != nil {
			return nil, fault.Within(err, "", c.Params[p].Name)
		}
	}
	out.Set(keyStored, tensor.FromBytes(tensor.Uint8, shape, flags))
	return out, nil
}

// restorable says whether the slots and KeyOrigin hold all that c does.
func restorable(c *checkpoint.Checkpoint) bool {
	if c.Form != checkpoint.Compact || c.Optimizer != checkpoint.Gefen || c.Mesh == nil || len(c.Ranks) == 0 || len(c.Ranks) != c.World {
		return false
	}
	if slices.ContainsFunc(c.Params, func(p checkpoint.Param) bool { return !p.Placement.Rows() }) {
		return false
	}
	for r := range c.Ranks {
		momentum := false
		for _, s := range c.Ranks[r].Shards {
			t := s.State
			momentum = momentum || t != nil
			if t != nil && (t.Index == nil || t.Magnitude == nil || t.Vmean == nil || t.VRow != nil || t.NormuonV != nil || t.Extra != nil) {
				return false
			}
		}
		if momentum != (c.Ranks[r].Codebook != nil) {
			return false
		}
	}
	return true
}

// describe is what is plain data: mesh, parameters and groups.
func describe(c *checkpoint.Checkpoint) *pickle.Dict {
	mesh := pickle.NewDict("device_type", c.Mesh.DeviceType, "dim_names", pickle.StringList(c.Mesh.DimNames), "ranks", pickle.IntList(c.Mesh.Ranks))
	params, groups := &pickle.List{}, &pickle.List{}
	for i := range c.Params {
		p := &c.Params[i]
		params.Items = append(params.Items, pickle.NewDict("fqn", p.FQN, "dtype", p.DType, "local_dtype", p.LocalDType,
			"requires_grad", p.Grad, "module", p.Placement.Module))
	}
	for _, g := range c.Groups {
		groups.Items = append(groups.Items, g.Fields)
	}
	return pickle.NewDict("mesh", mesh, "rows_by", rowsBy(c), "params", params, "groups", groups)
}

// What the ranks' rows follow.
const (
	byRank       = "rank"
	byCoordinate = "coordinate"
)

// rowsBy says what the rows follow; it matters only in a permuted mesh.
func rowsBy(c *checkpoint.Checkpoint) string {
	for _, rank := range c.Ranks {
		for p, s := range rank.Shards {
			if row, _ := checkpoint.ChunkRows(c.Params[p].Rows(), c.World, rank.GlobalRank); row != s.Row {
				return byCoordinate
			}
		}
	}
	return byRank
}

func integers(shape, values []int64) *tensor.Tensor {
	data := make([]byte, 0, 8*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, uint64(v))
	}
	return tensor.FromBytes(tensor.Int64, shape, data)
}

// rememberPlanes adds the magnitudes of one parameter and, of the ranks where
// they do not follow from momentum and magnitude, the indices. It sets the flags
// of these ranks.
func rememberPlanes(ctx context.Context, out *pickle.Dict, c *checkpoint.Checkpoint, p int, flags []byte) error {
	magnitudes, indices := make([]*tensor.Tensor, len(c.Ranks)), make([]*tensor.Tensor, len(c.Ranks))
	some, unclear := false, false
	for r := range c.Ranks {
		s := c.Ranks[r].Shards[p].State
		if s == nil {
			continue
		}
		some = true
		magnitudes[r] = flattened(s.Magnitude)
		book, err := moments.Codebook(c.Ranks[r].Codebook)
		if err != nil {
			return err
		}
		clear, err := recoverable(ctx, s, book)
		if err != nil {
			return err
		}
		if !clear {
			unclear, flags[r] = true, 1
			indices[r] = flattened(s.Index)
		}
	}
	if some {
		out.Set(slotKey(p, keyMagnitude), &dcp.Sharded{Parts: magnitudes})
	}
	if unclear {
		out.Set(slotKey(p, keyIndex), &dcp.Sharded{Parts: indices})
	}
	return nil
}

// flattened is a plane in one dimension.
func flattened(t *tensor.Tensor) *tensor.Tensor {
	return &tensor.Tensor{DType: t.DType, Shape: []int64{t.Len()}, Content: t.Data()}
}

// scanElements is how many elements are looked at at a time.
const scanElements = 1 << 16

// recoverable says whether every index of a state follows from its momentum and
// magnitude, which is so but where codewords repeat or all but vanish.
func recoverable(ctx context.Context, s *checkpoint.State, book *gefen.Codebook) (bool, error) {
	zero := nearestZero(book)
	f := finder{book: book, zero: zero, negativeZero: zero}
	index := make([]byte, min(s.Index.Len(), scanElements))
	var seen [256]bool // codes of the block at hand that were found to be recoverable
	var magnitudes floats
	block := int64(-1)
	for from := int64(0); from < s.Index.Len(); from += scanElements {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		b := index[:min(int64(len(index)), s.Index.Len()-from)]
		if err := s.Index.ReadAt(b, from); err != nil {
			return false, err
		}
		first := from / s.Period
		values, err := magnitudes.read(s.Magnitude, first, (from+int64(len(b))-1)/s.Period-first+1)
		if err != nil {
			return false, err
		}
		for i, code := range b {
			if at := (from + int64(i)) / s.Period; at != block {
				block, seen = at, [256]bool{}
			}
			if seen[code] {
				continue
			}
			magnitude := values[block-first]
			if found, ok := f.find(float32(book[code]*magnitude), magnitude); !ok || found != code {
				return false, nil
			}
			seen[code] = true
		}
	}
	return true, nil
}

// finder finds the index that an element was stored with.
type finder struct {
	book *gefen.Codebook
	// The indices of the elements of a block of zeros, by their sign.
	zero, negativeZero uint8
}

// find is the first index whose codeword times the magnitude is m, to the bit of
// float32; false if there is none.
func (f *finder) find(m, magnitude float32) (uint8, bool) {
	if magnitude == 0 {
		if math.Signbit(float64(m)) {
			return f.negativeZero, m == 0
		}
		return f.zero, m == 0
	}
	i := sort.Search(len(f.book), func(i int) bool { return float32(f.book[i]*magnitude) >= m })
	return uint8(i), i < len(f.book) && float32(f.book[i]*magnitude) == m
}

// nearestZero is the index that Gefen gives to a zero: of the codewords around it
// the nearer, and of two as near the one below.
func nearestZero(book *gefen.Codebook) uint8 {
	i := sort.Search(len(book), func(i int) bool { return book[i] >= 0 })
	if i > 0 && -book[i-1] <= book[i] {
		i--
	}
	return uint8(i)
}

// floats reads float32 planes through a buffer.
type floats struct {
	raw    []byte
	values []float32
}

// read returns n values from number from on, valid until the next call.
func (f *floats) read(t *tensor.Tensor, from, n int64) ([]float32, error) {
	f.raw = slices.Grow(f.raw[:0], int(4*n))[:4*n]
	f.values = slices.Grow(f.values[:0], int(n))[:n]
	if err := t.ReadAt(f.raw, from); err != nil {
		return nil, err
	}
	for i := range f.values {
		f.values[i] = math.Float32frombits(binary.LittleEndian.Uint32(f.raw[4*i:]))
	}
	return f.values, nil
}
