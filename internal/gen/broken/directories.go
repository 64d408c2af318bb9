package broken

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// directory is a case whose files are made of a sound directory's.
func directory(name, what string, exit int, text string, edit func(files map[string][]byte)) Case {
	return Case{name, what, exit, text, func(s *Sound, path string) error {
		files := map[string][]byte{}
		for name, data := range s.Dense {
			files[name] = bytes.Clone(data)
		}
		edit(files)
		if err := os.Mkdir(path, 0o777); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if err := os.WriteFile(filepath.Join(path, name), files[name], 0o666); err != nil {
				return err
			}
		}
		return nil
	}}
}

// text is a string as .metadata has it.
func text(s string) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte("X"), uint32(len(s))), s...)
}

// renamed puts one string of .metadata for another.
func renamed(old, fresh string) func(files map[string][]byte) {
	return func(files map[string][]byte) {
		data := files[".metadata"]
		if !bytes.Contains(data, text(old)) {
			panic(old + " is not in the metadata")
		}
		files[".metadata"] = bytes.Replace(data, text(old), text(fresh), 1)
	}
}

// directories are broken in a way that only a directory can be.
var directories = []Case{
	directory("no-metadata", ".metadata is missing, as of a save that was killed", 3, "there is no .metadata; found .distcp files of ranks 0 and 1 only", func(f map[string][]byte) { delete(f, ".metadata") }),
	directory("empty-metadata", ".metadata is empty", 3, "the file is empty", func(f map[string][]byte) { f[".metadata"] = nil }),
	directory("half-metadata", ".metadata lacks its second half", 4, "LONG_BINPUT needs 4 bytes, 2 are left", func(f map[string][]byte) { f[".metadata"] = f[".metadata"][:len(f[".metadata"])/2] }),
	directory("shard-missing", "rank 1's file is missing", 3, "9 items: the file is missing", func(f map[string][]byte) { delete(f, "__1_0.distcp") }),
	directory("shard-empty", "rank 1's file is empty", 3, "optimizer.gefenckpt.slot_00000002.magnitude: the file is empty and needs 8698 by", func(f map[string][]byte) { f["__1_0.distcp"] = nil }),
	directory("shard-cut", "rank 1's file lacks its end", 3, "optimizer.gefenckpt.slot_00000002.magnitude: the file has 8598 bytes and needs 8", func(f map[string][]byte) { f["__1_0.distcp"] = f["__1_0.distcp"][:len(f["__1_0.distcp"])-100] }),
	directory("shards-swapped", "the files of the ranks have each other's names", 3, "epoch: the file has 8698 bytes and needs 43208: it is cut short", func(f map[string][]byte) {
		f["__0_0.distcp"], f["__1_0.distcp"] = f["__1_0.distcp"], f["__0_0.distcp"]
	}),
	directory("shard-flipped", "one bit of rank 1's file is flipped", 4, "head.weight.momentum: optimizer.slot_00000001.momentum: at byte 2004: members ar", func(f map[string][]byte) { d := f["__1_0.distcp"]; d[len(d)/3] ^= 4 }),
	directory("escape", "a file name that leads out of the directory", 4, "which does not lie in the directory", renamed("__1_0.distcp", "../__1_0.distcp")),
	directory("absolute", "a file name that is absolute", 4, "which does not lie in the directory", renamed("__1_0.distcp", "/etc/passwd")),
	directory("slot-renamed", "a slot's momentum has another key", 4, "optimizer.slot_00000009.momentum: its path in planner_data does not spell its na", renamed("optimizer.slot_00000001.momentum", "optimizer.slot_00000009.momentum")),
	directory("shard-other", "rank 1's file is of no known kind", 4, "embed.weight.momentum: optimizer.slot_00000000.momentum: at byte 0: neither a to", func(f map[string][]byte) {
		clear(f["__1_0.distcp"])
	}),
}
