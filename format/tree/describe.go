package tree

import (
	"fmt"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
)

// Describe is a value in a few words, for error texts: "a dict of 3", "a tensor
// float32 [2 3]".
func Describe(v pickle.Value) string {
	switch v := v.(type) {
	case *tensor.Tensor:
		return fmt.Sprintf("a tensor %s %v", v.DType, v.Shape)
	case *Lazy:
		return "a value yet to be read"
	}
	return pickle.Describe(v)
}
