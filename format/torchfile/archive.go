package torchfile

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// Options steer Open. The zero value has the default limits.
type Options struct {
	Pickle pickle.Limits
	// Inflate is how many bytes deflated members may unpack to in all; default
	// 8 times the archive, at most 256 MiB.
	Inflate int64
}

// Archive is an open archive. It stays valid as long as its storage does.
type Archive struct {
	Version int      // of the file format, 1 to 10; torch writes 3
	Prefix  string   // the folder of all members
	Notes   []string // what is unusual, in words
	root    pickle.Value
	records []*Record
}

// Open reads the archive that fills s: its directory and its pickle. Storages
// stay where they are.
//
// Errors are faults with offsets from the start of s: Corrupt where bytes
// contradict each other, Unsupported for files that are something else.
func Open(s tensor.Storage, o Options) (*Archive, error) {
	if err := recognise(s); err != nil {
		return nil, err
	}
	dir, err := readDirectory(s)
	if err != nil {
		return nil, err
	}
	a := &Archive{}
	r := &reader{a: a, s: s, dir: dir, inflate: o.Inflate, storages: map[string]*storage{}}
	if r.inflate == 0 {
		r.inflate = min(8*s.Size(), 256<<20)
	}
	if err := r.header(); err != nil {
		return nil, err
	}
	rec, err := r.record("data.pkl")
	if err != nil {
		return nil, err
	}
	data, err := readFull(rec, 0, rec.Size())
	if err != nil {
		return nil, err
	}
	a.root, err = pickle.Decode(data, pickle.Options{Limits: o.Pickle, Persistent: r.persistent, Reduce: r.rebuild})
	if err != nil {
		return nil, fault.Within(err, "", a.Prefix+"/data.pkl")
	}
	return a, nil
}

// Root is the object that was saved: tensors are *tensor.Tensor, DTensors
// *DTensor, everything else is as package pickle gives it.
func (a *Archive) Root() pickle.Value { return a.root }

// Verify completes the checksums of all records that were read from.
func (a *Archive) Verify() error {
	for _, r := range a.records {
		if err := r.Verify(); err != nil {
			return err
		}
	}
	return nil
}

// reader is an archive being opened.
type reader struct {
	a        *Archive
	s        tensor.Storage
	dir      *directory
	inflate  int64
	storages map[string]*storage
	big      bool // storages are big-endian
}

// header finds the prefix, and reads version and byteorder.
func (r *reader) header() error {
	for _, rec := range r.dir.records {
		prefix, name, ok := strings.Cut(rec.name, "/")
		if !ok {
			return notTorch("member %q is in no folder", rec.name)
		}
		if r.a.Prefix != "" && r.a.Prefix != prefix {
			return notTorch("members are in two folders, %q and %q", r.a.Prefix, prefix)
		}
		r.a.Prefix = prefix
		if name == "constants.pkl" {
			return fault.New(fault.Unsupported, "this is a TorchScript module, no checkpoint").WithHint("save the optimizer's state with torch.save")
		}
	}
	if !r.has("data.pkl") {
		return notTorch("it has no data.pkl")
	}
	name := "version"
	if !r.has(name) {
		name = ".data/version"
	}
	version, err := r.small(name)
	if err != nil {
		return err
	}
	if r.a.Version, err = strconv.Atoi(strings.TrimSpace(version)); err != nil || r.a.Version < 1 || r.a.Version > 10 {
		return fault.New(fault.Unsupported, "archive version %q, expected 1 to 10", version).In(r.a.Prefix + "/" + name)
	}
	if !r.has("byteorder") {
		r.a.Notes = append(r.a.Notes, "no byteorder member: taken as little-endian")
		return nil
	}
	order, err := r.small("byteorder")
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"little", "big"}, order) {
		return corrupt(-1, "byteorder %q, expected little or big", order).In(r.a.Prefix + "/byteorder")
	}
	r.big = order == "big"
	return nil
}

func notTorch(format string, args ...any) error {
	return fault.New(fault.Unsupported, "this zip file is no torch.save archive: "+format, args...)
}

func (r *reader) has(name string) bool {
	_, ok := r.dir.byName[r.a.Prefix+"/"+name]
	return ok
}

// record opens a member by its name below the prefix.
func (r *reader) record(name string) (*Record, error) {
	i, ok := r.dir.byName[r.a.Prefix+"/"+name]
	if !ok {
		return nil, corrupt(-1, "the archive has no member %q", r.a.Prefix+"/"+name)
	}
	rec := &r.dir.records[i]
	var src tensor.Storage = &tensor.Section{R: r.s, Off: rec.data, N: rec.size}
	if rec.method == methodDeflate {
		var err error
		if src, err = inflated(r.s, rec, r.inflate); err != nil {
			return nil, err
		}
		r.inflate -= rec.size
	}
	out := &Record{name: rec.name, src: src, crc: rec.crc}
	r.a.records = append(r.a.records, out)
	return out, nil
}

// small reads a member of a few bytes.
func (r *reader) small(name string) (string, error) {
	rec, err := r.record(name)
	if err != nil {
		return "", err
	}
	if rec.Size() > 64 {
		return "", corrupt(-1, "member %q has %d bytes, expected a word", name, rec.Size())
	}
	b, err := readFull(rec, 0, rec.Size())
	return string(b), err
}

// recognise refuses files that are known to be something else, by name.
func recognise(s tensor.Storage) error {
	head := make([]byte, min(s.Size(), 512))
	if err := readInto(s, head, 0); err != nil {
		return err
	}
	if bytes.HasPrefix(head, []byte("PK\x03\x04")) {
		return nil
	}
	for _, k := range []struct {
		is         bool
		what, hint string
	}{
		{len(head) == 0, "the file is empty", "copy it again from where it was written"},
		{bytes.HasPrefix(head, legacyMagic), "this is a torch.save file from before PyTorch 1.6", "load it and save it again with a newer PyTorch"},
		{len(head) > 262 && string(head[257:262]) == "ustar", "this is a tar file, such as PyTorch wrote before 0.1.10", "load it and save it again with a newer PyTorch"},
		{bytes.HasPrefix(head, []byte("PK\x05\x06")), "this is an empty zip file", "copy it again from where it was written"},
		{len(head) > 9 && head[8] == '{' && head[7] == 0, "this looks like a safetensors file, which holds tensors but no optimizer state", "give the file that torch.save wrote for the optimizer"},
		{len(head) > 2 && head[0] == 0x80 && head[1] <= 5, "this is a bare pickle, no torch.save archive", "give the .pt file, or the directory whose .metadata this is"},
		{bytes.HasPrefix(head, []byte("\x1f\x8b")) || bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")), "this is a compressed file", "unpack it first"},
	} {
		if k.is {
			return fault.New(fault.Unsupported, "%s", k.what).At(0).WithHint("%s", k.hint)
		}
	}
	return fault.New(fault.Unsupported, "this is no torch.save archive: it begins with %x, expected 504b0304", head[:min(len(head), 4)]).At(0)
}

// legacyMagic begins the non-zip format: a pickle of a magic number.
var legacyMagic = []byte{0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e}
