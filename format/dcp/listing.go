package dcp

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gefenckpt/internal/fault"
)

const (
	metadataName  = ".metadata"
	temporaryName = ".metadata.tmp"
)

func rankMetadataName(rank int) string { return fmt.Sprintf("__%d.metadata", rank) }

var (
	rankMetadata = regexp.MustCompile(`^__(0|[1-9][0-9]{0,8})\.metadata$`)
	itemFile     = regexp.MustCompile(`^__(0|[1-9][0-9]{0,8})_([0-9]+)\.distcp$`)
)

// listing is what stands in a directory.
type listing struct {
	names     map[string]bool
	entries   []fs.DirEntry
	rankLocal []int // ranks with a metadata file of their own
	ranks     []int // ranks with a .distcp file
}

func newListing(entries []fs.DirEntry) *listing {
	l := &listing{names: make(map[string]bool, len(entries)), entries: entries}
	for _, e := range entries {
		l.names[e.Name()] = true
		if match := rankMetadata.FindStringSubmatch(e.Name()); match != nil {
			rank, _ := strconv.Atoi(match[1])
			l.rankLocal = append(l.rankLocal, rank)
		}
		if match := itemFile.FindStringSubmatch(e.Name()); match != nil {
			rank, _ := strconv.Atoi(match[1])
			l.ranks = append(l.ranks, rank)
		}
	}
	slices.Sort(l.rankLocal)
	slices.Sort(l.ranks)
	l.ranks = slices.Compact(l.ranks)
	return l
}

// others are directories that someone may take for a distributed checkpoint,
// each told by the name of something in it.
var others = []struct {
	pattern *regexp.Regexp
	what    string
	hint    string
}{
	{regexp.MustCompile(`^zero_pp_rank_|_optim_states\.pt$|^zero_to_fp32\.py$`), "a DeepSpeed ZeRO checkpoint",
		"gefenckpt reads what torch.save and torch.distributed.checkpoint write"},
	{regexp.MustCompile(`^mp_rank_[0-9]+|^iter_[0-9]+$|^latest_checkpointed_iteration\.txt$|^common\.pt$`), "a Megatron checkpoint",
		"gefenckpt reads what torch.save and torch.distributed.checkpoint write"},
	{regexp.MustCompile(`\.safetensors(\.index\.json)?$`), "a HuggingFace safetensors directory, which holds weights and no optimizer state",
		"pass the checkpoint that the optimizer was saved to"},
	{regexp.MustCompile(`^\.snapshot_metadata$`), "a torchsnapshot directory",
		"gefenckpt reads what torch.save and torch.distributed.checkpoint write"},
	{regexp.MustCompile(`\.(pt|pth|bin)$`), "a directory of torch.save files",
		"pass one of the files"},
}

// explain says what a directory without metadata is.
func (l *listing) explain(fsys fs.FS) *fault.Error {
	switch {
	case l.names[temporaryName]:
		return fault.New(fault.Incomplete, "there is no .metadata, only .metadata.tmp: the save was cut short in its last step").
			WithHint("use another checkpoint; if every rank is known to have finished, rename .metadata.tmp to .metadata")
	case len(l.ranks) > 0:
		return fault.New(fault.Incomplete, "there is no .metadata; found .distcp files of %s only", rankList(l.ranks)).
			WithHint("rank 0 writes .metadata, last of all: copy the files of the other machines here, or use another checkpoint if the save was cut short")
	case len(l.entries) == 0:
		return fault.New(fault.Incomplete, "the directory is empty")
	}
	for _, e := range l.entries {
		if _, err := fs.Stat(fsys, path.Join(e.Name(), metadataName)); err == nil {
			return fault.New(fault.Usage, "the directory itself is no checkpoint, but %s in it is one", e.Name()).
				WithHint("pass %s", e.Name())
		}
	}
	for _, other := range others {
		for _, e := range l.entries {
			if other.pattern.MatchString(e.Name()) {
				return fault.New(fault.Unsupported, "this is %s (it has %s), not a directory of torch.distributed.checkpoint", other.what, e.Name()).
					WithHint("%s", other.hint)
			}
		}
	}
	return fault.New(fault.Unsupported, "there is neither .metadata nor a .distcp file: this is no directory of torch.distributed.checkpoint").
		WithHint("pass the directory that has .metadata in it")
}

// rankList names ranks in words: "rank 3", "ranks 0 to 3", "ranks 0, 1 and 5".
func rankList(ranks []int) string {
	n := len(ranks)
	switch {
	case n == 1:
		return fmt.Sprintf("rank %d", ranks[0])
	case n > 2 && ranks[n-1]-ranks[0] == n-1:
		return fmt.Sprintf("ranks %d to %d", ranks[0], ranks[n-1])
	}
	const most = 16
	words := make([]string, 0, most)
	for _, r := range ranks[:min(n, most)] {
		words = append(words, strconv.Itoa(r))
	}
	if n > most {
		return fmt.Sprintf("ranks %s and %d more", strings.Join(words, ", "), n-most)
	}
	return fmt.Sprintf("ranks %s and %s", strings.Join(words[:n-1], ", "), words[n-1])
}
