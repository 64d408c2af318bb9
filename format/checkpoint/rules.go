package checkpoint

import (
	"slices"

	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// CheckState checks one state against the rules of a real loader that need no
// tensor data. shape is the parameter's whole shape, local the shape that the
// state describes; muon says whether the parameter is in a Muon group.
//
// Rule numbers S3 to S15 are those of docs/rules.md.
func (c *Checkpoint) CheckState(s *State, shape, local []int64, muon bool, item string) {
	bad := func(key, format string, args ...any) {
		if key != "" {
			key = item + "." + key
		} else {
			key = item
		}
		c.Fault(fault.Corrupt, key, format, args...)
	}
	n, _ := tensor.Volume(local)
	momentum := s.Index != nil || s.Magnitude != nil
	others := s.Step != Absent || s.Vmean != nil || s.VmeanStep != Absent || s.VRow != nil || s.VCol != nil ||
		s.FactoredStep != Absent || s.NormuonV != nil || s.NormuonStep != Absent
	if !momentum { // S5, S6
		if others {
			bad("", "counters or a second moment without momentum")
		}
		return
	}
	switch { // S4, S7
	case s.Index == nil || s.Magnitude == nil:
		bad("", "momentum needs both m_codebook and m_magnitude")
		return
	case s.Period < 1:
		bad(KeyPeriod, "momentum without a period")
		return
	case n == 0 || n%s.Period != 0:
		bad(KeyPeriod, "period %d does not divide the %d elements of the shard", s.Period, n)
		return
	case s.Step < 1:
		bad(KeyStep, "momentum at step %d, expected at least 1", max(s.Step, 0))
	}
	blocks := n / s.Period
	plane := func(key string, t *tensor.Tensor, d tensor.DType, shape ...int64) { // S8, S9, S10, S14, S15
		if t != nil && (t.DType != d || !slices.Equal(t.Shape, shape)) {
			bad(key, "%s %v, expected %s %v", t.DType, t.Shape, d, shape)
		}
	}
	plane(KeyIndex, s.Index, tensor.Uint8, blocks, s.Period)
	plane(KeyMagnitude, s.Magnitude, tensor.Float32, blocks, 1)
	plane(KeyVmean, s.Vmean, tensor.Float32, blocks, 1)

	if s.VmeanStep != Absent && s.Vmean == nil { // S11
		bad(KeyVmeanStep, "a counter of a second moment that is not there")
	}
	if s.Vmean != nil && s.VmeanStep == 0 { // S12
		bad(KeyVmeanStep, "0, expected at least 1")
	}
	if (s.VRow == nil) != (s.VCol == nil) || (s.VRow == nil) != (s.FactoredStep == Absent) { // S13
		bad("", "v_row, v_col and factored_step come together or not at all")
	}
	if s.VRow != nil && s.VCol != nil { // S14
		if len(shape) != 2 {
			bad(KeyVRow, "a factored second moment for a parameter of %v, expected a matrix", shape)
		} else {
			plane(KeyVRow, s.VRow, tensor.Float32, shape[0])
			plane(KeyVCol, s.VCol, tensor.Float32, shape[1])
		}
	}
	if !muon && s.Vmean == nil && s.VRow == nil { // S12
		bad("", "momentum without a second moment")
	}
	if (s.NormuonV == nil) != (s.NormuonStep == Absent) { // S15
		bad("", "normuon_v and normuon_step come together or not at all")
	}
	if s.NormuonV != nil {
		switch {
		case !muon:
			bad(KeyNormuonV, "NorMuon state in a group that is not GefenMuon's")
		case len(local) != 2:
			bad(KeyNormuonV, "NorMuon state for a parameter of %v, expected a matrix", local)
		default:
			plane(KeyNormuonV, s.NormuonV, tensor.Float32, local[0], 1)
		}
		if s.NormuonStep == 0 {
			bad(KeyNormuonStep, "0, expected at least 1")
		}
	}
	if s.Step > c.GlobalStep && c.GlobalStep > 0 {
		c.Warn(item+"."+KeyStep, "step %d is past the optimizer's own %d", s.Step, c.GlobalStep)
	}
	if s.VmeanStep > s.Step {
		c.Warn(item+"."+KeyVmeanStep, "%d is past the parameter's step %d", s.VmeanStep, s.Step)
	}
}

// CheckCodebook checks a rank's codebook: absent only where no shard has
// momentum, else float32, 256 entries, finite, non-decreasing, from -1 to +1
// (S16).
func (c *Checkpoint) CheckCodebook(r *Rank, item string) {
	momentum := false
	for _, s := range r.Shards {
		momentum = momentum || s.State != nil && s.State.Index != nil
	}
	switch {
	case r.Codebook == nil && momentum:
		c.Fault(fault.Corrupt, item, "momentum indices without a codebook")
		return
	case r.Codebook == nil:
		return
	case r.Codebook.DType != tensor.Float32 || !slices.Equal(r.Codebook.Shape, []int64{256}):
		c.Fault(fault.Corrupt, item, "the codebook is %s %v, expected float32 [256]", r.Codebook.DType, r.Codebook.Shape)
		return
	}
	book, err := r.Codebook.Float32s()
	if err != nil {
		c.FaultErr(err, item)
		return
	}
	for i, x := range book {
		if x != x || i > 0 && x < book[i-1] {
			c.Fault(fault.Corrupt, item, "codeword %d is %v after %v, expected them in order", i, x, book[max(i-1, 0)])
			return
		}
	}
	if book[0] != -1 || book[255] != 1 {
		c.Fault(fault.Corrupt, item, "the codebook reaches from %v to %v, expected -1 to 1", book[0], book[255])
	}
}
