package checkpoint

import (
	"fmt"
	"math"
	"slices"

	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// stateRules are what Gefen's loader demands of one parameter's state, by the
// numbers of docs/rules.md. S1 to S3 are checked where a state is read, and the
// values of tensors by ValidateState.
var stateRules = []struct {
	number string
	check  func(*stateCheck)
}{
	{"S4", (*stateCheck).periodDivides},
	{"S5", (*stateCheck).momentumFirst},
	{"S6", (*stateCheck).periodAlone},
	{"S7", (*stateCheck).momentumWhole},
	{"S8", (*stateCheck).indexPlane},
	{"S9", (*stateCheck).magnitudePlane},
	{"S10", (*stateCheck).vmeanPlane},
	{"S11", (*stateCheck).vmeanCounter},
	{"S12", (*stateCheck).secondMoment},
	{"S13", (*stateCheck).factoredWhole},
	{"S14", (*stateCheck).factoredPlanes},
	{"S15", (*stateCheck).normuon},
	{"W1", (*stateCheck).ages},
}

// CheckState checks the state of parameter p's shard s, and notes what is wrong
// with it.
func (c *Checkpoint) CheckState(p *Param, s *Shard, item string) {
	if s.State == nil {
		return
	}
	k := &stateCheck{c: c, State: s.State, p: p, item: item}
	_, k.local = p.Box(s)
	k.n, _ = tensor.Volume(k.local)
	for _, rule := range stateRules {
		rule.check(k)
	}
}

// stateCheck is one state under the rules.
type stateCheck struct {
	*State
	c     *Checkpoint
	p     *Param
	local []int64 // shape of what the state describes
	n     int64   // its elements
	item  string
}

// bad notes a fault with one key of the state, or with the state for "".
func (k *stateCheck) bad(key, format string, args ...any) {
	k.c.Fault(fault.Corrupt, k.at(key), format, args...)
}

func (k *stateCheck) at(key string) string {
	if key == "" {
		return k.item
	}
	return k.item + "." + key
}

func (k *stateCheck) momentum() bool { return k.Index != nil || k.Magnitude != nil }
func (k *stateCheck) muon() bool     { return k.p.ShardedMode != "" }

// blocks is the number of blocks; false where the period is none.
func (k *stateCheck) blocks() (int64, bool) {
	if k.Period < 1 || k.n == 0 || k.n%k.Period != 0 {
		return 0, false
	}
	return k.n / k.Period, true
}

func (k *stateCheck) periodDivides() {
	if _, ok := k.blocks(); k.Period > 0 && !ok {
		k.bad(KeyPeriod, "the period is %d, which does not divide the %d elements of the shard", k.Period, k.n)
	}
}

func (k *stateCheck) momentumFirst() {
	if k.momentum() {
		return
	}
	if k.Step != Absent || k.Vmean != nil || k.VmeanStep != Absent || k.VRow != nil || k.VCol != nil ||
		k.FactoredStep != Absent || k.NormuonV != nil || k.NormuonStep != Absent {
		k.bad("", "there are counters or a second moment, and no momentum")
	}
}

func (k *stateCheck) periodAlone() {
	if k.Period > 0 && !k.momentum() && !(k.p.Sharded() && k.p.ShardedMode == ModeDistributed) {
		k.bad(KeyPeriod, "there is a period, and no momentum")
	}
}

func (k *stateCheck) momentumWhole() {
	if !k.momentum() {
		return
	}
	if k.Index == nil || k.Magnitude == nil || k.Period == 0 {
		k.bad("", "momentum takes m_codebook, m_magnitude and automatic_period; the state has only some of them")
	}
	if k.Step < 1 {
		k.bad(KeyStep, "the parameter has momentum at step %d, expected at least 1", max(k.Step, 0))
	}
}

// plane checks the type and shape of a tensor.
func (k *stateCheck) plane(key string, t *tensor.Tensor, d tensor.DType, shape ...int64) {
	if t != nil && (t.DType != d || !slices.Equal(t.Shape, shape)) {
		k.bad(key, "it is %s %v, expected %s %v", t.DType, t.Shape, d, shape)
	}
}

func (k *stateCheck) indexPlane() {
	if blocks, ok := k.blocks(); ok {
		k.plane(KeyIndex, k.Index, tensor.Uint8, blocks, k.Period)
	}
}

func (k *stateCheck) magnitudePlane() {
	if blocks, ok := k.blocks(); ok {
		k.plane(KeyMagnitude, k.Magnitude, tensor.Float32, blocks, 1)
	}
}

func (k *stateCheck) vmeanPlane() {
	if blocks, ok := k.blocks(); ok {
		k.plane(KeyVmean, k.Vmean, tensor.Float32, blocks, 1)
	}
}

// vmeanCounter: the counter needs its second moment. A second moment without a
// counter is as old as the momentum: files from before there was one.
func (k *stateCheck) vmeanCounter() {
	if k.momentum() && k.VmeanStep != Absent && k.Vmean == nil {
		k.bad(KeyVmeanStep, "the counter of a second moment that is not there")
	}
}

func (k *stateCheck) secondMoment() {
	switch {
	case !k.momentum() || k.muon():
	case k.VRow != nil || k.VCol != nil:
		if k.FactoredStep == 0 {
			k.bad(KeyFactoredStep, "it is 0, expected at least 1")
		}
	case k.Vmean == nil:
		k.bad("", "there is momentum, and no second moment")
	case k.VmeanStep == 0:
		k.bad(KeyVmeanStep, "it is 0, expected at least 1")
	}
}

func (k *stateCheck) factoredWhole() {
	if (k.VRow == nil) != (k.VCol == nil) || (k.VRow == nil) != (k.FactoredStep == Absent) {
		k.bad("", "v_row, v_col and factored_step come together; the state has only some of them")
	}
}

// factoredPlanes: rows and columns of the whole matrix, also in a shard's state.
func (k *stateCheck) factoredPlanes() {
	switch {
	case k.VRow == nil || k.VCol == nil:
	case len(k.p.Shape) != 2:
		k.bad(KeyVRow, "the second moment is factored, and the parameter has shape %v, expected a matrix", k.p.Shape)
	default:
		k.plane(KeyVRow, k.VRow, tensor.Float32, k.p.Shape[0])
		k.plane(KeyVCol, k.VCol, tensor.Float32, k.p.Shape[1])
	}
}

func (k *stateCheck) normuon() {
	if (k.NormuonV == nil) != (k.NormuonStep == Absent) {
		k.bad("", "normuon_v and normuon_step come together; the state has one of them")
	}
	if k.NormuonV == nil {
		return
	}
	switch {
	case !k.muon():
		k.bad(KeyNormuonV, "NorMuon's state in a group that is not GefenMuon's")
	case len(k.local) != 2:
		k.bad(KeyNormuonV, "NorMuon's state for a parameter of shape %v, expected a matrix", k.p.Shape)
	default:
		k.plane(KeyNormuonV, k.NormuonV, tensor.Float32, k.local[0], 1)
	}
	if k.NormuonStep == 0 {
		k.bad(KeyNormuonStep, "it is 0, expected at least 1")
	}
}

// ages: no counter is ahead of the one that it goes with. A loader does not look.
func (k *stateCheck) ages() {
	if k.Step > k.c.GlobalStep && (k.c.GlobalStep > 0 || k.c.Form == Compact) {
		k.c.Warn(k.at(KeyStep), "the parameter has taken %d steps, and the optimizer %d", k.Step, k.c.GlobalStep)
	}
	for _, own := range []struct {
		key string
		n   int64
	}{{KeyVmeanStep, k.VmeanStep}, {KeyFactoredStep, k.FactoredStep}, {KeyNormuonStep, k.NormuonStep}} {
		if own.n > k.Step && k.Step > 0 {
			k.c.Warn(k.at(own.key), "it is %d, and the parameter has taken %d steps", own.n, k.Step)
		}
	}
}

// Codewords is the number of entries of a codebook.
const Codewords = 256

// CheckCodebook checks a rank's codebook: absent only where no shard has
// momentum, else float32, 256 entries, finite, in order, from -1 to +1 (S16).
func (c *Checkpoint) CheckCodebook(r *Rank, item string) {
	momentum := slices.ContainsFunc(r.Shards, func(s Shard) bool { return s.State != nil && s.State.Index != nil })
	switch {
	case r.Codebook == nil && momentum:
		c.Fault(fault.Corrupt, item, "there are momentum indices, and no codebook")
		return
	case r.Codebook == nil:
		return
	case r.Codebook.DType != tensor.Float32 || !slices.Equal(r.Codebook.Shape, []int64{Codewords}):
		c.Fault(fault.Corrupt, item, "the codebook is %s %v, expected float32 [256]", r.Codebook.DType, r.Codebook.Shape)
		return
	}
	book, err := r.Codebook.Float32s()
	if err == nil {
		err = checkCodewords(book)
	}
	if err != nil {
		c.FaultErr(err, item)
	}
}

func checkCodewords(book []float32) error {
	for i, x := range book {
		if math.IsNaN(float64(x)) || i > 0 && x < book[i-1] {
			return fault.New(fault.Corrupt, "codeword %d is %v after %v, expected them in order", i, x, book[max(i-1, 0)])
		}
	}
	if first, last := book[0], book[len(book)-1]; first != -1 || last != 1 {
		return fault.New(fault.Corrupt, "the codebook reaches from %v to %v, expected -1 to 1", first, last)
	}
	return nil
}

// CheckSteps compares what the ranks say of each parameter: how often they
// stepped it, and whether at all. A loader does not look, and each rank would go
// on by its own count.
func (c *Checkpoint) CheckSteps() {
	for i := range c.Params {
		var seen []agreement
		for r := range c.Ranks {
			s := &c.Ranks[r].Shards[i]
			if n, _ := tensor.Volume(s.LocalShape); n == 0 {
				continue
			}
			steps := [4]int64{Absent, Absent, Absent, Absent}
			if s.State != nil {
				steps = [4]int64{s.State.Step, s.State.VmeanStep, s.State.FactoredStep, s.State.NormuonStep}
			}
			if k := slices.IndexFunc(seen, func(a agreement) bool { return a.steps == steps }); k >= 0 {
				seen[k].ranks++
			} else {
				seen = append(seen, agreement{steps, c.Ranks[r].GlobalRank, 1})
			}
		}
		if len(seen) > 1 {
			a, b := seen[0], seen[1]
			c.Warn(c.Params[i].Name, "the ranks disagree about its steps: %s on rank %d (%d ranks in all), %s on rank %d (%d in all)",
				a, a.first, a.ranks, b, b.first, b.ranks)
		}
	}
}

// agreement are the counters that some ranks have for a parameter.
type agreement struct {
	steps        [4]int64 // step, vmean_step, factored_step, normuon_step
	first, ranks int
}

func (a agreement) String() string {
	if a.steps[0] == Absent {
		return "no state"
	}
	text := fmt.Sprintf("step %d", a.steps[0])
	for i, key := range []string{KeyVmeanStep, KeyFactoredStep, KeyNormuonStep} {
		if n := a.steps[i+1]; n != Absent && n != a.steps[0] {
			text += fmt.Sprintf(", %s %d", key, n)
		}
	}
	return text
}
