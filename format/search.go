package format

import (
	"slices"
	"strings"

	"gefenckpt/format/compact"
	"gefenckpt/format/dense"
	"gefenckpt/format/layout"
	"gefenckpt/format/native"
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

// candidate is a place where an optimizer's state may sit. Positions in lists
// stand in its key as digits.
type candidate struct {
	key  []string
	kind kind
	dict *pickle.Dict
}

// searchDepth is how deep optimizers are looked for.
const searchDepth = 8

// search finds the optimizers of a tree, outermost first. It does not look into
// one that it has found, nor into what holds no parameters with boundaries.
func search(root pickle.Value) []candidate {
	var found []candidate
	seen := map[*pickle.Dict]bool{}
	tree.Walk(root, func(path tree.Path, v pickle.Value) bool {
		k, d := classify(v)
		switch {
		case k != nothing && !seen[d]:
			seen[d] = true
			found = append(found, candidate{names(path), k, d})
			return false
		case k != nothing:
			return false
		case d != nil && slices.ContainsFunc(looks, func(l look) bool { return l.closed && l.fits(d) }):
			return false
		}
		return len(path) < searchDepth
	})
	return found
}

func names(path tree.Path) []string {
	out := make([]string, len(path))
	for i, step := range path {
		out[i] = tree.Name(step)
	}
	return out
}

// classify says what a node is, and gives it as a dict if it is one.
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
	return nothing, d
}

// choose picks the one optimizer among those that were found below prefix: of
// several, the one that is Gefen's. It returns nil where there is none.
func choose(found []candidate, prefix []string) (*candidate, error) {
	if len(found) > 1 {
		if gefens := slices.DeleteFunc(slices.Clone(found), func(f candidate) bool { return !f.isGefen() }); len(gefens) > 0 {
			found = gefens
		}
	}
	keys := make([]string, len(found))
	for i := range found {
		found[i].key = slices.Concat(prefix, found[i].key)
		keys[i] = strings.Join(found[i].key, ".")
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return &found[0], nil
	}
	return nil, fault.New(fault.Usage, "the checkpoint holds %d optimizers, under %s", len(found), strings.Join(keys[:min(len(keys), 16)], ", ")).
		WithHint("choose one with --key %s", keys[0])
}

// isGefen says whether what was found is one of Gefen's optimizers.
func (f *candidate) isGefen() bool {
	if f.kind != optimizer {
		return true
	}
	s, err := layout.Read(f.dict)
	return err == nil && (compact.Is(s) || native.Is(s))
}

// at follows a dotted key, whose parts may have dots of their own: the longest
// one that is there wins.
func at(root pickle.Value, key string) (pickle.Value, []string, error) {
	node := root
	var steps []string
	parts := strings.Split(key, ".")
	for i := 0; i < len(parts); {
		n := len(parts)
		for ; n > i; n-- {
			step := strings.Join(parts[i:n], ".")
			if child, ok := tree.Child(node, step); ok {
				steps = append(steps, step)
				var err error
				if node, err = tree.Resolve(child); err != nil {
					return nil, nil, fault.Within(err, "", key)
				}
				break
			}
		}
		if n == i {
			return nil, nil, fault.New(fault.Usage, "%s has no %q", tree.Describe(node), parts[i]).In(strings.Join(steps, ".")).
				WithHint("leave --key out to let the optimizer be found")
		}
		i = n
	}
	return node, steps, nil
}
