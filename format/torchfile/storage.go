package torchfile

import (
	"fmt"
	"io"
	"slices"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// BareStorage is a storage in the tree that no tensor stands for: it was saved
// by itself, or belongs to an object that stays as it is.
type BareStorage struct {
	Class    *pickle.Global // torch.FloatStorage and the like, or torch.storage.UntypedStorage
	Elements int64          // of the class; bytes of an untyped one
	Location string         // "cpu", "cuda:0"
	Data     tensor.Storage // little-endian

	dtype tensor.DType // of the class; 0 if it has none that is known
}

// Describe is the storage in a few words, for error texts.
func (s *BareStorage) Describe() string {
	return fmt.Sprintf("a storage of %d elements of %s", s.Elements, pickle.Describe(s.Class))
}

// persistent resolves ('storage', class, key, location, elements). Other ids
// stay as they are.
func (r *reader) persistent(id pickle.Value, offset int64) (pickle.Value, error) {
	items, ok := pickle.Sequence(id)
	if !ok || len(items) != 5 || items[0] != "storage" {
		return &pickle.Persistent{ID: id, Offset: offset}, nil
	}
	class, ok := items[1].(*pickle.Global)
	key, ok2 := items[2].(string)
	location, ok3 := items[3].(string)
	elements, ok4 := items[4].(int64)
	if !ok || !ok2 || !ok3 || !ok4 {
		return nil, corrupt(offset, "a storage is described by %s, %s, %s and %s, expected a class, its key, its location and the number of its elements",
			pickle.Describe(items[1]), pickle.Describe(items[2]), pickle.Describe(items[3]), pickle.Describe(items[4]))
	}
	if location == "meta" { // elements were never saved
		return &pickle.Persistent{ID: id, Offset: offset}, nil
	}
	if s, ok := r.storages[key]; ok {
		if s.Class.Module != class.Module || s.Class.Name != class.Name || s.Elements != elements {
			return nil, corrupt(offset, "storage %q is described as %d elements of %s, and as %d of %s",
				key, s.Elements, pickle.Describe(s.Class), elements, pickle.Describe(class))
		}
		return s, nil
	}
	s := &BareStorage{Class: class, Elements: elements, Location: location}
	if err := r.load(s, key, offset); err != nil {
		return nil, err
	}
	r.storages[key] = s
	return s, nil
}

// load finds the record of a storage and checks its length.
func (r *reader) load(s *BareStorage, key string, offset int64) error {
	e := r.find("data/" + key)
	if e == nil {
		return r.missing("data/" + key).At(offset)
	}
	n, known := s.Elements, true
	switch d, ok := tensor.OfStorageClass(s.Class.Name); {
	case ok && s.Class.Module == "torch":
		s.dtype = d
		n, _ = tensor.Volume([]int64{s.Elements, int64(d.Size())})
	case s.Class.Module != "torch.storage" || s.Class.Name != "UntypedStorage":
		known = false
	}
	if s.Elements < 0 || known && n != e.size {
		return corrupt(offset, "storage %q has %d bytes, expected %d elements of %s", key, e.size, s.Elements, pickle.Describe(s.Class)).In(e.name)
	}
	rec := &record{entry: e, archive: r.s, budget: r.budget}
	r.a.records = append(r.a.records, rec)
	s.Data = rec
	if r.a.ByteOrder == "big" && (s.dtype == 0 || s.dtype.Size() > 1) {
		s.Data = &swapped{rec, width(s.dtype)}
	}
	return nil
}

// width is how many bytes are in one number of the type: an element, or half a
// complex one. It is 0 for no type.
func width(d tensor.DType) int64 {
	switch d {
	case 0:
		return 0
	case tensor.Complex64, tensor.Complex128:
		return int64(d.Size()) / 2
	}
	return int64(d.Size())
}

// elements is the storage as one of elements of type d. An untyped storage in a
// big-endian archive takes the type of its first tensor.
func (s *BareStorage) elements(d tensor.DType) (tensor.Storage, error) {
	big, ok := s.Data.(*swapped)
	switch {
	case !ok:
	case big.width == 0:
		big.width = width(d)
	case big.width != width(d):
		return nil, fault.New(fault.Unsupported, "a big-endian storage is read as numbers of %d bytes and of %d", big.width, width(d))
	}
	return s.Data, nil
}

// swapped reverses the bytes of each number of a big-endian storage.
type swapped struct {
	*record
	width int64 // in bytes; 0 if it is not known
}

// ReadAt reads the whole numbers around the range and swaps them.
func (s *swapped) ReadAt(p []byte, off int64) (int, error) {
	if s.width == 0 {
		return 0, fault.New(fault.Unsupported, "a big-endian storage whose elements have no known type").In(s.name)
	}
	if off < 0 || off >= s.size {
		return 0, io.EOF
	}
	first := off / s.width * s.width
	last := min((off+int64(len(p))+s.width-1)/s.width*s.width, s.size)
	whole := p
	if first != off || last != off+int64(len(p)) {
		whole = make([]byte, last-first)
	}
	if n, err := s.record.ReadAt(whole, first); n < len(whole) {
		return 0, err
	}
	for i := int64(0); i+s.width <= int64(len(whole)); i += s.width {
		slices.Reverse(whole[i : i+s.width])
	}
	n := len(p)
	if first != off || last != off+int64(len(p)) {
		n = copy(p, whole[off-first:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
