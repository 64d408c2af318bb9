package torchfile

import (
	"fmt"
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
	// 256 KiB and 4 times the archive, at most 256 MiB.
	Inflate int64
}

func (o Options) inflate(size int64) int64 {
	const most = 256 << 20
	switch {
	case o.Inflate != 0:
		return o.Inflate
	case size > most/4:
		return most
	}
	return 256<<10 + 4*size
}

// Archive is an open archive. It stays valid as long as its storage does, and is
// safe for concurrent use.
type Archive struct {
	Version   int    // of the file format, 1 to 10; torch writes 3
	Prefix    string // the folder of all members
	ByteOrder string // "little", "big", or "" where the archive does not say: little
	// What PyTorch 2.7 and newer say of the layout: "1", and the number of bytes
	// that storages are aligned to; "" and 0 where they are silent.
	FormatVersion    string
	StorageAlignment int64
	Notes            []string // what is unusual, in words

	root    pickle.Value
	records []*record
}

// Open reads the archive that fills s: its directory and its pickle. Storages
// stay where they are, and are looked for when they are read.
//
// Errors are faults with offsets from the start of s: Corrupt where bytes
// contradict each other, Unsupported for files that are something else, Resource
// past a limit.
func Open(s tensor.Storage, o Options) (*Archive, error) {
	near, err := readEdges(s)
	if err != nil {
		return nil, err
	}
	if err := recognise(near.head, s.Size()); err != nil {
		return nil, err
	}
	x, trailing, err := findDirectory(near)
	if err != nil {
		return nil, err
	}
	dir, err := readDirectory(near, x)
	if err != nil {
		return nil, err
	}
	a := &Archive{}
	if trailing > 0 {
		a.note("%d bytes follow the end of the archive", trailing)
	}
	r := &reader{a: a, s: s, near: near, dir: dir, storages: map[string]*BareStorage{}, ints: map[*pickle.Tuple][]int64{}, budget: new(budget)}
	r.budget.left.Store(o.inflate(s.Size()))
	if err := r.readHeader(); err != nil {
		return nil, err
	}
	data, err := r.whole("data.pkl", mostPickle)
	if err != nil {
		return nil, err
	}
	a.root, err = pickle.Decode(data, pickle.Options{Limits: o.Pickle, Persistent: r.persistent, Reduce: r.rebuild})
	if err != nil {
		return nil, fault.Within(err, "", a.Prefix+"/data.pkl")
	}
	if r.attributes > 0 {
		a.note("Python attributes of %d tensors are not carried", r.attributes)
	}
	return a, nil
}

// Root is the object that was saved: tensors are *tensor.Tensor, DTensors
// *DTensor, other storages *BareStorage, everything else is as package pickle
// gives it. Tensors that cannot be told by strides over a storage (quantized,
// sparse, conjugated, without data, of rare types) stay objects.
func (a *Archive) Root() pickle.Value { return a.root }

// Verify completes the checksums of all records that were read from.
func (a *Archive) Verify() error {
	for _, r := range a.records {
		if err := r.verify(); err != nil {
			return err
		}
	}
	return nil
}

func (a *Archive) note(format string, args ...any) {
	a.Notes = append(a.Notes, fmt.Sprintf(format, args...))
}

// reader is an archive being opened.
type reader struct {
	a          *Archive
	s          tensor.Storage // where records are read from
	near       *edges         // the same, for opening
	dir        *directory
	budget     *budget
	storages   map[string]*BareStorage
	ints       map[*pickle.Tuple][]int64 // shapes and strides that were read
	attributes int                       // how many tensors lost named ones
}

// The lengths of members, in bytes, that are not read any more.
const (
	mostPickle = 1 << 30
	mostWord   = 64
)

// readHeader finds the prefix and reads the members that are words.
func (r *reader) readHeader() error {
	var err error
	if r.a.Prefix, err = r.dir.folder(); err != nil {
		return err
	}
	if err := r.readVersion(); err != nil {
		return err
	}
	for _, word := range []struct {
		name string
		set  func(string) error
	}{
		{"byteorder", r.setByteOrder},
		{".format_version", r.setFormatVersion},
		{".storage_alignment", r.setAlignment},
	} {
		if r.find(word.name) == nil {
			continue
		}
		text, err := r.whole(word.name, mostWord)
		if err == nil {
			err = word.set(string(text))
		}
		if err != nil {
			return fault.Within(err, "", r.a.Prefix+"/"+word.name)
		}
	}
	if r.a.ByteOrder == "" {
		r.a.note("no byteorder member: taken as little-endian")
	}
	return nil
}

// readVersion reads the version, which torch too looks for in two places.
func (r *reader) readVersion() error {
	name := "version"
	if r.find(name) == nil {
		name = ".data/version"
	}
	text, err := r.whole(name, mostWord)
	if err != nil {
		return err
	}
	version, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || version < 1 || version > 10 {
		return fault.New(fault.Unsupported, "the archive's version is %q, expected 1 to 10", text).In(r.a.Prefix + "/" + name)
	}
	r.a.Version = version
	return nil
}

func (r *reader) setByteOrder(text string) error {
	if text != "little" && text != "big" {
		return corrupt(fault.NoOffset, "the byte order is %q, expected little or big", text)
	}
	r.a.ByteOrder = text
	return nil
}

func (r *reader) setFormatVersion(text string) error {
	if r.a.FormatVersion = text; text != "1" {
		r.a.note("the archive's format version is %q, newer than what gefenckpt knows (1)", text)
	}
	return nil
}

func (r *reader) setAlignment(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return corrupt(fault.NoOffset, "the storages' alignment is %q, expected a number of bytes", text)
	}
	r.a.StorageAlignment = n
	return nil
}

// find is a member by its name below the prefix, or nil.
func (r *reader) find(name string) *entry {
	i, ok := r.dir.byName[r.a.Prefix+"/"+name]
	if !ok {
		return nil
	}
	return &r.dir.entries[i]
}

// whole reads a member whole.
func (r *reader) whole(name string, most int64) ([]byte, error) {
	e := r.find(name)
	if e == nil {
		return nil, r.missing(name)
	}
	return e.whole(r.near, r.budget, most)
}

func (r *reader) missing(name string) *fault.Error {
	return corrupt(fault.NoOffset, "the archive has no member %q", r.a.Prefix+"/"+name)
}
