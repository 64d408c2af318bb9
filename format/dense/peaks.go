package dense

import (
	"encoding/binary"
	"math"
	"sort"

	"gefenckpt/format/tensor"
	"gefenckpt/gefen"
)

// longBlock is from which length on the magnitudes of blocks are held in memory:
// they are few then, and each would take long to find again.
const longBlock = 1 << 12

// peaks are the magnitudes of a shard's blocks, shorter than longBlock, from its
// momentum. It is a tensor.Storage.
type peaks struct {
	finder     func() (*finder, error)
	momentum   *tensor.Tensor // of the whole parameter
	from       int64          // the shard's first element
	period, n  int64          // elements of a block, blocks
	unattained bool           // some magnitudes are not among the elements
}

// Size is in bytes.
func (x *peaks) Size() int64 { return 4 * x.n }

// ReadAt finds the magnitudes of the range.
func (x *peaks) ReadAt(p []byte, off int64) (int, error) {
	return readElements(p, off, x.n, 4, x.read)
}

func (x *peaks) read(dst []byte, from int64) error {
	f, err := x.finder()
	if err != nil {
		return err
	}
	var plane floats
	n, most := int64(len(dst)/4), max(scanElements/x.period, 1)
	for at := int64(0); at < n; at += most {
		k := min(most, n-at)
		values, err := plane.read(x.momentum, x.from+(from+at)*x.period, k*x.period)
		if err != nil {
			return err
		}
		for b := range k {
			block := values[b*x.period : (b+1)*x.period]
			magnitude := gefen.AbsMax(block)
			if x.unattained {
				magnitude, _ = f.scale(block, magnitude)
			}
			binary.LittleEndian.PutUint32(dst[4*(at+b):], math.Float32bits(magnitude))
		}
	}
	return nil
}

// scale is the magnitude of a block with which every element has a codeword: its
// largest |m|, or one for which that has a smaller codeword. It says whether there
// is one.
func (f *finder) scale(block []float32, largest float32) (float32, bool) {
	if f.explains(block, largest) {
		return largest, true
	}
	for i := len(f.book) - 1; i >= 0; i-- {
		word := float32(math.Abs(float64(f.book[i])))
		if word == 0 || word == 1 {
			continue
		}
		middle := ordinalOf(largest / word)
		for o := middle - 1; o <= middle+1; o++ {
			v := o.float()
			if v > largest && v <= math.MaxFloat32 && float32(word*v) == largest && f.explains(block, v) {
				return v, true
			}
		}
	}
	return largest, false
}

func (f *finder) explains(block []float32, magnitude float32) bool {
	for _, m := range block {
		if _, ok := f.find(m, magnitude); !ok {
			return false
		}
	}
	return true
}

// newFinder finds indices in a codebook that was recovered. Zeros in a block of
// zeros keep their sign.
func newFinder(book *gefen.Codebook) *finder {
	zero := sort.Search(len(book), func(i int) bool { return book[i] >= 0 })
	return &finder{book: book, zero: uint8(zero), negativeZero: uint8(zero - 1)}
}
