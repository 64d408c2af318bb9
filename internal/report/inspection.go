package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tree"

	"github.com/dustin/go-humanize"
)

// Inspection is what `gefenckpt inspect --json` prints.
type Inspection struct {
	Envelope
	Path              string      `json:"path"`
	Form              string      `json:"form"`
	Container         string      `json:"container"`
	Layout            string      `json:"layout,omitempty"` // how the keys are arranged
	Optimizer         string      `json:"optimizer"`
	Key               []string    `json:"key"`   // where the optimizer's state sits
	World             *int        `json:"world"` // ranks; null for native
	GlobalStep        int64       `json:"global_step"`
	Deterministic     *bool       `json:"deterministic"`
	Mesh              *Mesh       `json:"mesh,omitempty"`
	Parameters        []Parameter `json:"parameters"`
	ParametersTotal   int         `json:"parameters_total"` // before --only
	Elements          int64       `json:"elements"`
	BytesPerParameter float64     `json:"bytes_per_parameter"`
	Groups            []Group     `json:"groups"`
	Halves            []Half      `json:"halves,omitempty"` // of a Hybrid
	Other             []Other     `json:"other"`            // what else is in the checkpoint
	Unread            []string    `json:"unread,omitempty"` // files that nothing refers to
}

// Mesh is the device mesh of a rank-local checkpoint.
type Mesh struct {
	DeviceType string   `json:"device_type"`
	Shape      []int64  `json:"shape"`
	DimNames   []string `json:"dim_names"`
	Ranks      []int64  `json:"ranks"`
}

// Parameter is one parameter of the optimizer.
type Parameter struct {
	Name   string  `json:"name"`
	Half   string  `json:"half,omitempty"` // "muon" or "backup" of a Hybrid
	Shape  []int64 `json:"shape"`
	DType  string  `json:"dtype,omitempty"`
	Group  int     `json:"group"`
	Ranks  []Shard `json:"ranks"`
	Frozen bool    `json:"frozen,omitempty"` // requires_grad is false
}

// Shard is one rank's part of a parameter.
type Shard struct {
	Rank   int    `json:"rank"`
	Rows   int64  `json:"rows"`
	Period *int64 `json:"period"` // null without momentum, and in the dense form
	Step   *int64 `json:"step"`   // null without state
}

// Group is a parameter group. Options are its hyperparameters and other keys;
// values that JSON cannot hold are described in words.
type Group struct {
	Parameters int            `json:"parameters"`
	Options    map[string]any `json:"options"`
}

// Half is one of the two optimizers inside a Hybrid.
type Half struct {
	Name       string `json:"name"`
	Form       string `json:"form"`
	World      *int   `json:"world"`
	GlobalStep int64  `json:"global_step"`
	Parameters int    `json:"parameters"`
}

// Other is an entry of the checkpoint that is not optimizer state.
type Other struct {
	Key  string `json:"key"`
	Kind string `json:"kind"`
}

// Inspect describes cp; only parameters whose name contains one of only are
// listed, all of them when it is empty. Its errors are the caller's to add.
func Inspect(cp *checkpoint.Checkpoint, only []string) *Inspection {
	r := &Inspection{
		Envelope: NewEnvelope("inspect"),
		Path:     cp.Path, Form: string(cp.Form), Container: string(cp.Container), Layout: string(cp.Layout),
		Optimizer: string(cp.Optimizer), Key: append([]string{}, cp.Key...), World: world(cp),
		GlobalStep: cp.GlobalStep, Deterministic: cp.Deterministic,
		Parameters: []Parameter{}, Groups: []Group{}, Other: []Other{}, Unread: cp.Unread,
	}
	r.Warn(cp.Warnings...)
	if m := cp.Mesh; m != nil {
		r.Mesh = &Mesh{m.DeviceType, m.Shape, append([]string{}, m.DimNames...), m.Ranks}
	}
	var bytes int64
	for _, part := range parts(cp) {
		if part.name != "" {
			r.Halves = append(r.Halves, Half{part.name, string(part.cp.Form), world(part.cp), part.cp.GlobalStep, len(part.cp.Params)})
		}
		for i := range part.cp.Params {
			n := elements(part.cp.Params[i].Shape)
			r.ParametersTotal++
			r.Elements += n
			bytes += part.cp.StateBytes(i)
			if p := parameter(part.cp, i, part.name); matches(p.Name, only) {
				r.Parameters = append(r.Parameters, p)
			}
		}
		for _, g := range part.cp.Groups {
			r.Groups = append(r.Groups, Group{len(g.Params), options(g.Fields)})
		}
	}
	if r.Elements > 0 {
		r.BytesPerParameter = float64(bytes) / float64(r.Elements)
	}
	r.Other = others(cp)
	return r
}

// part is a checkpoint with one optimizer: the whole, or a half of a Hybrid.
type part struct {
	name string
	cp   *checkpoint.Checkpoint
}

func parts(cp *checkpoint.Checkpoint) []part {
	if len(cp.Halves) == 0 {
		return []part{{"", cp}}
	}
	var out []part
	for _, h := range cp.Halves {
		out = append(out, part{h.Name, h.Checkpoint})
	}
	return out
}

