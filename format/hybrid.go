package format

import (
	"slices"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/compact"
	"gefenckpt/format/layout"
	"gefenckpt/format/native"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// The keys of a GefenMuonHybrid.
const (
	keyMuon   = "muon"
	keyBackup = "backup"
	keyWhich  = "backup_optimizer" // "gefen" or "adamw"
)

func isHybrid(d *pickle.Dict) bool {
	_, muon := d.Get(keyMuon)
	_, backup := d.Get(keyBackup)
	return muon && backup
}

// readHybrid reads both halves of a GefenMuonHybrid, each as a checkpoint of its
// own.
func readHybrid(c *checkpoint.Checkpoint, d *pickle.Dict) error {
	c.Optimizer = checkpoint.Hybrid
	which, _ := d.Get(keyWhich)
	which, err := tree.Resolve(which)
	if err != nil {
		return fault.Within(err, "", keyWhich)
	}
	if which != nil && which != string(checkpoint.Gefen) && which != string(checkpoint.AdamW) { // old files have none
		return fault.New(fault.Unsupported, "the backup optimizer is %s, expected \"gefen\" or \"adamw\"", tree.Describe(which)).In(keyWhich)
	}
	for _, name := range []string{keyMuon, keyBackup} {
		v, _ := d.Get(name)
		v, err := tree.Resolve(v)
		if err != nil {
			return fault.Within(err, "", name)
		}
		if v == nil {
			continue
		}
		h := &checkpoint.Checkpoint{Path: c.Path, Container: c.Container, Root: c.Root, Key: slices.Concat(c.Key, []string{name})}
		if err := readHalf(h, v, name == keyBackup && which == string(checkpoint.AdamW)); err != nil {
			return fault.Within(err, "", name)
		}
		join(c, name, h)
	}
	if len(c.Halves) == 0 {
		return fault.New(fault.Corrupt, "both halves of the GefenMuonHybrid are missing")
	}
	return nil
}

func readHalf(h *checkpoint.Checkpoint, v pickle.Value, adamW bool) error {
	k, d := classify(v)
	if k != optimizer {
		return refuse(v)
	}
	s, err := layout.Read(d)
	switch {
	case err != nil:
		return err
	case adamW:
		native.ReadAdamW(h, s)
	default:
		if err := readState(h, s); err != nil {
			return err
		}
	}
	describeParams(h)
	return nil
}

// join adds a half to its Hybrid.
func join(c *checkpoint.Checkpoint, name string, h *checkpoint.Checkpoint) {
	c.Halves = append(c.Halves, checkpoint.Half{Name: name, Checkpoint: h})
	for _, f := range h.Faults {
		c.FaultErr(f, name)
	}
	for _, w := range h.Warnings {
		c.WarnErr(w, name)
	}
	for _, v := range h.Versions {
		c.SeeVersion(v.Format, v.Version)
	}
	c.World = max(c.World, h.World)
	c.GlobalStep = max(c.GlobalStep, h.GlobalStep)
	c.Layout = h.Layout
	if c.Form == "" {
		c.Form = h.Form
	} else if c.Form != h.Form {
		c.Form = checkpoint.Mixed
	}
}

// Tree is the optimizer's state dict of c as a file holds it, in the layout l: of
// a compact or native checkpoint, and of a Hybrid, whose halves always have
// numbered parameters. States may be stored or have Content. The state of an
// AdamW half is the source's.
func Tree(c *checkpoint.Checkpoint, l checkpoint.Layout) (*pickle.Dict, error) {
	switch {
	case c.Optimizer == checkpoint.Hybrid:
		return hybridTree(c)
	case c.Form == checkpoint.Compact:
		return compact.Tree(c, l, nil)
	case c.Form == checkpoint.Native:
		return native.Tree(c, l), nil
	}
	return nil, fault.New(fault.Internal, "the %s form is no state dict", c.Form)
}

func hybridTree(c *checkpoint.Checkpoint) (*pickle.Dict, error) {
	out := pickle.NewDict(keyMuon, nil, keyBackup, nil, keyWhich, string(checkpoint.Gefen))
	for _, h := range c.Halves {
		var half pickle.Value
		var err error
		if h.Checkpoint.Optimizer == checkpoint.AdamW {
			out.Set(keyWhich, string(checkpoint.AdamW))
			half, err = tree.Get(h.Checkpoint.Root, tree.Keys(h.Checkpoint.Key...)...)
		} else {
			half, err = Tree(h.Checkpoint, checkpoint.Raw)
		}
		if err != nil {
			return nil, fault.Within(err, "", h.Name)
		}
		out.Set(h.Name, half)
	}
	return out, nil
}
