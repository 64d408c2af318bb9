// Package checkpoint is the one model of a Gefen checkpoint, whatever its form
// and container: parameters, groups, ranks, and the state of every shard as
// tensors that stay on disk until they are read.
package checkpoint

import (
	"fmt"
	"slices"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// Form is what a checkpoint holds.
type Form string

// The forms.
const (
	Compact Form = "compact" // N rank-local payloads
	Dense   Form = "dense"   // GefenDCPState's fp32 slots
	Native  Form = "native"  // one process, or GefenMuon's global states
	Mixed   Form = "mixed"   // a Hybrid whose halves differ
)

// Container is how a checkpoint lies on disk.
type Container string

// The containers.
const (
	TorchFile Container = "torch.save"
	Directory Container = "dcp"
)

// Layout is how the keys of a compact or native torch.save file are arranged.
type Layout string

// The layouts.
const (
	Nested Layout = "nested" // get_optimizer_state_dict: state and param_groups keyed by FQN
	Flat   Layout = "flat"   // flatten_optimizer_state_dict=True: state.<fqn>.<key>
	Raw    Layout = "raw"    // optimizer.state_dict(): integer parameter ids
)

// Optimizer is which class wrote the state.
type Optimizer string

// The optimizers.
const (
	Gefen  Optimizer = "gefen"
	Muon   Optimizer = "muon"
	Hybrid Optimizer = "hybrid"
	AdamW  Optimizer = "adamw" // torch's, as the backup half of a Hybrid
)

// Checkpoint is an opened checkpoint: metadata in memory, state on disk.
// Close releases its files.
type Checkpoint struct {
	Path      string
	Form      Form
	Container Container
	Layout    Layout
	Optimizer Optimizer
	Key       []string // where the optimizer's state sits in Root

	// World is the number of ranks: of payloads, or of the chunks per slot of a
	// dense directory; 0 for native, where the number means nothing.
	World         int
	GlobalStep    int64
	Deterministic *bool // nil where the file does not say
	Mesh          *Mesh // nil for native and dense
	Groups        []Group
	Params        []Param // group by group; the order of signatures and slots
	Ranks         []Rank  // compact: one per rank; native: one; dense: none
	Slots         []Slot  // dense: one per parameter; else none
	// Halves are the two optimizers of a Hybrid; the fields from World to Slots
	// are then empty, but for World and GlobalStep, which are the halves' largest.
	Halves []Half

	// Owners is the manifest of GefenMuon's distributed mode, which says what rank
	// stepped which parameter; nil for all else.
	Owners *pickle.Dict
	// Origin is what a dense directory that gefenckpt wrote remembers of the
	// compact checkpoint that it was made from; nil for all else.
	Origin *pickle.Dict
	// Versions are the versions of formats that were seen, outermost first.
	Versions []Version

	// Root is the whole tree of the container, the optimizer's state included.
	Root pickle.Value
	// Unread lists files of a directory that nothing refers to.
	Unread []string
	// Faults are what keeps a real loader from accepting the checkpoint, and
	// Warnings what it would accept but should not, in order of discovery.
	Faults, Warnings []*fault.Error

	// Closer releases the files; nil when there is nothing to release.
	Closer interface{ Close() error }
}

// Close releases the files of the checkpoint.
func (c *Checkpoint) Close() error {
	if c.Closer == nil {
		return nil
	}
	return c.Closer.Close()
}

// Version is the version of one format that a checkpoint is made of.
type Version struct{ Format, Version string }

// SeeVersion notes a version, once.
func (c *Checkpoint) SeeVersion(format, version string) {
	if v := (Version{format, version}); !slices.Contains(c.Versions, v) {
		c.Versions = append(c.Versions, v)
	}
}

// Half is one optimizer of a Hybrid, a checkpoint of its own in the same file.
type Half struct {
	Name       string // "muon" or "backup"
	Checkpoint *Checkpoint
}

// Mesh is the device mesh of a rank-local checkpoint.
type Mesh struct {
	DeviceType string
	Shape      []int64
	DimNames   []string
	Ranks      []int64 // in mesh order: Ranks[coordinate] is a global rank
}

// Group is a parameter group. Fields is the group's dict as it was read, without
// params and _gefen_checkpoint_metadata: hyperparameters, param_names and
// unknown keys, verbatim and in order.
type Group struct {
	Fields                             *pickle.Dict
	LR, Beta1, Beta2, Eps, WeightDecay float64
	Params                             []int // indices into Checkpoint.Params
}

// Placement says how a parameter lies on the mesh.
type Placement struct {
	Type   string // "Shard" or "Replicate"; "" for a plain tensor
	Dim    int
	Module string // where Python finds the class
}

// Rows says whether the ranks hold consecutive rows: Shard(0).
func (p Placement) Rows() bool { return p.Type == "Shard" && p.Dim == 0 }

// String is the placement as Python prints it.
func (p Placement) String() string {
	switch p.Type {
	case "":
		return "not sharded"
	case "Shard":
		return fmt.Sprintf("Shard(%d)", p.Dim)
	}
	return p.Type + "()"
}

// Param is one parameter of the optimizer.
type Param struct {
	Name        string // as the optimizer registered it: lower case
	FQN         string // the outer key with the model's case; "" where the file has none
	Group       int    // index into Groups
	Index       int    // position within the group
	Identifier  string // group_<g>_param_<i>_<name>; "" where the file has none
	Shape       []int64
	DType       string // torch.float32, ...; "" where the file has none
	LocalDType  string
	Placement   Placement
	ShardedMode string // sharded_mode of a Muon group; "" for plain Gefen
	Grad        bool   // requires_grad
	Synthesized bool   // the name was invented by Gefen
}

// Key is the outer key of the parameter: its FQN, or its registered name where
// the file has none.
func (p *Param) Key() string {
	if p.FQN != "" {
		return p.FQN
	}
	return p.Name
}

// Rows is the length of the first dimension; a scalar is one row.
func (p *Param) Rows() int64 {
	if len(p.Shape) == 0 {
		return 1
	}
	return p.Shape[0]
}

// Sharded says whether the parameter is a DTensor.
func (p *Param) Sharded() bool { return p.Placement.Type != "" }

// Modes of GefenMuon's groups under FSDP2.
const (
	ModeApprox      = "approx"      // every rank steps its own rows
	ModeExact       = "exact"       // every rank steps the whole matrix
	ModeDistributed = "distributed" // one rank, the owner, steps the whole matrix
)

// Whole says whether a rank's state describes the whole parameter and not the
// rank's rows of it.
func (p *Param) Whole() bool {
	return !p.Sharded() || p.ShardedMode == ModeExact || p.ShardedMode == ModeDistributed
}

// Rank is what one rank's payload holds.
type Rank struct {
	GlobalRank int
	Coordinate int            // position in the mesh; which rows the rank has is in its Shards
	Codebook   *tensor.Tensor // float32 (256,); nil if the rank has no momentum
	Shards     []Shard        // parallel to Checkpoint.Params
	Payload    *tensor.Tensor // the payload's bytes; nil for native
	Verify     func() error   // completes the checksums of what was read of the payload; nil for native
}

// Shard is one rank's part of one parameter; see Param.Box.
type Shard struct {
	LocalShape []int64
	Row        int64  // where the part begins along the placement's dimension
	State      *State // nil where the parameter is fresh or the shard empty
}

// Absent is the value of a counter that the state does not have.
const Absent = -1

// State is the optimizer state of one shard with n elements: B = n/Period
// blocks of Period consecutive elements, row-major.
type State struct {
	Period    int64
	Step      int64
	VmeanStep int64          // Absent in legacy files, or with a factored second moment
	Index     *tensor.Tensor // uint8 (B, Period)
	Magnitude *tensor.Tensor // float32 (B, 1)
	Vmean     *tensor.Tensor // float32 (B, 1); nil when only factored

	VRow, VCol   *tensor.Tensor // float32 (rows,), (cols,); nil when not factored
	FactoredStep int64

	NormuonV    *tensor.Tensor // float32 (rows, 1); nil without NorMuon
	NormuonStep int64

	// Extra are the keys that no optimizer of Gefen-X writes, verbatim: an AdamW
	// half's moments; nil if there is none.
	Extra *pickle.Dict
}

// Tensors are the tensors of the state, in the order in which Gefen writes them.
func (s *State) Tensors() []*tensor.Tensor {
	all := []*tensor.Tensor{s.Index, s.Magnitude, s.Vmean, s.VRow, s.VCol, s.NormuonV}
	if s.Extra != nil {
		for _, p := range s.Extra.Pairs {
			t, _ := p.Value.(*tensor.Tensor)
			all = append(all, t)
		}
	}
	return slices.DeleteFunc(all, func(t *tensor.Tensor) bool { return t == nil })
}

// StateBytes is the size of parameter p's state over all ranks.
func (c *Checkpoint) StateBytes(p int) int64 {
	var n int64
	for _, rank := range c.Ranks {
		if p < len(rank.Shards) && rank.Shards[p].State != nil {
			for _, t := range rank.Shards[p].State.Tensors() {
				n += t.Bytes()
			}
		}
	}
	if p < len(c.Slots) {
		for _, t := range []*tensor.Tensor{c.Slots[p].Momentum, c.Slots[p].SecondMoment} {
			if t != nil {
				n += t.Bytes()
			}
		}
	}
	return n
}

// Slot is the dense state of one parameter: float32 tensors of the parameter's
// shape, momentum = codebook[index]*magnitude and second moment = vmean of the
// block. Its chunks show who wrote what.
type Slot struct {
	Initialized            bool
	Step, VmeanStep        int64
	Momentum, SecondMoment *tensor.Tensor
}

// PlacementModule is where torch keeps the placement classes.
const PlacementModule = "torch.distributed.tensor.placement_types"
