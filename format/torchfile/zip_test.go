package torchfile

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// file is a member for zipOf.
type file struct {
	name, data string
	method     uint16
	noSum      bool
	// size is what the directory says, if not 0.
	size uint64
}

// zipOf is a zip archive, written by archive/zip.
func zipOf(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		packed := []byte(f.data)
		if f.method == methodDeflate {
			var p bytes.Buffer
			w, _ := flate.NewWriter(&p, 9)
			io.WriteString(w, f.data)
			w.Close()
			packed = p.Bytes()
		}
		h := &zip.FileHeader{Name: f.name, Method: f.method, CRC32: crc32.ChecksumIEEE([]byte(f.data)),
			CompressedSize64: uint64(len(packed)), UncompressedSize64: uint64(len(f.data))}
		if f.noSum {
			h.CRC32 = 0
		}
		if f.size != 0 {
			h.UncompressedSize64 = f.size
		}
		w, err := z.CreateRaw(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(packed); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// pickled is the pickle of a tensor of n float32s in storage 0.
func pickled(t testing.TB, n int64) string {
	t.Helper()
	id := &pickle.Persistent{ID: pickle.NewTuple("storage", &pickle.Global{Module: "torch", Name: "FloatStorage"}, "0", "cpu", n)}
	data, err := pickle.Append(nil, call("torch._utils", "_rebuild_tensor_v2", id, int64(0), pickle.IntTuple([]int64{n}), pickle.IntTuple([]int64{1}), false, orderedDict()), pickle.EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// floats is a minimal archive of a tensor of n float32 zeros; the member with the
// elements may be changed.
func floats(t testing.TB, n int64, change func(*file)) []byte {
	t.Helper()
	data := file{name: "a/data/0", data: strings.Repeat("\x00", int(4*n))}
	if change != nil {
		change(&data)
	}
	return zipOf(t, file{name: "a/data.pkl", data: pickled(t, n)}, data, file{name: "a/version", data: "3\n"}, file{name: "a/byteorder", data: "little"})
}

func readRoot(a *Archive) error {
	_, err := a.Root().(*tensor.Tensor).Data().WriteTo(io.Discard)
	if err == nil {
		err = a.Verify()
	}
	return err
}

func TestDirectoriesThatLie(t *testing.T) {
	good := floats(t, 4, nil)
	le := le
	end := len(good) - endLen
	central := int(le.Uint32(good[end+16:]))
	entry := func(name string) int { return bytes.Index(good[central:], []byte(name)) + central - centralLen }
	local := func(name string) int { return bytes.Index(good, []byte(name)) - localLen }
	data := entry("a/data/0")
	patch := func(at int, b ...byte) []byte {
		bad := bytes.Clone(good)
		copy(bad[at:], b)
		return bad
	}
	for _, c := range []struct {
		name string
		data []byte
		kind fault.Kind
		text string
	}{
		{"good", good, 0, ""},
		{"zeros behind the end", append(bytes.Clone(good), make([]byte, 100)...), 0, ""},
		{"cut short", good[:len(good)-1], fault.Corrupt, "no zip end record"},
		{"cut within the data", good[:100], fault.Corrupt, "cut short"},
		{"bytes in front", append([]byte("PK\x03\x04"), good...), fault.Corrupt, "bytes were lost or added"},
		{"bytes lost in front", append([]byte("PK\x03\x04"), good[8:]...), fault.Corrupt, "bytes were lost or added"},
		{"more members than the directory", patch(end+8, 0xff, 0, 0xff, 0), fault.Corrupt, "names 255 members"},
		{"fewer members than the directory", patch(end+8, 3, 0, 3, 0), fault.Corrupt, "has 57 bytes more"},
		{"one disk of two", patch(end+4, 1), fault.Corrupt, "one part of several"},
		{"directory beyond the end", patch(end+16, 0xff, 0xff, 0xff, 0x7f), fault.Corrupt, "directory is said to be"},
		{"directory of other length", patch(end+12, 0xff, 0xff, 0, 0), fault.Corrupt, "directory is said to be"},
		{"no entry", patch(central, 'X'), fault.Corrupt, "no zip directory entry"},
		{"entry longer than the directory", patch(central+28, 0xff, 0xff), fault.Corrupt, "are left"},
		{"encrypted", patch(data+8, 1), fault.Unsupported, "encrypted"},
		{"unknown method", patch(data+10, 93), fault.Unsupported, "method 93"},
		{"stored sizes differ", patch(data+24, 17), fault.Corrupt, "stored in 16 bytes and said to hold 17"},
		{"larger than its place", patch(data+20, 0xff, 0, 0, 0, 0xff, 0, 0, 0), fault.Corrupt, "overlaps what begins at"},
		{"larger than anything", patch(data+20, 0xfe, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff), fault.Corrupt, "overlaps what begins at"},
		{"header beyond the directory", patch(data+42, 0xff, 0xff, 0, 0), fault.Corrupt, "overlaps what begins at"},
		{"header of another", patch(data+42, 0, 0, 0, 0), fault.Corrupt, "overlaps what begins at"},
		{"path that climbs", patch(data+46, '.', '.', '/', 'd', 'a', 't', 'a', '0'), fault.Corrupt, "no plain path"},
		{"absolute path", patch(data+46, '/'), fault.Corrupt, "no plain path"},
		{"name with a control character", patch(data+46, 'a', '/', 27), fault.Corrupt, "no plain path"},
		{"no local header", patch(local("a/data/0"), 'X'), fault.Corrupt, "no local header"},
		{"another name in the local header", patch(local("a/data/0")+localLen, 'b'), fault.Corrupt, "says something else"},
		{"another method in the local header", patch(local("a/data/0")+8, 8), fault.Corrupt, "says something else"},
		{"local header that reaches into the next", patch(local("a/data/0")+28, 0xff), fault.Corrupt, "overlaps what begins at"},
		{"two of one name", zipOf(t, file{name: "a/data.pkl", data: "\x80\x02N."}, file{name: "a/data.pkl", data: "\x80\x02N."}), fault.Corrupt, "two members are named"},
		{"checksum of the pickle", patch(entry("a/data.pkl")+16, 1, 2, 3, 4), fault.Corrupt, "expected 04030201"},
		{"checksum of the data", patch(data+16, 1, 2, 3, 4), fault.Corrupt, "expected 04030201"},
		{"no version", zipOf(t, file{name: "a/data.pkl", data: "\x80\x02N."}), fault.Corrupt, `no member "a/.data/version"`},
		{"version 11", zipOf(t, file{name: "a/data.pkl", data: "\x80\x02N."}, file{name: "a/version", data: "11"}), fault.Unsupported, "expected 1 to 10"},
		{"version of words", zipOf(t, file{name: "a/data.pkl", data: "\x80\x02N."}, file{name: "a/version", data: "three"}), fault.Unsupported, `"three"`},
		{"long version", zipOf(t, file{name: "a/data.pkl", data: "\x80\x02N."}, file{name: "a/version", data: strings.Repeat("3", 100)}), fault.Resource, "100 bytes"},
		{"byte order", zipOf(t, file{name: "a/data.pkl", data: "\x80\x02N."}, file{name: "a/version", data: "3"}, file{name: "a/byteorder", data: "middle"}), fault.Corrupt, "middle"},
		{"alignment", zipOf(t, file{name: "a/data.pkl", data: "\x80\x02N."}, file{name: "a/version", data: "3"}, file{name: "a/.storage_alignment", data: "-4"}), fault.Corrupt, `"-4"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := Open(tensor.Memory(c.data), Options{})
			if err == nil {
				err = readRoot(a)
			}
			fails(t, err, c.kind, c.text)
		})
	}
}

func TestBytesBehindTheEndAreNoted(t *testing.T) {
	a := openBytes(t, append(floats(t, 4, nil), make([]byte, 100)...))
	if got, want := strings.Join(a.Notes, "; "), "100 bytes follow the end of the archive"; got != want {
		t.Errorf("notes %q, expected %q", got, want)
	}
	_, err := Open(tensor.Memory(append(floats(t, 4, nil), make([]byte, endSearch)...)), Options{})
	fails(t, err, fault.Corrupt, "no zip end record")
}

func TestStoragesMustHaveTheirLength(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*file)
		text   string
	}{
		"short":   {func(f *file) { f.data = f.data[:15] }, "has 15 bytes, expected 4 elements"},
		"long":    {func(f *file) { f.data += "x" }, "has 17 bytes, expected 4 elements"},
		"missing": {func(f *file) { f.name = "a/data/1" }, `no member "a/data/0"`},
	} {
		_, err := Open(tensor.Memory(floats(t, 4, c.change)), Options{})
		if err == nil || fault.KindOf(err) != fault.Corrupt || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, expected %q", name, err, c.text)
		}
	}
}

func TestChecksumsOfZeroAreNone(t *testing.T) {
	a := openBytes(t, floats(t, 4, func(f *file) { f.noSum, f.data = true, "changed since then"[:16] }))
	if err := readRoot(a); err != nil {
		t.Error(err)
	}
}

func TestDeflatedMembers(t *testing.T) {
	deflate := func(f *file) { f.method = methodDeflate }
	bomb := zipOf(t, file{name: "a/data.pkl", data: pickled(t, 100_000_000)}, file{name: "a/version", data: "3"},
		file{name: "a/data/0", data: "\x00", method: methodDeflate, size: 400_000_000})
	for name, c := range map[string]struct {
		data    []byte
		inflate int64
		kind    fault.Kind
		text    string // "" if it reads
	}{
		"plain":               {floats(t, 1000, deflate), 0, 0, ""},
		"over the limit":      {floats(t, 1000, deflate), 3999, fault.Resource, "zip -0"},
		"within the limit":    {floats(t, 1000, deflate), 4000, 0, ""},
		"over the default":    {floats(t, 200_000, deflate), 0, fault.Resource, "zip -0"},
		"bomb":                {bomb, 0, fault.Corrupt, "said to unpack from"},
		"shorter than it was": {floats(t, 1000, func(f *file) { deflate(f); f.data, f.size = f.data[:3999], 4000 }), 0, fault.Corrupt, "unpacks to 3999 bytes"},
		"longer than it was":  {floats(t, 1000, func(f *file) { deflate(f); f.data, f.size = f.data+"x", 4000 }), 0, fault.Corrupt, "unpacks to more than"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := Open(tensor.Memory(c.data), Options{Inflate: c.inflate})
			if err == nil {
				err = readRoot(a)
			}
			fails(t, err, c.kind, c.text)
		})
	}
	broken := floats(t, 1000, deflate)
	at := bytes.Index(broken, []byte("a/data/0")) + len("a/data/0")
	broken[at] = 0xff // no kind of block
	err := readRoot(openBytes(t, broken))
	fails(t, err, fault.Corrupt, "cannot be unpacked")
}

// Random archives of archive/zip list the same members here, with the same bytes.
func TestDirectoryAgreesWithArchiveZip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		if err := z.SetComment(string(rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "comment"))); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for i := range rapid.IntRange(0, 20).Draw(t, "members") {
			name := fmt.Sprintf("%s/%d", rapid.StringMatching(`[a-z.]{1,9}x`).Draw(t, "name"), i)
			data := string(rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data"))
			h := &zip.FileHeader{Name: name, Method: rapid.SampledFrom([]uint16{methodStored, methodDeflate}).Draw(t, "method")}
			extra := rapid.IntRange(-1, 63).Draw(t, "padding")
			if extra >= 0 {
				h.Extra = append([]byte{'F', 'B', byte(extra), 0}, make([]byte, extra)...)
			}
			w, err := z.CreateHeader(h)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(w, data)
			want[name] = data
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		s := tensor.Memory(b.Bytes())
		x, trailing, err := findDirectory(s)
		if err != nil || trailing != 0 {
			t.Fatal(trailing, err)
		}
		d, err := readDirectory(s, x)
		if err != nil {
			t.Fatal(err)
		}
		limit := new(budget)
		limit.left.Store(math.MaxInt64)
		for i := range d.entries {
			e := &d.entries[i]
			got, err := e.whole(s, limit, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != want[e.name] {
				t.Fatalf("%s is %q, expected %q", e.name, got, want[e.name])
			}
			delete(want, e.name)
		}
		if len(want) > 0 {
			t.Fatalf("members are missing: %v", want)
		}
	})
}
