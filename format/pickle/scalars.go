package pickle

import (
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

func (m *machine) uint(arg []byte) error { return m.push(int64(unsigned(arg))) }

func (m *machine) int32(arg []byte) error {
	return m.push(int64(int32(binary.LittleEndian.Uint32(arg))))
}

// long is an integer in two's complement, little-endian.
func (m *machine) long(arg []byte) error {
	if len(arg) > m.limits.LongBytes {
		return exceeded("the bytes of one integer", m.limits.LongBytes, m.op)
	}
	negative := len(arg) > 0 && arg[len(arg)-1]&0x80 != 0
	if len(arg) <= 8 {
		n := unsigned(arg)
		if shift := 64 - 8*len(arg); negative { // extend the sign
			n = uint64(int64(n<<shift) >> shift)
		}
		return m.push(int64(n))
	}
	bigEndian := slices.Clone(arg)
	slices.Reverse(bigEndian)
	n := new(big.Int).SetBytes(bigEndian)
	if negative {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(arg))))
	}
	return m.push(integer(n))
}

// integer is n as an int64 where it fits.
func integer(n *big.Int) Value {
	if n.IsInt64() {
		return n.Int64()
	}
	return n
}

// decimalOrBool is INT, which also writes True and False.
func (m *machine) decimalOrBool(arg []byte) error {
	switch string(arg) {
	case "01":
		return m.push(true)
	case "00":
		return m.push(false)
	}
	return m.decimal(arg)
}

// decimal is an integer in digits, with an L at the end if Python 2 wrote it.
func (m *machine) decimal(arg []byte) error {
	digits := strings.TrimSuffix(string(arg), "L")
	// 256 is less than 10 to the power of 2.41.
	if len(digits)/5 > m.limits.LongBytes/2 {
		return exceeded("the bytes of one integer", m.limits.LongBytes, m.op)
	}
	n, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		return m.corrupt("%s is no integer", Describe(digits))
	}
	return m.push(integer(n))
}

func (m *machine) float(arg []byte) error {
	return m.push(math.Float64frombits(binary.BigEndian.Uint64(arg)))
}

func (m *machine) decimalFloat(arg []byte) error {
	f, err := strconv.ParseFloat(string(arg), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // past the range it is infinite, as in Python
		return m.corrupt("%s is no float", Describe(string(arg)))
	}
	return m.push(f)
}

func (m *machine) bytes(arg []byte) error { return m.push(Bytes(slices.Clone(arg))) }

func (m *machine) byteArray(arg []byte) error {
	if err := m.count(); err != nil {
		return err
	}
	return m.push(&ByteArray{Data: slices.Clone(arg)})
}

func (m *machine) text(arg []byte) error {
	if err := m.checkText(arg); err != nil {
		return err
	}
	return m.push(string(arg))
}

// checkText accepts UTF-8, and lone surrogates in it, which file names of Python
// can have: CPython writes them with the error handler surrogatepass.
func (m *machine) checkText(b []byte) error {
	if i := notUTF8(b); i >= 0 {
		return m.corrupt("byte %d of a string, 0x%02x, is not UTF-8", i, b[i])
	}
	return nil
}

// notUTF8 is where b stops being UTF-8 with surrogates, or -1.
func notUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		_, size := utf8.DecodeRune(b[i:])
		switch {
		case size > 1 || b[i] < utf8.RuneSelf:
			i += size
		case isSurrogate(b[i:]):
			i += 3
		default:
			return i
		}
	}
	return -1
}

// isSurrogate says whether b begins with the three bytes of a code point from
// U+D800 to U+DFFF.
func isSurrogate(b []byte) bool {
	return len(b) >= 3 && b[0] == 0xed && b[1] >= 0xa0 && b[1] <= 0xbf && b[2] >= 0x80 && b[2] <= 0xbf
}

// appendRune appends a code point of Python, which may be a surrogate.
func appendRune(b []byte, r rune) []byte {
	if r >= 0xd800 && r <= 0xdfff {
		return append(b, 0xed, 0x80|byte(r>>6&0x3f), 0x80|byte(r&0x3f))
	}
	return utf8.AppendRune(b, r)
}
