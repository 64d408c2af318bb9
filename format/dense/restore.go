package dense

import (
	"encoding/binary"
	"io"
	"sync"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/gefen"
	"gefenckpt/internal/fault"
)

// Restore gives back the compact checkpoint that a dense directory of gefenckpt
// was made from: the same ranks, codebooks, blocks, indices and names. Its planes
// are read from the slots, element by element when they are needed; where these
// were changed since, reading is a Corrupt fault. The error says that c remembers
// nothing, or something that contradicts its slots.
func Restore(c *checkpoint.Checkpoint) (*checkpoint.Checkpoint, error) {
	if c.Origin == nil {
		return nil, fault.New(fault.Unsupported, "the directory does not say how the ranks' states looked before they were expanded").
			WithHint("only gefenckpt's own dense directories do")
	}
	out, err := restore(c)
	return out, fault.Within(err, c.Path, KeyOrigin)
}

func restore(c *checkpoint.Checkpoint) (*checkpoint.Checkpoint, error) {
	o, err := readOrigin(c)
	if err != nil {
		return nil, err
	}
	out := *c
	out.Form, out.Slots, out.World, out.Mesh = checkpoint.Compact, nil, o.world, o.mesh
	out.Params = append([]checkpoint.Param(nil), c.Params...)
	out.Groups = append([]checkpoint.Group(nil), c.Groups...)
	if err := o.describe(&out); err != nil {
		return nil, err
	}
	out.Ranks = make([]checkpoint.Rank, o.world)
	for r := range out.Ranks {
		rank := &out.Ranks[r]
		rank.GlobalRank, rank.Coordinate = r, o.coordinates[r]
		rank.Shards = make([]checkpoint.Shard, len(out.Params))
	}
	for p := range out.Params {
		if err := o.shards(&out, p); err != nil {
			return nil, fault.Within(err, "", out.Params[p].Name)
		}
	}
	return &out, nil
}

// origin is what stands under KeyOrigin.
type origin struct {
	c                         *checkpoint.Checkpoint
	world                     int
	mesh                      *checkpoint.Mesh
	coordinates               []int // by rank
	byCoordinate              bool  // rows follow the coordinates, and not the ranks
	description               *pickle.Dict
	codebooks                 *tensor.Tensor
	books                     []func() (*finder, error) // by rank
	periods, steps, vmeanStep []int64                   // by parameter and rank
	stored                    []byte                    // likewise: 1 where the indices are
}

func readOrigin(c *checkpoint.Checkpoint) (*origin, error) {
	o := &origin{c: c}
	if v, err := checkpoint.Counter(o.get(keyOriginVersion)); err != nil || v != originVersion {
		return nil, fault.New(fault.Unsupported, "it is of version %s, expected %d", tree.Describe(o.get(keyOriginVersion)), originVersion).
			WithHint("use the gefenckpt that wrote the directory, or a newer one")
	}
	tuple, _ := pickle.Sequence(o.get(keyDescription))
	if len(tuple) == 1 {
		o.description, _ = pickle.AsDict(tuple[0])
	}
	var ok bool
	o.codebooks, ok = o.get(keyCodebooks).(*tensor.Tensor)
	if o.description == nil || !ok || o.codebooks.DType != tensor.Float32 || len(o.codebooks.Shape) != 2 || o.codebooks.Shape[1] != checkpoint.Codewords || o.codebooks.Shape[0] < 1 || o.codebooks.Shape[0] > 1<<20 {
		return nil, fault.New(fault.Corrupt, "description or codebooks are missing, or of another kind")
	}
	o.world = int(o.codebooks.Shape[0])
	for _, table := range []struct {
		key string
		to  *[]int64
	}{{keyPeriods, &o.periods}, {keySteps, &o.steps}, {keyVmeanSteps, &o.vmeanStep}} {
		if err := o.table(table.key, table.to); err != nil {
			return nil, fault.Within(err, "", table.key)
		}
	}
	t, ok := o.get(keyStored).(*tensor.Tensor)
	if !ok || t.DType != tensor.Uint8 || t.Len() != int64(len(o.periods)) {
		return nil, fault.New(fault.Corrupt, "it is %s, expected uint8 for each parameter and rank", tree.Describe(o.get(keyStored))).In(keyStored)
	}
	var err error
	if o.stored, err = t.ReadAll(); err != nil {
		return nil, err
	}
	o.books = make([]func() (*finder, error), o.world)
	for r := range o.books {
		o.books[r] = sync.OnceValues(func() (*finder, error) { return o.finder(r) })
	}
	return o, o.readMesh()
}

