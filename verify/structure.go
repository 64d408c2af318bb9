package verify

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"gefenckpt/format"
	"gefenckpt/format/checkpoint"
	"gefenckpt/format/manifest"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// Structure checks the one checkpoint at path: every rule of the real loader,
// every element there once, sane values in every plane, and the manifest's
// digests. With digestsOnly it checks these alone.
func Structure(ctx context.Context, path, key string, digestsOnly bool) (*Report, error) {
	r := &Report{Level: "structure", Parameters: []Parameter{}}
	found, err := r.digests(ctx, path)
	if err != nil {
		return nil, err
	}
	if digestsOnly {
		if !found {
			return nil, fault.New(fault.Incomplete, "there is no manifest").File(path).WithHint("leave out --digests: only what gefenckpt wrote has a manifest")
		}
		return r.finish(), nil
	}
	c, err := format.Open(path, format.Options{Key: key})
	if c == nil {
		return nil, err
	}
	defer c.Close()
	r.Faults = append(r.Faults, c.Faults...)
	r.Warnings = append(r.Warnings, c.Warnings...)
	for _, part := range parts(c) {
		if err := r.planes(ctx, part); err != nil {
			return nil, err
		}
		r.twins(part)
	}
	return r.finish(), nil
}

// parts are the halves of a Hybrid, else the checkpoint itself.
func parts(c *checkpoint.Checkpoint) []*checkpoint.Checkpoint {
	if len(c.Halves) == 0 {
		return []*checkpoint.Checkpoint{c}
	}
	var out []*checkpoint.Checkpoint
	for _, h := range c.Halves {
		out = append(out, h.Checkpoint)
	}
	return out
}

// digests compares the files with the manifest, where there is one.
func (r *Report) digests(ctx context.Context, path string) (found bool, err error) {
	m, err := manifest.Read(path)
	if m == nil || err != nil {
		return false, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return false, fault.New(fault.Incomplete, "%w", err).File(path)
	}
	for _, f := range m.Files {
		name := path
		if info.IsDir() {
			name = filepath.Join(path, filepath.Base(f.Name))
		} else if f.Name != filepath.Base(path) {
			r.Warnings = append(r.Warnings, fault.New(fault.Corrupt, "its manifest was written for a file named %q", f.Name).File(path))
		}
		sum, size, err := digestFile(ctx, name)
		switch {
		case err != nil:
			r.fail(fault.Incomplete, name, "", "the manifest names this file: %v", err)
		case size != f.Bytes:
			r.fail(fault.Corrupt, name, "", "%d bytes, the manifest says %d", size, f.Bytes)
		case sum != f.SHA256:
			r.fail(fault.Corrupt, name, "", "SHA-256 is %s, the manifest says %s", sum, f.SHA256)
		}
	}
	return true, ctx.Err()
}

func digestFile(ctx context.Context, path string) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	buffer := make([]byte, 1<<20)
	for {
		n, err := f.Read(buffer)
		h.Write(buffer[:n])
		size += int64(n)
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), size, ctx.Err()
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return "", 0, err
		}
	}
}

