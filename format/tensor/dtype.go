package tensor

// DType is an element type. Its zero value is no type.
type DType uint8

// The element types that PyTorch writes and gefenckpt carries.
const (
	Float32 DType = iota + 1
	Float64
	Float16
	BFloat16
	Int8
	Int16
	Int32
	Int64
	Uint8
	Bool
	Complex64
	Complex128
	Uint16
	Uint32
	Uint64
	Float8E4M3FN
	Float8E5M2
	Float8E4M3FNUZ
	Float8E5M2FNUZ
	Float8E8M0FNU
)

// dtypes: name in torch, bytes per element, and the legacy storage class of
// torch._utils._rebuild_tensor_v2; types without one are written with
// _rebuild_tensor_v3 over an UntypedStorage.
var dtypes = [...]struct {
	name    string
	size    int
	storage string
}{
	Float32:        {"float32", 4, "FloatStorage"},
	Float64:        {"float64", 8, "DoubleStorage"},
	Float16:        {"float16", 2, "HalfStorage"},
	BFloat16:       {"bfloat16", 2, "BFloat16Storage"},
	Int8:           {"int8", 1, "CharStorage"},
	Int16:          {"int16", 2, "ShortStorage"},
	Int32:          {"int32", 4, "IntStorage"},
	Int64:          {"int64", 8, "LongStorage"},
	Uint8:          {"uint8", 1, "ByteStorage"},
	Bool:           {"bool", 1, "BoolStorage"},
	Complex64:      {"complex64", 8, "ComplexFloatStorage"},
	Complex128:     {"complex128", 16, "ComplexDoubleStorage"},
	Uint16:         {"uint16", 2, ""},
	Uint32:         {"uint32", 4, ""},
	Uint64:         {"uint64", 8, ""},
	Float8E4M3FN:   {"float8_e4m3fn", 1, ""},
	Float8E5M2:     {"float8_e5m2", 1, ""},
	Float8E4M3FNUZ: {"float8_e4m3fnuz", 1, ""},
	Float8E5M2FNUZ: {"float8_e5m2fnuz", 1, ""},
	Float8E8M0FNU:  {"float8_e8m0fnu", 1, ""},
}

// String is the name in torch, without "torch.".
func (d DType) String() string { return dtypes[d].name }

// Size is the number of bytes per element.
func (d DType) Size() int { return dtypes[d].size }

// StorageClass is the name of the legacy storage class in module torch, or ""
// for types that have none.
func (d DType) StorageClass() string { return dtypes[d].storage }

// Parse finds a type by its name in torch.
func Parse(name string) (DType, bool) {
	for d := range dtypes {
		if name != "" && dtypes[d].name == name {
			return DType(d), true
		}
	}
	return 0, false
}

// OfStorageClass finds a type by its legacy storage class.
func OfStorageClass(class string) (DType, bool) {
	for d := range dtypes {
		if class != "" && dtypes[d].storage == class {
			return DType(d), true
		}
	}
	return 0, false
}