func (o *origin) get(key string) pickle.Value {
	v, _ := o.c.Origin.Get(key)
	if v, err := tree.Resolve(v); err == nil {
		return v
	}
	return nil
}

// table reads an int64 tensor of one number for each parameter and rank.
func (o *origin) table(key string, to *[]int64) error {
	t, ok := o.get(key).(*tensor.Tensor)
	params := int64(len(o.c.Params))
	if !ok || t.DType != tensor.Int64 || len(t.Shape) != 2 || t.Shape[0] != params || t.Shape[1] != int64(o.world) {
		return fault.New(fault.Corrupt, "it is %s, expected int64 [%d %d]", tree.Describe(o.get(key)), params, o.world)
	}
	data, err := t.ReadAll()
	if err != nil {
		return err
	}
	for ; len(data) >= 8; data = data[8:] {
		*to = append(*to, int64(binary.LittleEndian.Uint64(data)))
	}
	return nil
}

func (o *origin) readMesh() error {
	d, ok := pickle.AsDict(value(o.description, "mesh"))
	if !ok {
		return fault.New(fault.Corrupt, "there is no mesh").In(keyDescription)
	}
	o.byCoordinate = value(o.description, "rows_by") == byCoordinate
	m := &checkpoint.Mesh{Shape: []int64{int64(o.world)}}
	m.DeviceType, _ = value(d, "device_type").(string)
	m.DimNames, _ = pickle.Strings(value(d, "dim_names"))
	m.Ranks, _ = pickle.Ints(value(d, "ranks"))
	ranks, ok := permutation(m.Ranks, o.world)
	if !ok {
		return fault.New(fault.Corrupt, "the mesh has the ranks %s, in a world of %d", tree.Describe(value(d, "ranks")), o.world).In(keyDescription)
	}
	o.coordinates = make([]int, o.world)
	for at, rank := range ranks {
		o.coordinates[rank] = at
	}
	o.mesh = m
	return nil
}

// place is the position of a rank along the sharded dimension.
func (o *origin) place(rank int) int {
	if o.byCoordinate {
		return o.coordinates[rank]
	}
	return rank
}

// permutation is a list that has each of 0 to world-1 once.
func permutation(list []int64, world int) ([]int, bool) {
	if len(list) != world {
		return nil, false
	}
	out, seen := make([]int, world), make([]bool, world)
	for i, v := range list {
		if v < 0 || v >= int64(world) || seen[v] {
			return nil, false
		}
		out[i], seen[v] = int(v), true
	}
	return out, true
}

func value(d *pickle.Dict, key string) pickle.Value { v, _ := d.Get(key); return v }

// describe completes parameters and groups.
func (o *origin) describe(out *checkpoint.Checkpoint) error {
	params, ok := pickle.Sequence(value(o.description, "params"))
	groups, ok2 := pickle.Sequence(value(o.description, "groups"))
	if !ok || !ok2 || len(params) != len(out.Params) || len(groups) != len(out.Groups) {
		return fault.New(fault.Corrupt, "it is of %d parameters in %d groups, and there are %d in %d", len(params), len(groups), len(out.Params), len(out.Groups)).In(keyDescription)
	}
	for i, v := range params {
		d, ok := pickle.AsDict(v)
		if !ok {
			return fault.New(fault.Corrupt, "parameter %d is %s", i, tree.Describe(v)).In(keyDescription)
		}
		p := &out.Params[i]
		p.FQN, _ = value(d, "fqn").(string)
		p.DType, _ = value(d, "dtype").(string)
		p.LocalDType, _ = value(d, "local_dtype").(string)
		p.Grad, _ = value(d, "requires_grad").(bool)
		p.Placement.Module, _ = value(d, "module").(string)
	}
	for i, v := range groups {
		d, ok := pickle.AsDict(v)
		if !ok {
			return fault.New(fault.Corrupt, "group %d is %s", i, tree.Describe(v)).In(keyDescription)
		}
		out.Groups[i].Fields = d
	}
	return nil
}

