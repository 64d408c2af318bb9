package convert_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"gefenckpt/convert"
	"gefenckpt/format/checkpoint"
	"gefenckpt/internal/fault"
	"gefenckpt/internal/fsx/memfs"
	"gefenckpt/internal/gen/broken"
	"gefenckpt/verify"
)

// Every truncation of a small checkpoint's files, and a flip of every byte, ends
// with a typed error, or makes an output that verify rejects against the intact
// source, or the very same output. The environment can ask for all of them;
// otherwise it is one in so many.
func TestEveryByteCounts(t *testing.T) {
	sound, err := broken.NewSound(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	stride := 41
	if os.Getenv("GEFENCKPT_TEST_ALL") != "" {
		stride = 1
	}
	compact := convert.Options{To: checkpoint.Compact, Fidelity: convert.Lossless, DeviceType: "cpu"}
	native := convert.Options{To: checkpoint.Native, Fidelity: convert.Lossless}
	for _, c := range []struct {
		name  string
		files map[string][]byte
		file  string
		o     convert.Options
	}{
		{"compact", map[string][]byte{"x.pt": sound.Compact}, "x.pt", compact},
		{"native", map[string][]byte{"x.pt": sound.Native}, "x.pt", native},
		{"dense metadata", sound.Dense, ".metadata", compact},
		{"dense rank 0", sound.Dense, "__0_0.distcp", compact},
		{"dense rank 1", sound.Dense, "__1_0.distcp", compact},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDamage(t, c.files, c.file, c.o)
			data := c.files[c.file]
			for at := 0; at < len(data); at += stride {
				flipped := bytes.Clone(data)
				flipped[at] ^= 1 << (at % 8)
				d.try(t, "flip of a bit of byte", at, flipped)
				d.try(t, "cut at byte", at, data[:at])
			}
			t.Logf("%d bytes, one in %d: %d errors, %d rejected by verify, %d the same", len(data), stride, d.errors, d.rejected, d.same)
			if d.errors < len(data)/stride {
				t.Errorf("only %d errors", d.errors)
			}
		})
	}
}

// damage converts damaged copies of a checkpoint.
type damage struct {
	src, intact, file string
	o                 convert.Options
	want              map[string]string // what the intact one becomes

	errors, rejected, same int
}

func newDamage(t *testing.T, files map[string][]byte, file string, o convert.Options) *damage {
	t.Helper()
	d := &damage{src: filepath.Join(t.TempDir(), "src"), intact: filepath.Join(t.TempDir(), "intact"), file: file, o: o}
	for _, dir := range []string{d.src, d.intact} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, data := range files {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(files) == 1 {
		d.intact = filepath.Join(d.intact, file)
	}
	tree, err := d.convert(d.intact)
	if err != nil {
		t.Fatal(err)
	}
	d.want = tree
	return d
}

// convert returns the files that a checkpoint becomes, but for the manifest, which
// has the source's digests.
func (d *damage) convert(src string) (map[string]string, error) {
	m := memfs.New()
	if _, err := convert.RunOn(context.Background(), m, src, "/out.pt", d.o); err != nil {
		return nil, err
	}
	tree := m.Tree()
	delete(tree, "/out.pt.gefenckpt.json")
	return tree, nil
}

func (d *damage) try(t *testing.T, what string, at int, data []byte) {
	t.Helper()
	path := filepath.Join(d.src, d.file)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	src := d.src
	if filepath.Ext(d.file) == ".pt" {
		src = path
	}
	tree, err := d.convert(src)
	switch {
	case err != nil && fault.KindOf(err) == fault.Internal:
		t.Errorf("%s %d: an internal error: %v", what, at, err)
	case err != nil:
		d.errors++
	case tree["/out.pt"] == d.want["/out.pt"]:
		d.same++
	default:
		out := filepath.Join(t.TempDir(), "out.pt")
		if err := os.WriteFile(out, []byte(tree["/out.pt"]), 0o666); err != nil {
			t.Fatal(err)
		}
		r, err := verify.Pair(context.Background(), d.intact, out, verify.Options{Steps: 2, Momentum: -1, SecondMoment: -1, Update: -1})
		if err == nil && r.OK {
			t.Errorf("%s %d: another output, which verify accepts", what, at)
		}
		d.rejected++
	}
}