func world(cp *checkpoint.Checkpoint) *int {
	if cp.World == 0 {
		return nil
	}
	w := cp.World
	return &w
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

func matches(name string, only []string) bool {
	return len(only) == 0 || slices.ContainsFunc(only, func(s string) bool { return strings.Contains(name, s) })
}

func parameter(cp *checkpoint.Checkpoint, i int, half string) Parameter {
	p := cp.Params[i]
	out := Parameter{Name: p.Name, Half: half, Shape: append([]int64{}, p.Shape...), DType: strings.TrimPrefix(p.DType, "torch."),
		Group: p.Group, Ranks: []Shard{}, Frozen: !p.Grad && p.DType != ""}
	for _, rank := range cp.Ranks {
		if i >= len(rank.Shards) {
			continue
		}
		s := rank.Shards[i]
		shard := Shard{Rank: rank.GlobalRank, Rows: rows(s.LocalShape)}
		if st := s.State; st != nil {
			shard.Period, shard.Step = counter(st.Period), counter(st.Step)
		}
		out.Ranks = append(out.Ranks, shard)
	}
	if i < len(cp.Slots) {
		slot := cp.Slots[i]
		if slot.Momentum == nil {
			return out
		}
		for rank, c := range slot.Momentum.Chunks {
			shard := Shard{Rank: rank, Rows: rows(c.Shape)}
			if slot.Initialized {
				shard.Step = counter(slot.Step)
			}
			out.Ranks = append(out.Ranks, shard)
		}
	}
	return out
}

// rows is the length of the first dimension; a 0-dim tensor is one row.
func rows(shape []int64) int64 {
	if len(shape) == 0 {
		return 1
	}
	return shape[0]
}

func counter(n int64) *int64 {
	if n <= 0 {
		return nil
	}
	return &n
}

// options turns hyperparameters into what JSON can hold.
func options(d *pickle.Dict) map[string]any {
	out := map[string]any{}
	if d == nil {
		return out
	}
	for _, p := range d.Pairs {
		if p.Key != "param_names" && p.Key != "param_names_synthesized" {
			out[fmt.Sprint(p.Key)] = tree.Plain(p.Value)
		}
	}
	return out
}

// others lists what stands beside the optimizer's state, level by level along
// its key.
func others(cp *checkpoint.Checkpoint) []Other {
	out := []Other{}
	for _, e := range cp.Beside() {
		out = append(out, Other{e.Path, e.Kind})
	}
	return out
}

// WriteText prints the inspection for people; params adds one line for every
// parameter and shard.
func (r *Inspection) WriteText(w io.Writer, params bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(label, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", label, fmt.Sprintf(format, args...))
	}
	line("path", "%s", r.Path)
	form := r.Form
	if r.Layout != "" {
		form += ", " + r.Layout + " keys"
	}
	line("form", "%s, in a %s", form, ContainerName(r.Container))
	line("optimizer", "%s, under key %s", r.Optimizer, keyText(r.Key))
	if r.World != nil {
		line("world", "%d %s", *r.World, plural(*r.World, "rank"))
	}
	for _, h := range r.Halves {
		text := fmt.Sprintf("%s, %d parameters, step %d", h.Form, h.Parameters, h.GlobalStep)
		if h.World != nil {
			text += fmt.Sprintf(", %d %s", *h.World, plural(*h.World, "rank"))
		}
		line(h.Name, "%s", text)
	}
	line("global step", "%d", r.GlobalStep)
	if m := r.Mesh; m != nil {
		line("mesh", "%s %v, dimensions %q, ranks %v", m.DeviceType, m.Shape, m.DimNames, m.Ranks)
	}
	line("parameters", "%d, %s elements", r.ParametersTotal, humanize.Comma(r.Elements))
	line("state", "%.3f bytes per parameter", r.BytesPerParameter)
	for i, g := range r.Groups {
		line(fmt.Sprintf("group %d", i), "%d parameters; %s", g.Parameters, optionsText(g.Options))
	}
	for _, o := range r.Other {
		line("also holds", "%s: %s", o.Key, o.Kind)
	}
	for _, f := range r.Unread {
		line("not used", "%s", f)
	}
	if params {
		fmt.Fprintln(t)
		for _, p := range r.Parameters {
			fmt.Fprintf(t, "%s\t%s %v\tgroup %d\t%s\n", p.Name, p.DType, p.Shape, p.Group, shardsText(p.Ranks))
		}
	}
	return t.Flush()
}

var containers = map[string]string{string(checkpoint.TorchFile): "torch.save file", string(checkpoint.Directory): "DCP directory"}

// ContainerName is a container in words.
func ContainerName(c string) string {
	if s, ok := containers[c]; ok {
		return s
	}
	return c
}

func keyText(key []string) string {
	if len(key) == 0 {
		return "(the root)"
	}
	return strings.Join(key, ".")
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

func optionsText(o map[string]any) string {
	keys := make([]string, 0, len(o))
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%s %v", k, o[k])
	}
	return strings.Join(keys, ", ")
}

func shardsText(shards []Shard) string {
	text := make([]string, 0, len(shards))
	for _, s := range shards {
		switch {
		case s.Step == nil:
			text = append(text, fmt.Sprintf("%d rows, no state", s.Rows))
		case s.Period == nil:
			text = append(text, fmt.Sprintf("%d rows, step %d", s.Rows, *s.Step))
		default:
			text = append(text, fmt.Sprintf("%d rows in blocks of %d, step %d", s.Rows, *s.Period, *s.Step))
		}
	}
	return strings.Join(text, " | ")
}