func (o *origin) finder(rank int) (*finder, error) {
	var f floats
	values, err := f.read(o.codebooks, int64(rank)*checkpoint.Codewords, checkpoint.Codewords)
	if err != nil {
		return nil, err
	}
	book := gefen.Codebook(values)
	zero := nearestZero(&book)
	return &finder{&book, zero, zero}, nil
}

// shards makes the shards of one parameter on all ranks.
func (o *origin) shards(out *checkpoint.Checkpoint, p int) error {
	param, slot := &out.Params[p], &o.c.Slots[p]
	width, ok := tensor.Volume(param.Shape[min(1, len(param.Shape)):])
	if !ok || len(param.Shape) == 0 {
		return fault.New(fault.Corrupt, "a parameter of shape %v is not sharded", param.Shape)
	}
	magnitudes, _ := o.get(slotKey(p, keyMagnitude)).(*tensor.Tensor)
	indices, _ := o.get(slotKey(p, keyIndex)).(*tensor.Tensor)
	var blocksBefore, indicesBefore int64
	for r := range out.Ranks {
		rank := &out.Ranks[r]
		s := &rank.Shards[p]
		s.LocalShape, s.Row = checkpoint.ChunkShape(param.Shape, o.world, o.place(r))
		at := p*o.world + r
		period := o.periods[at]
		if period == 0 {
			continue
		}
		n := s.LocalShape[0] * width
		if period < 0 || n == 0 || n%period != 0 || slot.Momentum == nil || slot.SecondMoment == nil {
			return fault.New(fault.Corrupt, "rank %d has blocks of %d in a shard of %d", r, period, n)
		}
		blocks := n / period
		if magnitudes == nil || magnitudes.DType != tensor.Float32 || magnitudes.Len()-blocksBefore < blocks {
			return fault.New(fault.Corrupt, "there are too few magnitudes")
		}
		if rank.Codebook == nil {
			rank.Codebook = view(o.codebooks, int64(r)*checkpoint.Codewords, checkpoint.Codewords)
		}
		from := s.Row * width
		state := &checkpoint.State{Period: period, Step: o.steps[at], VmeanStep: o.vmeanStep[at], FactoredStep: checkpoint.Absent, NormuonStep: checkpoint.Absent,
			Magnitude: view(magnitudes, blocksBefore, blocks, blocks, 1),
			Vmean:     stored(tensor.Float32, &sampled{slot.SecondMoment, from, period, blocks}, blocks, 1)}
		if o.stored[at] != 0 {
			if indices == nil || indices.DType != tensor.Uint8 || indices.Len()-indicesBefore < n {
				return fault.New(fault.Corrupt, "there are too few indices")
			}
			state.Index = view(indices, indicesBefore, n, blocks, period)
			indicesBefore += n
		} else {
			state.Index = stored(tensor.Uint8, &found{o.books[r], slot.Momentum, state.Magnitude, from, period, n}, blocks, period)
		}
		blocksBefore += blocks
		s.State = state
	}
	return nil
}

// stored is a tensor over a storage of its own.
func stored(d tensor.DType, s tensor.Storage, shape ...int64) *tensor.Tensor {
	return &tensor.Tensor{DType: d, Shape: shape, Chunks: []tensor.Chunk{tensor.Whole(shape, s)}}
}

// view is n elements of t from number from on, in another shape, (n,) if none is
// given.
func view(t *tensor.Tensor, from, n int64, shape ...int64) *tensor.Tensor {
	if shape == nil {
		shape = []int64{n}
	}
	return stored(t.DType, &window{t, from, n}, shape...)
}