// planes reads every plane of every state: finite, not negative, and whether
// anything looks as if it was lost.
func (r *Report) planes(ctx context.Context, c *checkpoint.Checkpoint) error {
	for p := range c.Params {
		name := c.Params[p].Name
		var energy bool // some magnitude is not zero
		states := 0
		for _, rank := range c.Ranks {
			if p >= len(rank.Shards) || rank.Shards[p].State == nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			states++
			s := rank.Shards[p].State
			item := fmt.Sprintf("rank %d: %s", rank.GlobalRank, name)
			for _, plane := range []struct {
				key string
				t   *tensor.Tensor
			}{{checkpoint.KeyMagnitude, s.Magnitude}, {checkpoint.KeyVmean, s.Vmean}, {checkpoint.KeyVRow, s.VRow},
				{checkpoint.KeyVCol, s.VCol}, {checkpoint.KeyNormuonV, s.NormuonV}} {
				if plane.t == nil {
					continue
				}
				any, err := r.plane(c.Path, item+"."+plane.key, plane.t, true)
				if err != nil {
					return err
				}
				energy = energy || plane.key == checkpoint.KeyMagnitude && any
			}
			if s.Index != nil {
				if _, err := r.scan(c.Path, item+"."+checkpoint.KeyIndex, s.Index, nil); err != nil {
					return err
				}
			}
		}
		if p < len(c.Slots) && c.Slots[p].Initialized {
			states++
			any, err := r.plane(c.Path, name+".momentum", c.Slots[p].Momentum, false)
			if err != nil {
				return err
			}
			energy = any
			if _, err := r.plane(c.Path, name+".second_moment", c.Slots[p].SecondMoment, true); err != nil {
				return err
			}
		}
		if states > 0 && !energy && c.GlobalStep > 1 && len(r.Faults) == 0 {
			r.Warnings = append(r.Warnings, fault.New(fault.Corrupt, "all momentum is zero at step %d", c.GlobalStep).In(name).File(c.Path))
		}
	}
	return nil
}

// plane checks a float32 plane and says whether it has anything but zeros. One
// fault names the first bad element and how many there are.
func (r *Report) plane(path, item string, t *tensor.Tensor, unsigned bool) (any bool, err error) {
	if t == nil || t.DType != tensor.Float32 {
		return false, nil // a fault of the structure
	}
	bad, first, firstAt := int64(0), float32(0), int64(0)
	any, err = r.scan(path, item, t, func(from int64, b []byte) bool {
		some := false
		for i := 0; i+4 <= len(b); i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
			some = some || v != 0
			if v != v || math.IsInf(float64(v), 0) || unsigned && v < 0 {
				if bad == 0 {
					first, firstAt = v, from+int64(i/4)
				}
				bad++
			}
		}
		return some
	})
	if bad > 0 {
		r.fail(fault.Corrupt, path, item, "element %d is %v, and %d more are like it: expected finite numbers, not negative", firstAt, first, bad-1)
	}
	return any, err
}

// scan reads a tensor whole, in order, which checks its checksum; what cannot be
// read is a fault. look says whether it saw what it looks for.
func (r *Report) scan(path, item string, t *tensor.Tensor, look func(from int64, b []byte) bool) (seen bool, err error) {
	size := int64(t.DType.Size())
	buffer := make([]byte, min(t.Bytes(), 1<<18))
	for from := int64(0); from < t.Len(); {
		b := buffer[:min(int64(len(buffer)), (t.Len()-from)*size)]
		if err := t.ReadAt(b, from); err != nil {
			if fault.KindOf(err) == fault.Internal {
				return seen, err
			}
			r.Faults = append(r.Faults, fault.Of(err).In(item).File(path))
			return seen, nil
		}
		if look != nil {
			seen = look(from, b) || seen
		}
		from += int64(len(b)) / size
	}
	return seen, nil
}

// twins suspects ranks whose payloads are alike: one was copied over another, or
// saved twice.
func (r *Report) twins(c *checkpoint.Checkpoint) {
	seen := map[[32]byte]int{}
	for _, rank := range c.Ranks {
		h := sha256.New()
		n := int64(0)
		for _, s := range rank.Shards {
			if s.State != nil && s.State.Index != nil {
				k, err := s.State.Index.Data().WriteTo(h)
				if err != nil {
					return // a fault already
				}
				n += k
			}
		}
		if n < 64 {
			continue
		}
		key := [32]byte(h.Sum(nil))
		if other, ok := seen[key]; ok {
			r.Warnings = append(r.Warnings, fault.New(fault.Corrupt, "ranks %d and %d hold the same momentum: one may have been saved in place of the other", other, rank.GlobalRank).File(c.Path))
		}
		seen[key] = rank.GlobalRank
	}
}
