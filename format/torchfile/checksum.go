package torchfile

import (
	"hash/crc32"
	"slices"
	"sort"
	"sync"
)

// checksum is the CRC-32 of a record, put together from parts that were read in
// any order.
type checksum struct {
	mu    sync.Mutex
	parts []part // in order, and none touches the next
}

// part is the CRC-32 of bytes [start, end).
type part struct {
	start, end int64
	crc        uint32
}

// mostParts is how many parts are kept for reads that skip around; what would be
// another one is left for the end.
const mostParts = 64

// add takes bytes that were read at off. What is known already is not summed
// again.
func (c *checksum) add(p []byte, off int64) {
	end := off + int64(len(p))
	for at := off; at < end; {
		lo, hi, room := c.gap(at, end)
		if lo < hi && room {
			c.insert(part{lo, hi, crc32.ChecksumIEEE(p[lo-off : hi-off])})
		}
		at = hi
	}
}

// gap is the first run [lo, hi) of [at, end) that is in no part; lo is end if
// there is none. room says whether it can be another part, or joins one.
func (c *checksum) gap(at, end int64) (lo, hi int64, room bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.after(at)
	if i < len(c.parts) && c.parts[i].start <= at {
		at = c.parts[i].end
		i++
	}
	lo, hi = min(at, end), end
	if i < len(c.parts) {
		hi = min(end, c.parts[i].start)
	}
	joins := i > 0 && c.parts[i-1].end == lo || i < len(c.parts) && c.parts[i].start == hi
	return lo, hi, joins || len(c.parts) < mostParts
}

// after is the first part that ends behind at.
func (c *checksum) after(at int64) int {
	return sort.Search(len(c.parts), func(i int) bool { return c.parts[i].end > at })
}

// insert adds a part, unless another reader was quicker.
func (c *checksum) insert(p part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.after(p.start)
	if i < len(c.parts) && c.parts[i].start < p.end {
		return
	}
	j := i
	if i > 0 && c.parts[i-1].end == p.start {
		i--
		p = part{c.parts[i].start, p.end, combine(c.parts[i].crc, p.crc, p.end-p.start)}
	}
	if j < len(c.parts) && c.parts[j].start == p.end {
		p = part{p.start, c.parts[j].end, combine(p.crc, c.parts[j].crc, c.parts[j].end-c.parts[j].start)}
		j++
	}
	c.parts = slices.Replace(c.parts, i, j, p)
}

// whole is the checksum of all size bytes, if all were read.
func (c *checksum) whole(size int64) (crc uint32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.parts) != 1 || c.parts[0].start != 0 || c.parts[0].end != size {
		return 0, false
	}
	return c.parts[0].crc, true
}

// combine is the CRC-32 of two runs of bytes, the second n bytes long, from the
// CRC-32 of each: n zero bytes behind the first multiply its remainder by x^8n
// modulo the polynomial, and CRCs of runs of one length add up.
func combine(first, second uint32, n int64) uint32 {
	for power := byteShift; n > 0; n >>= 1 {
		if n&1 != 0 {
			first = multiply(first, power)
		}
		power = multiply(power, power)
	}
	return first ^ second
}

// byteShift is x^8. The highest bit of a remainder is the coefficient of x^0.
const byteShift = uint32(1) << (31 - 8)

// multiply is the product of two polynomials modulo that of CRC-32.
func multiply(a, b uint32) uint32 {
	product := uint32(0)
	for ; a != 0; a <<= 1 {
		if a>>31 != 0 {
			product ^= b
		}
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return product
}
