package torchfile

import (
	"io/fs"
	"strconv"
	"strings"
	"unicode"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// WriteOptions steer New.
type WriteOptions struct {
	// Prefix is the folder of all members; default "archive". torch.save uses
	// the stem of the file's name.
	Prefix string
}

// File is an archive that is laid out and yet to be written: all sizes are
// known, so it can be the content of a tensor in another archive. It is a
// tensor.Content; what it writes depends on the tree and the prefix alone.
type File struct {
	members []member
	dirOff  int64
	dirLen  int64
	size    int64
}

// member is one member of the archive and its place.
type member struct {
	name    string
	content tensor.Content
	size    int64
	header  int64 // offset of the local header
	padding int   // bytes of Z in the padding field
}

// alignment is what every member's data starts at a multiple of, in bytes.
const alignment = 64

// New lays out the archive of root. Tensors in the tree may be stored or have
// Content. Stored tensors that share a storage share it in the archive too;
// a tensor that is alone in a larger storage is written without the rest.
//
// Members stand in the order of PyTorch 2.6, but storages in the order of their
// numbers. There is no .data/serialization_id, an optional fingerprint that no
// loader checks, and that could not be known before the data has passed.
//
// Errors are faults: those of pickle.Append and of tensors that are not valid,
// and Usage for a prefix that is no folder's name.
func New(root pickle.Value, o WriteOptions) (*File, error) {
	if o.Prefix == "" {
		o.Prefix = "archive"
	}
	if !fs.ValidPath(o.Prefix) || o.Prefix == "." || strings.Contains(o.Prefix, "/") || len(o.Prefix) > max16/2 || strings.ContainsFunc(o.Prefix, unicode.IsControl) {
		return nil, fault.New(fault.Usage, "%q cannot be the folder in an archive", o.Prefix)
	}
	w := &writer{users: map[tensor.Storage]int{}, keys: map[tensor.Storage]reference{}}
	// A first pass counts who uses each storage; nothing is kept of it.
	if _, err := pickle.Append(nil, root, pickle.EncodeOptions{Replace: w.count}); err != nil {
		return nil, err
	}
	data, err := pickle.Append(nil, root, pickle.EncodeOptions{Replace: w.replace})
	if err != nil {
		return nil, err
	}
	f := &File{}
	f.add(o.Prefix+"/data.pkl", bytesContent(data))
	f.add(o.Prefix+"/byteorder", bytesContent("little"))
	for i, c := range w.storages {
		f.add(o.Prefix+"/data/"+strconv.Itoa(i), c)
	}
	f.add(o.Prefix+"/version", bytesContent("3\n"))
	f.dirOff = f.size
	for i := range f.members {
		f.dirLen += int64(len(f.members[i].central(0)))
	}
	f.size += f.dirLen + end64Len + locatorLen + endLen
	return f, nil
}

// Size is the length of the archive in bytes.
func (f *File) Size() int64 { return f.size }

// add places a member behind the others.
func (f *File) add(name string, c tensor.Content) {
	m := member{name: name, content: c, size: c.Size(), header: f.size}
	start := m.header + localLen + int64(len(name)) + int64(len(m.zip64(0))) + 4
	m.padding = int((alignment - start%alignment) % alignment)
	f.size = start + int64(m.padding) + m.size + int64(len(m.descriptor(0)))
	f.members = append(f.members, m)
}