// window is a range of a tensor's elements. It is a tensor.Storage.
type window struct {
	t       *tensor.Tensor
	from, n int64
}

// Size is in bytes.
func (w *window) Size() int64 { return w.n * int64(w.t.DType.Size()) }

// ReadAt reads whole elements around the range.
func (w *window) ReadAt(p []byte, off int64) (int, error) {
	return readElements(p, off, w.n, w.t.DType.Size(), func(dst []byte, from int64) error {
		return w.t.ReadAt(dst, w.from+from)
	})
}

// readElements serves a read at any byte of n elements by reads of whole elements,
// a bounded number at a time.
func readElements(p []byte, off, n int64, size int, read func(dst []byte, from int64) error) (int, error) {
	width := int64(size)
	end := min(off+int64(len(p)), n*width)
	if off < 0 || off >= n*width {
		return 0, io.EOF
	}
	for at := off; at < end; {
		first := at / width
		count := min(scanElements, (end-1)/width-first+1)
		if at%width == 0 && at+count*width <= end { // whole elements: in place
			if err := read(p[at-off:at-off+count*width], first); err != nil {
				return int(at - off), err
			}
			at += count * width
			continue
		}
		whole := make([]byte, count*width)
		if err := read(whole, first); err != nil {
			return int(at - off), err
		}
		at += int64(copy(p[at-off:end-off], whole[at-first*width:]))
	}
	if end-off < int64(len(p)) {
		return int(end - off), io.EOF
	}
	return len(p), nil
}

// sampled is every step-th element of a float32 tensor: the second moment of a
// block from that of its elements. It is a tensor.Storage.
type sampled struct {
	t             *tensor.Tensor
	from, step, n int64
}

// Size is in bytes.
func (s *sampled) Size() int64 { return 4 * s.n }

// ReadAt reads the elements between too, where that takes fewer reads.
func (s *sampled) ReadAt(p []byte, off int64) (int, error) {
	return readElements(p, off, s.n, 4, func(dst []byte, from int64) error {
		perRead := max(1, scanElements/s.step)
		span := make([]byte, 4*((min(perRead, int64(len(dst)/4))-1)*s.step+1))
		for len(dst) > 0 {
			k := min(perRead, int64(len(dst)/4))
			b := span[:4*((k-1)*s.step+1)]
			if err := s.t.ReadAt(b, s.from+from*s.step); err != nil {
				return err
			}
			for i := range k {
				copy(dst[4*i:4*i+4], b[4*i*s.step:])
			}
			dst, from = dst[4*k:], from+k
		}
		return nil
	})
}

// found are the indices of a shard, from its momentum and magnitudes. It is a
// tensor.Storage.
type found struct {
	book            func() (*finder, error)
	momentum        *tensor.Tensor // of the whole parameter
	magnitude       *tensor.Tensor // of the shard
	from, period, n int64          // the shard's first element, its blocks, its elements
}

// Size is in bytes.
func (x *found) Size() int64 { return x.n }

// ReadAt finds the indices of the range.
func (x *found) ReadAt(p []byte, off int64) (int, error) {
	return readElements(p, off, x.n, 1, x.find)
}

func (x *found) find(dst []byte, from int64) error {
	f, err := x.book()
	if err != nil {
		return err
	}
	var m, magnitudes floats
	values, err := m.read(x.momentum, x.from+from, int64(len(dst)))
	if err != nil {
		return err
	}
	first := from / x.period
	scale, err := magnitudes.read(x.magnitude, first, (from+int64(len(dst))-1)/x.period-first+1)
	if err != nil {
		return err
	}
	for i, v := range values {
		magnitude := scale[(from+int64(i))/x.period-first]
		var ok bool
		if dst[i], ok = f.find(v, magnitude); !ok {
			return fault.New(fault.Corrupt, "element %d of the momentum is %v, which no codeword times its block's magnitude %v gives: the slots were changed after gefenckpt wrote them",
				x.from+from+int64(i), v, magnitude).WithHint("convert the directory without what it remembers")
		}
	}
	return nil
}
