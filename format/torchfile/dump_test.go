package torchfile

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
)

// dump is a tree in words, with the checksum of every tensor, so that equal texts
// mean equal trees. What is in two places is told once, by number.
func dump(t testing.TB, v pickle.Value) string {
	t.Helper()
	d := &dumper{seen: map[any]int{}}
	if err := d.value(v); err != nil {
		t.Fatal(err)
	}
	return d.String()
}

type dumper struct {
	strings.Builder
	seen map[any]int
}

// again says whether v was told, and numbers it if not.
func (d *dumper) again(v any) bool {
	if n, ok := d.seen[v]; ok {
		fmt.Fprintf(d, "#%d", n)
		return true
	}
	fmt.Fprintf(d, "%d=", len(d.seen))
	d.seen[v] = len(d.seen)
	return false
}

func (d *dumper) value(v pickle.Value) error {
	switch v := v.(type) {
	case *tensor.Tensor:
		return d.tensor(v)
	case *BareStorage:
		if d.again(v) {
			return nil
		}
		fmt.Fprint(d, v.Describe())
		return d.content((&tensor.Tensor{DType: tensor.Uint8, Shape: []int64{v.Data.Size()}, Chunks: []tensor.Chunk{tensor.Whole([]int64{v.Data.Size()}, v.Data)}}).Data())
	case *DTensor:
		return d.value(v.Object)
	case *pickle.Tuple:
		if len(v.Items) > 0 && d.again(v) {
			return nil
		}
		return d.items("(", v.Items, ")")
	case *pickle.List:
		if d.again(v) {
			return nil
		}
		return d.items("[", v.Items, "]")
	case *pickle.Set:
		if d.again(v) {
			return nil
		}
		return d.items(fmt.Sprintf("{frozen=%v ", v.Frozen), v.Items, "}")
	case *pickle.Dict:
		if d.again(v) {
			return nil
		}
		return d.pairs(v.Pairs)
	case *pickle.Object:
		if d.again(v) {
			return nil
		}
		fmt.Fprintf(d, "%s.%s new=%v", v.Class.Module, v.Class.Name, v.New)
		if v.Args != nil {
			if err := d.value(v.Args); err != nil {
				return err
			}
		}
		if v.Extra != nil {
			if v.Extra.Kwargs != nil {
				if err := d.value(v.Extra.Kwargs); err != nil {
					return err
				}
			}
			if err := d.items("[", v.Extra.Items, "]"); err != nil {
				return err
			}
			if err := d.pairs(v.Extra.Pairs); err != nil {
				return err
			}
		}
		if v.HasState {
			d.WriteString(" state ")
			return d.value(v.State)
		}
		return nil
	case *pickle.Global:
		fmt.Fprintf(d, "%s.%s", v.Module, v.Name)
		return nil
	case *pickle.Persistent:
		d.WriteString("persistent ")
		return d.value(v.ID)
	case *pickle.ByteArray:
		fmt.Fprintf(d, "bytearray %q", v.Data)
		return nil
	}
	fmt.Fprintf(d, "%T %#v", v, v)
	return nil
}

func (d *dumper) items(begin string, items []pickle.Value, end string) error {
	d.WriteString(begin)
	for _, item := range items {
		if err := d.value(item); err != nil {
			return err
		}
		d.WriteString(", ")
	}
	d.WriteString(end)
	return nil
}

func (d *dumper) pairs(pairs []pickle.Pair) error {
	d.WriteString("{")
	for _, p := range pairs {
		if err := d.value(p.Key); err != nil {
			return err
		}
		d.WriteString(": ")
		if err := d.value(p.Value); err != nil {
			return err
		}
		d.WriteString("\n")
	}
	d.WriteString("}")
	return nil
}

func (d *dumper) tensor(x *tensor.Tensor) error {
	if d.again(x) {
		return nil
	}
	fmt.Fprintf(d, "%s %v grad=%v parameter=%v", x.DType, x.Shape, x.RequiresGrad, x.Parameter)
	return d.content(x.Data())
}

func (d *dumper) content(c tensor.Content) error {
	var b bytes.Buffer
	n, err := c.WriteTo(&b)
	fmt.Fprintf(d, " %d bytes %08x", n, crc32.ChecksumIEEE(b.Bytes()))
	return err
}

// write is the archive of a tree.
func write(t testing.TB, root pickle.Value) []byte {
	t.Helper()
	f, err := New(root, WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if n, err := f.WriteTo(&b); err != nil || n != f.Size() || int64(b.Len()) != n {
		t.Fatalf("wrote %d bytes of %d: %v", n, f.Size(), err)
	}
	return b.Bytes()
}
