package reshard

import (
	"gefenckpt/gefen"
	"gefenckpt/internal/fault"
)

// RankRecord is what was decided for one target rank, as far as the containers
// and the report need it. The rest follows from the topology.
type RankRecord struct {
	Rank     int             `json:"rank"`
	Codebook *gefen.Codebook `json:"codebook"` // nil where no shard has state
	Gap      int64           `json:"gap"`      // bytes that the lower bound is below the plan
	Shards   []ShardRecord   `json:"shards"`   // parallel to Topology.Params
}

// ShardRecord is what was decided for one shard; see Shard.
type ShardRecord struct {
	Period      int64     `json:"period"`
	Operation   Operation `json:"operation"`
	BytesBefore int64     `json:"bytes_before"`
	BytesAfter  int64     `json:"bytes_after"`
	Error       Error     `json:"error"`
	Measured    bool      `json:"measured"` // a plan of all ranks would have measured it too
}

// Record is what was decided for target rank r.
func (plan *Plan) Record(r int) RankRecord {
	rank := &plan.Ranks[r]
	out := RankRecord{Rank: r, Codebook: rank.Codebook, Gap: plan.gaps[r]}
	for i := range rank.Shards {
		s := &rank.Shards[i]
		out.Shards = append(out.Shards, ShardRecord{s.Period, s.Operation, s.BytesBefore, s.BytesAfter, s.Error, s.measured})
	}
	return out
}

// Assemble is the plan of all ranks that New would have made, from the records of
// plans of some. Its planes cannot be opened: those plans have made them.
//
// It is an Incomplete fault if a rank has no record, and a Corrupt one if a record
// does not fit the topology.
func Assemble(t *Topology, o Options, records []RankRecord) (*Plan, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	plan := begin(t, o)
	seen := make([]bool, o.World)
	for _, rec := range records {
		if rec.Rank < 0 || rec.Rank >= o.World || seen[rec.Rank] || len(rec.Shards) != len(t.Params) {
			return nil, fault.New(fault.Corrupt, "the plan of rank %d is not one of %d ranks and %d parameters, or is there twice", rec.Rank, o.World, len(t.Params))
		}
		seen[rec.Rank] = true
		rank := &plan.Ranks[rec.Rank]
		rank.Codebook = rec.Codebook
		plan.gaps[rec.Rank] = rec.Gap
		for i, r := range rec.Shards {
			s := &rank.Shards[i]
			if r.Period < 0 || r.Period > 0 && s.Elements%r.Period != 0 || int(r.Operation) >= len(operations) {
				return nil, fault.New(fault.Corrupt, "rank %d has blocks of %d of its %d elements", rec.Rank, r.Period, s.Elements).In(t.Params[i].Name)
			}
			s.Period, s.Operation, s.BytesBefore, s.BytesAfter = r.Period, r.Operation, r.BytesBefore, r.BytesAfter
			s.Error, s.measured = r.Error, r.Measured
		}
	}
	for r := range plan.Ranks {
		if !seen[r] {
			return nil, fault.New(fault.Incomplete, "the plan of rank %d is missing", r)
		}
		plan.add(r)
	}
	if !plan.loses() {
		plan.forget()
	}
	plan.sum()
	return plan, nil
}

// forget drops the sums of squares that a plan of all ranks would not have read.
func (plan *Plan) forget() {
	for r := range plan.Ranks {
		for i := range plan.Ranks[r].Shards {
			if s := &plan.Ranks[r].Shards[i]; !s.measured {
				s.Error = Error{}
			}
		}
	}
}
