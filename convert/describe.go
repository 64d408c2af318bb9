package convert

import (
	"fmt"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/manifest"
	"gefenckpt/format/tensor"
)

// describe fills in the result but for what only the writing tells.
func (j *job) describe() error {
	r, c := j.result, j.source
	var elements, bytes int64
	for i, p := range c.Params {
		n, _ := tensor.Volume(p.Shape)
		elements += n
		bytes += c.StateBytes(i)
	}
	r.Source = manifest.End{Path: c.Path, Form: string(c.Form), Container: string(c.Container), World: c.World,
		Parameters: len(c.Params), Elements: elements, GlobalStep: c.GlobalStep}
	r.Target = r.Source
	r.Target.Path, r.Target.Form, r.Target.Container = j.dst, string(j.o.To), string(j.o.Container)
	if elements > 0 {
		r.BytesPerParameter.Source = float64(bytes) / float64(elements)
	}
	r.Target.World = j.o.World
	switch j.o.To {
	case checkpoint.Dense:
		r.Target.World = j.denseWorld
		r.BytesPerParameter.Target = 8
		r.Next = fmt.Sprintf("load it on any number of ranks: dcp.load({%q: GefenDCPState(optimizer), ...}, checkpoint_id=%q)", j.key(), j.dst)
	case checkpoint.Compact:
		r.Next = fmt.Sprintf("load it on %d ranks: set_optimizer_state_dict(model, optimizer, torch.load(%q)%s, options=StateDictOptions(full_state_dict=True))",
			j.o.World, j.dst, j.subscript())
	case checkpoint.Native:
		r.Target.World = 0
		r.Next = fmt.Sprintf("load it in one process: optimizer.load_state_dict(torch.load(%q)%s)", j.dst, j.subscript())
	}
	if r.Parameters == nil {
		for _, p := range c.Params {
			r.Parameters = append(r.Parameters, manifest.Parameter{Name: p.Name})
		}
	}
	files, err := j.sourceFiles()
	if err != nil {
		return err
	}
	for _, f := range files {
		r.BytesIn += f.Bytes
	}
	for _, f := range j.sink.files() {
		r.BytesOut += f.bytes
		if j.o.Plan {
			r.Files = append(r.Files, manifest.File{Name: f.name, Bytes: f.bytes})
		}
	}
	return nil
}

// subscript is how Python gets at the optimizer in what torch.load returns.
func (j *job) subscript() string {
	var b strings.Builder
	for _, key := range j.source.Key {
		fmt.Fprintf(&b, "[%q]", key)
	}
	return b.String()
}

// key is where the optimizer sits in the target.
func (j *job) key() string {
	if len(j.source.Key) == 0 {
		return defaultKey
	}
	return strings.Join(j.source.Key, ".")
}
