package torchfile

import (
	"bytes"
	"errors"
	"testing"

	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// outcome opens an archive, reads everything in it and verifies it.
func outcome(data []byte) (string, error) {
	a, err := Open(tensor.Memory(data), Options{})
	if err != nil {
		return "", err
	}
	d := &dumper{seen: map[any]int{}}
	if err := d.value(a.Root()); err != nil {
		return "", err
	}
	return d.String(), a.Verify()
}

// typed fails unless err is a fault of bytes that are wrong, with a message.
func typed(t testing.TB, err error) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind == fault.Internal || f.Message == "" {
		t.Errorf("%v is no fault with a kind", err)
	}
}

// Wherever an archive is cut, and whichever byte of it changes, it is an error or
// the same archive.
func TestEveryByteCounts(t *testing.T) {
	for _, name := range []string{"torch-2.6/item.pt", "torch-2.15/item.pt", "torch-2.6/data-version.pt", "torch-2.6/deflated.pt", "torch-2.6/nested.pt", "torch-2.15/folders.pt"} {
		t.Run(name, func(t *testing.T) {
			data := read(t, "testdata/"+name)
			want, err := outcome(data)
			if err != nil {
				t.Fatal(err)
			}
			for n := range data {
				got, err := outcome(data[:n])
				if err == nil {
					t.Errorf("cut to %d bytes of %d it opens: %s", n, len(data), got)
				} else {
					typed(t, err)
				}
			}
			same := 0
			for at := range data {
				for _, flip := range []byte{0x01, 0x80, 0xff} {
					changed := bytes.Clone(data)
					changed[at] ^= flip
					got, err := outcome(changed)
					switch {
					case err != nil:
						typed(t, err)
					case got != want:
						t.Errorf("byte %d changed by %#x gives\n%s\nexpected\n%s", at, flip, got, want)
					default:
						same++
					}
				}
			}
			// What carries nothing is padding, times, versions and the like.
			if same > 3*len(data)*6/10 {
				t.Errorf("%d of %d changes make no difference", same, 3*len(data))
			}
		})
	}
}

// Without checksums a change of elements cannot be told; anything else can.
func TestEveryByteWithoutChecksums(t *testing.T) {
	data := read(t, releases[0]+"no-crc.pt")
	for at := range data {
		changed := bytes.Clone(data)
		changed[at] ^= 0xff
		if _, err := outcome(changed); err != nil {
			typed(t, err)
		}
	}
}
