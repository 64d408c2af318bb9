package dcp

import (
	"encoding/binary"
	"fmt"
	"strings"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// Where torch keeps the classes of a metadata file. The last is where PyTorch
// 2.1 and 2.2 have TensorProperties.
const (
	metadataModule   = "torch.distributed.checkpoint.metadata"
	filesystemModule = "torch.distributed.checkpoint.filesystem"
	shardedModule    = "torch.distributed._shard.sharded_tensor.metadata"
)

// What the objects of a metadata file fold into while it is decoded. All that
// repeats a million times is one of these.
type (
	// dims is a torch.Size.
	dims struct{ n []int64 }
	// chunkBox is a ChunkStorageMetadata.
	chunkBox struct{ offset, size []int64 }
	// properties is a TensorProperties. problem says why the tensor cannot be
	// read, if that is so.
	properties struct {
		dtype        tensor.DType
		requiresGrad bool
		problem      *fault.Error
	}
	// tensorEntry is a TensorStorageMetadata.
	tensorEntry struct {
		*properties
		size   []int64
		chunks []chunkBox
	}
	// indexKey is a MetadataIndex. A bytes item has no offset, which is not the
	// same as the empty offset of a 0-dim tensor.
	indexKey struct {
		fqn       string
		offset    []int64
		hasOffset bool
		hint      int64 // the position in the list of chunks, by its writer
	}
)

// folder turns the objects of one metadata file into those as they are built.
type folder struct {
	m          *Metadata
	files      map[string]int32
	transforms map[string]int32
	sizes      map[string]*dims // by their numbers as varints
	key        []byte           // a key of sizes in the making
	slab       []int64          // room for the dims to come
	room       int              // how many more chunks the file can really hold

	sharded, strides, modules bool // what tells the release that wrote the file
}

type className struct{ module, name string }

// folds has what is done with each class when its state is set. Other classes
// stay inert.
var folds = map[className]func(*folder, *pickle.Object) (pickle.Value, error){
	{metadataModule, "ChunkStorageMetadata"}:  (*folder).chunk,
	{metadataModule, "TensorStorageMetadata"}: (*folder).tensor,
	{metadataModule, "TensorProperties"}:      (*folder).properties,
	{shardedModule, "TensorProperties"}:       (*folder).oldProperties,
	{metadataModule, "MetadataIndex"}:         (*folder).index,
	{filesystemModule, "_StorageInfo"}:        (*folder).place,
	{metadataModule, "StorageMeta"}:           (*folder).storageMeta,
}

// build is the hook of the pickle machine for BUILD.
func (f *folder) build(o *pickle.Object) error {
	fold := folds[className{o.Class.Module, o.Class.Name}]
	if fold == nil {
		return nil
	}
	state, err := fold(f, o)
	if err != nil {
		return err
	}
	if dict, ok := o.State.(*pickle.Dict); ok {
		dict.Pairs = nil // the memo keeps the dict, and a million are many
	}
	o.State = state
	return nil
}

// attributes returns the state of o as a dict.
func attributes(o *pickle.Object) ([]pickle.Pair, error) {
	dict, ok := o.State.(*pickle.Dict)
	if !ok {
		return nil, fault.New(fault.Corrupt, "the state of a %s is a %s where a dict belongs",
			o.Class.Name, tree.Describe(o.State))
	}
	return dict.Pairs, nil
}

// wrongType is the fault of an attribute that is not what it must be.
func wrongType(o *pickle.Object, attribute pickle.Value, got pickle.Value, want string) error {
	return fault.New(fault.Corrupt, "%s.%v is %s where %s belongs", o.Class.Name, attribute, tree.Describe(got), want)
}

// missing is the fault of an attribute that is not there.
func missing(o *pickle.Object, attribute string) error {
	return fault.New(fault.Corrupt, "a %s has no %s", o.Class.Name, attribute)
}

// unknown notes an attribute of a newer torch.
func (f *folder) unknown(o *pickle.Object, attribute pickle.Value) {
	f.m.note(fmt.Sprintf("%s has an attribute %q that gefenckpt does not know", o.Class.Name, fmt.Sprint(attribute)))
}

func (f *folder) chunk(o *pickle.Object) (pickle.Value, error) {
	pairs, err := attributes(o)
	if err != nil {
		return nil, err
	}
	var offset, size *dims
	for _, p := range pairs {
		switch p.Key {
		case "offsets":
			offset, err = f.size(o, p)
		case "sizes":
			size, err = f.size(o, p)
		default:
			f.unknown(o, p.Key)
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case offset == nil:
		return nil, missing(o, "offsets")
	case size == nil:
		return nil, missing(o, "sizes")
	case len(offset.n) != len(size.n):
		return nil, fault.New(fault.Corrupt, "a chunk has offsets in %d dimensions and sizes in %d", len(offset.n), len(size.n))
	}
	return &chunkBox{offset.n, size.n}, nil
}

func (f *folder) tensor(o *pickle.Object) (pickle.Value, error) {
	pairs, err := attributes(o)
	if err != nil {
		return nil, err
	}
	var (
		entry tensorEntry
		size  *dims
		list  *pickle.List
	)
	for _, p := range pairs {
		switch p.Key {
		case "properties":
			object, _ := p.Value.(*pickle.Object)
			if object != nil {
				entry.properties, _ = object.State.(*properties)
			}
			if entry.properties == nil {
				return nil, wrongType(o, p.Key, p.Value, "a TensorProperties")
			}
		case "size":
			if size, err = f.size(o, p); err != nil {
				return nil, err
			}
		case "chunks":
			var ok bool
			if list, ok = p.Value.(*pickle.List); !ok {
				return nil, wrongType(o, p.Key, p.Value, "a list")
			}
		default:
			f.unknown(o, p.Key)
		}
	}
	switch {
	case entry.properties == nil:
		return nil, missing(o, "properties")
	case size == nil:
		return nil, missing(o, "size")
	case list == nil:
		return nil, missing(o, "chunks")
	}
	entry.size = size.n
	if f.room -= len(list.Items); f.room < 0 {
		return nil, fault.New(fault.Corrupt, "tensors share their lists of chunks: more chunks than the file has room for")
	}
	entry.chunks = make([]chunkBox, len(list.Items))
	for i, item := range list.Items {
		object, _ := item.(*pickle.Object)
		if object == nil {
			return nil, wrongType(o, "chunks", item, "a ChunkStorageMetadata")
		}
		box, ok := object.State.(*chunkBox)
		if !ok {
			return nil, wrongType(o, "chunks", item, "a ChunkStorageMetadata")
		}
		entry.chunks[i] = *box
	}
	return &entry, nil
}

func (f *folder) oldProperties(o *pickle.Object) (pickle.Value, error) {
	f.sharded = true
	return f.properties(o)
}

// properties folds the state tuple: dtype, layout, requires_grad, memory format,
// pin_memory, and since PyTorch 2.15 the strides of the tensor that was saved,
// which nothing reads.
func (f *folder) properties(o *pickle.Object) (pickle.Value, error) {
	tuple, _ := o.State.(*pickle.Tuple)
	if tuple == nil {
		return nil, wrongType(o, "state", o.State, "a tuple")
	}
	switch n := len(tuple.Items); {
	case n < 5:
		return nil, fault.New(fault.Corrupt, "the state of a TensorProperties has %d parts where 5 or 6 belong", n)
	case n == 6:
		f.strides = true
	case n > 6:
		f.strides = true
		f.m.note(fmt.Sprintf("TensorProperties has %d parts where PyTorch 2.15 writes 6", n))
	}
	var p properties
	dtype, ok := tuple.Items[0].(*pickle.Global)
	if !ok || dtype.Module != "torch" {
		return nil, wrongType(o, "dtype", tuple.Items[0], "a torch dtype")
	}
	if p.dtype, ok = tensor.Parse(dtype.Name); !ok {
		p.problem = fault.New(fault.Unsupported, "its dtype is torch.%s, which gefenckpt does not read", dtype.Name)
	}
	if layout := argument(tuple.Items[1], "torch.serialization", "_get_layout"); layout != "torch.strided" {
		p.problem = fault.New(fault.Unsupported, "its layout is %s, and only strided tensors are read", tree.Describe(layout))
	}
	if p.requiresGrad, ok = tuple.Items[2].(bool); !ok {
		return nil, wrongType(o, "requires_grad", tuple.Items[2], "a bool")
	}
	format := argument(tuple.Items[3], metadataModule, "_MEM_FORMAT_ENCODING")
	if format == nil {
		format = argument(tuple.Items[3], shardedModule, "MEM_FORMAT_ENCODING")
	}
	if n, ok := format.(int64); !ok || n < 0 || n > 2 {
		p.problem = fault.New(fault.Corrupt, "its memory format is %s where 0, 1 or 2 belongs", tree.Describe(format))
	}
	if _, ok := tuple.Items[4].(bool); !ok {
		return nil, wrongType(o, "pin_memory", tuple.Items[4], "a bool")
	}
	return &p, nil
}

// argument returns the one argument of a call of a class or function, or nil if v
// is anything else.
func argument(v pickle.Value, module, name string) pickle.Value {
	o, ok := v.(*pickle.Object)
	if !ok || o.Class.Module != module || o.Class.Name != name || len(o.Args.Items) != 1 {
		return nil
	}
	return o.Args.Items[0]
}

func (f *folder) index(o *pickle.Object) (pickle.Value, error) {
	pairs, err := attributes(o)
	if err != nil {
		return nil, err
	}
	var (
		key   indexKey
		named bool
	)
	for _, p := range pairs {
		switch p.Key {
		case "fqn":
			if key.fqn, named = p.Value.(string); !named {
				return nil, wrongType(o, p.Key, p.Value, "a str")
			}
		case "offset":
			if p.Value == nil {
				continue
			}
			offset, err := f.size(o, p)
			if err != nil {
				return nil, err
			}
			key.offset, key.hasOffset = offset.n, true
		case "index": // a hint, and torch does not mind a wrong one
			key.hint, _ = p.Value.(int64)
		default:
			f.unknown(o, p.Key)
		}
	}
	if !named {
		return nil, missing(o, "fqn")
	}
	return &key, nil
}

func (f *folder) place(o *pickle.Object) (pickle.Value, error) {
	pairs, err := attributes(o)
	if err != nil {
		return nil, err
	}
	place := Place{File: noFile, Offset: -1, Length: -1}
	for _, p := range pairs {
		switch p.Key {
		case "relative_path":
			path, ok := p.Value.(string)
			if !ok {
				return nil, wrongType(o, p.Key, p.Value, "a str")
			}
			place.File = intern(f.files, &f.m.Files, path, path)
		case "offset":
			if place.Offset, err = length(o, p); err != nil {
				return nil, err
			}
		case "length":
			if place.Length, err = length(o, p); err != nil {
				return nil, err
			}
		case "transform_descriptors":
			if place.transforms, err = f.transformList(o, p); err != nil {
				return nil, err
			}
		default:
			f.unknown(o, p.Key)
		}
	}
	switch {
	case place.File == noFile:
		return nil, missing(o, "relative_path")
	case place.Offset < 0:
		return nil, missing(o, "offset")
	case place.Length < 0:
		return nil, missing(o, "length")
	}
	return &place, nil
}

// mostTransforms is how many transforms one item may have gone through.
const mostTransforms = 16

// transformList returns the index of a list of transform descriptors, kept once.
func (f *folder) transformList(o *pickle.Object, p pickle.Pair) (int32, error) {
	if p.Value == nil {
		return 0, nil
	}
	var items []pickle.Value
	switch v := p.Value.(type) {
	case *pickle.List:
		items = v.Items
	case *pickle.Tuple:
		items = v.Items
	default:
		return 0, wrongType(o, p.Key, p.Value, "a list")
	}
	if len(items) > mostTransforms {
		return 0, fault.New(fault.Corrupt, "%s.%v has %d entries", o.Class.Name, p.Key, len(items))
	}
	names := make([]string, len(items))
	for i, item := range items {
		name, ok := item.(string)
		if !ok {
			return 0, wrongType(o, p.Key, item, "a str")
		}
		names[i] = name
	}
	if len(names) == 0 {
		return 0, nil
	}
	return intern(f.transforms, &f.m.transforms, strings.Join(names, "\x00"), names), nil
}

// storageMeta looks only at what tells the release: all else in it is informative.
func (f *folder) storageMeta(o *pickle.Object) (pickle.Value, error) {
	pairs, err := attributes(o)
	if err != nil {
		return nil, err
	}
	for _, p := range pairs {
		switch p.Key {
		case "checkpoint_id", "save_id", "load_id":
		case "modules":
			f.modules = true
		default:
			f.unknown(o, p.Key)
		}
	}
	return nil, nil
}

// length returns a byte count or offset.
func length(o *pickle.Object, p pickle.Pair) (int64, error) {
	n, ok := p.Value.(int64)
	if !ok || n < 0 {
		return 0, wrongType(o, p.Key, p.Value, "a count of bytes")
	}
	return n, nil
}

// mostDims is how many dimensions a tensor of PyTorch can have.
const mostDims = 64

// reduce is the hook of the pickle machine for REDUCE. It refuses calls that no
// metadata file makes: nothing is called anyway, but a file that asks for more
// than this was not written by torch.
func (f *folder) reduce(o *pickle.Object) (pickle.Value, error) {
	class := className{o.Class.Module, o.Class.Name}
	if !callables[class] {
		return nil, fault.New(fault.Unsupported, "the file would call %s.%s, which has no place in the metadata of a checkpoint",
			class.module, class.name).WithHint("do not load this file with PyTorch: it may run code")
	}
	if class == sizeClass && len(o.Args.Items) == 1 {
		if tuple, ok := o.Args.Items[0].(*pickle.Tuple); ok {
			return f.dims(tuple.Items)
		}
	}
	return o, nil
}

var sizeClass = className{"torch", "Size"}

// callables is what torch's metadata files call.
var callables = map[className]bool{
	sizeClass:                                true,
	{"torch.serialization", "_get_layout"}:   true,
	{metadataModule, "_MEM_FORMAT_ENCODING"}: true,
	{shardedModule, "MEM_FORMAT_ENCODING"}:   true,
	{"pathlib", "PosixPath"}:                 true,
	{"pathlib", "WindowsPath"}:               true,
	{"pathlib", "PurePosixPath"}:             true,
	{"pathlib", "PureWindowsPath"}:           true,
	{"pathlib._local", "PosixPath"}:          true,
	{"pathlib._local", "WindowsPath"}:        true,
	{"pathlib._local", "PurePosixPath"}:      true,
	{"pathlib._local", "PureWindowsPath"}:    true,
	{"collections", "OrderedDict"}:           true,
}

// size returns a torch.Size, or a plain tuple or list, of counts.
func (f *folder) size(o *pickle.Object, p pickle.Pair) (*dims, error) {
	var (
		d   *dims
		err error
	)
	switch v := p.Value.(type) {
	case *dims:
		return v, nil
	case *pickle.Tuple:
		d, err = f.dims(v.Items)
	case *pickle.List:
		d, err = f.dims(v.Items)
	default:
		return nil, wrongType(o, p.Key, p.Value, "a torch.Size")
	}
	if err != nil {
		return nil, fault.New(fault.Corrupt, "%s.%v: %w", o.Class.Name, p.Key, err)
	}
	return d, nil
}

// dims makes counts of the values of a torch.Size. Equal ones are one, so that
// what they take is bounded by what stands in the file.
func (f *folder) dims(items []pickle.Value) (*dims, error) {
	if len(items) > mostDims {
		return nil, fault.New(fault.Corrupt, "a size of %d dimensions, and PyTorch has at most %d", len(items), mostDims)
	}
	f.key = f.key[:0]
	for _, item := range items {
		n, ok := item.(int64)
		if !ok || n < 0 {
			return nil, fault.New(fault.Corrupt, "a size has %s where the size of a dimension belongs", tree.Describe(item))
		}
		f.key = binary.AppendUvarint(f.key, uint64(n))
	}
	if d, ok := f.sizes[string(f.key)]; ok {
		return d, nil
	}
	d := &dims{f.take(len(items))}
	for i, item := range items {
		d.n[i] = item.(int64)
	}
	f.sizes[string(f.key)] = d
	return d, nil
}

// take cuts n numbers from the slab.
func (f *folder) take(n int) []int64 {
	if n > len(f.slab) {
		f.slab = make([]int64, 1024)
	}
	taken := f.slab[:n:n]
	f.slab = f.slab[n:]
	return taken
}
