package pickle

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"strings"

	"gefenckpt/internal/fault"
)

func (e *encoder) int(n int64) {
	switch {
	case n >= 0 && n < 1<<8:
		e.out = append(e.out, opBinInt1, byte(n))
	case n >= 0 && n < 1<<16:
		e.op(opBinInt2)
		e.out = binary.LittleEndian.AppendUint16(e.out, uint16(n))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		e.op(opBinInt)
		e.out = binary.LittleEndian.AppendUint32(e.out, uint32(int32(n)))
	default:
		e.twosComplement(binary.LittleEndian.AppendUint64(nil, uint64(n)))
	}
}

// long writes an integer beyond 64 bits. Python has no identity for it, but a
// value that shares it must not grow.
func (e *encoder) long(n *big.Int) {
	if n.IsInt64() {
		e.int(n.Int64())
		return
	}
	// A bit more than the magnitude, for the sign.
	width := n.BitLen()/8 + 1
	twos := n
	if n.Sign() < 0 {
		twos = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*width)))
	}
	b := twos.FillBytes(make([]byte, width))
	slices.Reverse(b)
	e.twosComplement(b)
	e.put(n)
}

// twosComplement writes an integer, little-endian, in as few bytes as it fits.
func (e *encoder) twosComplement(b []byte) {
	for len(b) > 1 {
		last, before := b[len(b)-1], b[len(b)-2]
		if !(last == 0 && before < 0x80 || last == 0xff && before >= 0x80) {
			break
		}
		b = b[:len(b)-1]
	}
	if len(b) < 1<<8 {
		e.out = append(e.out, opLong1, byte(len(b)))
	} else {
		e.op(opLong4)
		e.out = binary.LittleEndian.AppendUint32(e.out, uint32(len(b)))
	}
	e.out = append(e.out, b...)
}

func (e *encoder) float(f float64) {
	e.op(opBinFloat)
	e.out = binary.BigEndian.AppendUint64(e.out, math.Float64bits(f))
}

func (e *encoder) string(s string) error {
	if e.get(s) {
		return nil
	}
	if notUTF8([]byte(s)) >= 0 {
		return fault.New(fault.Internal, "the string %s is not UTF-8", Describe(s))
	}
	if err := e.counted(opShortUnicode, opBinUnicode, opUnicode8, len(s)); err != nil {
		return err
	}
	e.out = append(e.out, s...)
	e.put(s)
	return nil
}

// bytes writes bytes; protocol 2 has none, so CPython encodes a string whose
// code points are the bytes. It does so for empty ones too, since torch's
// weights_only loader knows no other way.
func (e *encoder) bytes(b Bytes) error {
	id := Value(bytesAt{})
	if len(b) > 0 {
		id = bytesAt{&b[0], len(b)}
	}
	if e.get(id) {
		return nil
	}
	if e.opts.Protocol < 3 {
		var text strings.Builder
		for _, c := range b {
			text.WriteRune(rune(c))
		}
		return e.call(id, encodeFunction, NewTuple(text.String(), "latin1"))
	}
	if err := e.counted(opShortBytes, opBinBytes, opBinBytes8, len(b)); err != nil {
		return err
	}
	e.out = append(e.out, b...)
	e.put(id)
	return nil
}

// counted writes the opcode and the length of n bytes that follow: the shortest
// form that the protocol has.
func (e *encoder) counted(short, long, longest byte, n int) error {
	switch {
	case e.opts.Protocol >= 3 && n < 1<<8:
		e.out = append(e.out, short, byte(n))
	case uint64(n) < 1<<32:
		e.op(long)
		e.out = binary.LittleEndian.AppendUint32(e.out, uint32(n))
	case e.opts.Protocol >= 4:
		e.op(longest)
		e.out = binary.LittleEndian.AppendUint64(e.out, uint64(n))
	default:
		return fault.New(fault.Resource, "a string of %d bytes does not fit in pickle protocol %d", n, e.opts.Protocol)
	}
	return nil
}
