package reshard

import (
	"math"
	"slices"
	"testing"

	"gefenckpt/gefen"
)

// TestCoarsenByDefinition makes blocks that span several source blocks, shorter
// and longer than a window, and compares them with the definition.
func TestCoarsenByDefinition(t *testing.T) {
	rng := newRand(6)
	for n := range 60 {
		k := &maker{rng: rng, world: 1 + rng.IntN(3), params: 1, rows: 30, width: 20, codewords: 256, everywhere: true}
		if n%20 == 0 {
			k.rows, k.width = 60, 5000
		}
		m := k.source()
		p := &m.topology.Params[0]
		ranks, _ := m.topology.layout(1)
		r := &ranks[0]
		r.Codebook = k.codebook()
		near := gefen.NewQuantizer(r.Codebook)
		if err := r.remap(m, r.sources(), nearest(near)); err != nil {
			t.Fatal(err)
		}
		all := divisors(r.Shards[0].Elements)
		q := all[rng.IntN(len(all))]
		if k.width > 20 {
			q = all[len(all)-1-rng.IntN(min(3, len(all)))]
		}
		r.Shards[0].settle(r, p, q, None)
		if r.Shards[0].Operation != Coarsen {
			continue
		}
		plan := &Plan{Ranks: ranks, topology: &m.topology}
		got := &made(t, plan, m, rng).states[0][0]
		momentum, second := m.whole(0)
		o := newOutlook(p, &r.Shards[0])
		for b := range got.magnitudes {
			from := int64(b) * q
			block := momentum[from : from+q]
			magnitude := gefen.AbsMax(block)
			if a := magnitudes(m, 0)[from : from+q]; allSame(a) {
				magnitude = a[0]
			}
			vmean := blendByDefinition(second[from:from+q], &o)
			if !same(got.magnitudes[b], magnitude) || math.Abs(float64(got.vmeans[b]-vmean)) > 1e-6*float64(vmean) {
				t.Fatalf("case %d block %d of %d: magnitude %v and second moment %v, want %v and %v",
					n, b, q, got.magnitudes[b], got.vmeans[b], magnitude, vmean)
			}
			checkIndices(t, got, b, block, r.Codebook, near)
		}
	}
}

func nearest(q *gefen.Quantizer) func(float32) uint8 {
	return func(v float32) uint8 {
		var index [1]uint8
		q.Nearest(index[:], []float32{v})
		return index[0]
	}
}

// magnitudes are those of every element.
func magnitudes(m *memory, param int) []float32 {
	var out []float32
	p := &m.topology.Params[param]
	for _, pc := range p.pieces(0, p.Rows()) {
		s := &m.states[param][pc.Source]
		for i := range s.index {
			out = append(out, s.magnitudes[int64(i)/s.period])
		}
	}
	return out
}

func allSame(x []float32) bool {
	return !slices.ContainsFunc(x, func(v float32) bool { return !same(v, x[0]) })
}

func blendByDefinition(second []float32, o *outlook) float32 {
	if allSame(second) {
		return second[0]
	}
	var w, wy float64
	for _, v := range second {
		if g := float64(v) / o.bc2; g > 0 {
			w += g
			wy += g / (math.Sqrt(g) + o.eps)
		}
	}
	h := w/wy - o.eps
	return float32(h * h * o.bc2)
}

// checkIndices demands that no other codeword is nearer to any element.
func checkIndices(t *testing.T, got *state, b int, block []float32, book *gefen.Codebook, near *gefen.Quantizer) {
	t.Helper()
	scale := got.magnitudes[b]
	for e, v := range block {
		index := got.index[int64(b)*got.period+int64(e)]
		if scale == 0 {
			continue
		}
		is := math.Abs(float64(book[index]) - float64(v)/float64(scale))
		best := math.Abs(float64(book[nearest(near)(v/scale)]) - float64(v)/float64(scale))
		if is > best+1e-6 {
			t.Fatalf("element %d is %v from its value, another codeword %v", e, is, best)
		}
	}
}

// TestPlanesInAnyOrder reads parts of the planes in random order from one Planes.
func TestPlanesInAnyOrder(t *testing.T) {
	rng := newRand(7)
	k := &maker{rng: rng, world: 3, params: 4, rows: 50, width: 30, codewords: 256, everywhere: true}
	m := k.source()
	plan, err := New(&m.topology, m, Options{World: 2, Fidelity: Balanced, MaxGrowth: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	want := made(t, plan, m, nil)
	for i := range m.topology.Params {
		x, err := plan.Open(m, 0, i)
		if err != nil {
			t.Fatal(err)
		}
		whole := &want.states[i][0]
		for range 50 {
			from, to := span(rng.IntN, len(whole.index))
			index := make([]uint8, to-from)
			if err := x.Indices(index, int64(from)); err != nil || string(index) != string(whole.index[from:to]) {
				t.Fatalf("indices %d to %d differ, error %v", from, to, err)
			}
			from, to = span(rng.IntN, len(whole.magnitudes))
			values := make([]float32, to-from)
			if err := x.Magnitudes(values, int64(from)); err != nil || !slices.Equal(values, whole.magnitudes[from:to]) {
				t.Fatalf("magnitudes %d to %d differ, error %v", from, to, err)
			}
			if err := x.Vmeans(values, int64(from)); err != nil || !slices.Equal(values, whole.vmeans[from:to]) {
				t.Fatalf("second moments %d to %d differ, error %v", from, to, err)
			}
		}
	}
}

func span(intn func(int) int, n int) (from, to int) {
	from = intn(n)
	return from, from + 1 + intn(n-from)
}
