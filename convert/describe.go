package convert

import (
	"fmt"
	"strings"

	"gefenckpt/format/checkpoint"
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
	r.Source = End{Path: c.Path, Form: string(c.Form), Container: string(c.Container), World: c.World,
		Parameters: len(c.Params), Elements: elements, GlobalStep: c.GlobalStep}
	r.Target = r.Source
	r.Target.Path, r.Target.Form, r.Target.Container = j.dst, string(j.o.To), string(j.o.Container)
	if elements > 0 {
		r.BytesPerParameter.Source = float64(bytes) / float64(elements)
	}
	if j.o.To == checkpoint.Dense {
		r.BytesPerParameter.Target = 8
		r.Next = fmt.Sprintf("load it on any number of ranks: dcp.load({%q: GefenDCPState(optimizer), ...}, checkpoint_id=%q)", j.key(), j.dst)
	}
	r.Parameters = make([]Parameter, 0, len(c.Params))
	for _, p := range c.Params {
		r.Parameters = append(r.Parameters, Parameter{Name: p.Name})
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
			r.Files = append(r.Files, File{Name: f.name, Bytes: f.bytes})
		}
	}
	return nil
}

// key is where the optimizer sits in the target.
func (j *job) key() string {
	if len(j.source.Key) == 0 {
		return defaultKey
	}
	return strings.Join(j.source.Key, ".")
}
