package format

import (
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/dense"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// kind is what a dict of the tree is.
type kind uint8

const (
	nothing     kind = iota // no optimizer's state
	optimizer               // state and param_groups, in some layout
	denseState              // GefenDCPState's slots
	hybridState             // GefenMuonHybrid's two halves
)

// candidate is a place where an optimizer's state may sit.
type candidate struct {
	key  []string
	kind kind
	dict *pickle.Dict
}

// searchDepth is how deep optimizers are looked for.
const searchDepth = 6

// search finds the optimizers of a tree, outermost first; it does not look into
// one that it has found.
func search(root pickle.Value) []candidate {
	var found []candidate
	tree.Walk(root, func(path tree.Path, v pickle.Value) bool {
		k, d := classify(v)
		if k != nothing {
			key := make([]string, len(path))
			for i, step := range path {
				s, ok := step.(string)
				if !ok {
					return false
				}
				key[i] = s
			}
			found = append(found, candidate{key, k, d})
			return false
		}
		return len(path) < searchDepth
	})
	return found
}

// classify says what a node is, without reading anything lazy.
func classify(v pickle.Value) (kind, *pickle.Dict) {
	d, ok := pickle.AsDict(v)
	if !ok {
		return nothing, nil
	}
	switch {
	case dense.Is(d):
		return denseState, d
	case isHybrid(d):
		return hybridState, d
	case layout.Is(d):
		return optimizer, d
	}
	return nothing, nil
}

func isHybrid(d *pickle.Dict) bool {
	_, muon := d.Get("muon")
	_, backup := d.Get("backup")
	return muon && backup
}

// at follows a dotted key, whose parts may have dots of their own: the longest
// one that is there wins.
func at(root pickle.Value, key string) (pickle.Value, error) {
	node := root
	parts := strings.Split(key, ".")
	for i := 0; i < len(parts); {
		n := len(parts)
		for ; n > i; n-- {
			if child, ok := tree.Child(node, strings.Join(parts[i:n], ".")); ok {
				var err error
				if node, err = tree.Resolve(child); err != nil {
					return nil, err
				}
				break
			}
		}
		if n == i {
			return nil, fault.New(fault.Usage, "%s has no %q", tree.Describe(node), parts[i]).In(strings.Join(parts[:i], ".")).
				WithHint("leave --key out to let the optimizer be found")
		}
		i = n
	}
	return node, nil
}

// readHybrid reads both halves of a GefenMuonHybrid, each as a checkpoint of its
// own.
func readHybrid(c *checkpoint.Checkpoint, d *pickle.Dict) error {
	c.Optimizer = checkpoint.Hybrid
	for _, name := range []string{"muon", "backup"} {
		v, _ := d.Get(name)
		v, err := tree.Resolve(v)
		if err != nil {
			return fault.Within(err, "", name)
		}
		if v == nil {
			continue
		}
		k, half := classify(v)
		if k != optimizer {
			return fault.New(fault.Unsupported, "%s", describe(v)).In(name)
		}
		h := &checkpoint.Checkpoint{Path: c.Path, Container: c.Container, Root: c.Root, Key: append(append([]string{}, c.Key...), name)}
		if err := readAs(h, k, half); err != nil {
			return fault.Within(err, "", name)
		}
		c.Halves = append(c.Halves, checkpoint.Half{Name: name, Checkpoint: h})
		c.Faults = append(c.Faults, h.Faults...)
		c.Warnings = append(c.Warnings, h.Warnings...)
		c.World = max(c.World, h.World)
		c.GlobalStep = max(c.GlobalStep, h.GlobalStep)
		c.Layout = h.Layout
		if c.Form == "" {
			c.Form = h.Form
		} else if c.Form != h.Form {
			c.Form = checkpoint.Mixed
		}
	}
	if len(c.Halves) == 0 {
		return fault.New(fault.Corrupt, "both halves of the GefenMuonHybrid are missing")
	}
	return nil
}
