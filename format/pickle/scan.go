package pickle

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"

	"gefenckpt/internal/fault"
)

// argument is what follows an opcode in the pickle: a fixed number of bytes (0
// or more), or one of these.
type argument int8

const (
	counted1 argument = -1 - iota // bytes, behind their number in 1 byte
	counted4                      // in 4 bytes, little-endian
	counted8                      // in 8
	oneLine                       // up to a newline
	twoLines                      // up to the second newline
)

// width is how many bytes hold the length of a counted argument, 0 of others.
func (a argument) width() int {
	switch a {
	case counted1:
		return 1
	case counted4:
		return 4
	case counted8:
		return 8
	}
	return 0
}

// scanner reads one instruction after the other.
type scanner struct {
	data []byte
	pos  int // of the next instruction
	op   int // of the one at hand
}

// next reads an instruction: its opcode and its argument, without the length or
// the newline at the end. The argument is a part of data.
func (s *scanner) next() (code byte, arg []byte, err error) {
	s.op = s.pos
	if s.op >= len(s.data) {
		return 0, nil, s.corrupt("the pickle ends after %d bytes, before its STOP", len(s.data))
	}
	code = s.data[s.op]
	start, kind := s.op+1, opcodes[code].arg
	if kind < 0 {
		arg, err = s.variable(kind, s.data[start:])
		return code, arg, err
	}
	end := start + int(kind)
	if end > len(s.data) {
		return 0, nil, s.truncated(uint64(kind), len(s.data)-start)
	}
	s.pos = end
	return code, s.data[start:end], nil
}

// variable reads an argument of variable length from the start of rest.
func (s *scanner) variable(kind argument, rest []byte) ([]byte, error) {
	if width := kind.width(); width > 0 {
		if width > len(rest) {
			return nil, s.truncated(uint64(width), len(rest))
		}
		n := unsigned(rest[:width])
		rest = rest[width:]
		if n > uint64(len(rest)) {
			return nil, s.truncated(n, len(rest))
		}
		s.pos += 1 + width + int(n)
		return rest[:n], nil
	}
	end := bytes.IndexByte(rest, '\n')
	if end >= 0 && kind == twoLines {
		second := bytes.IndexByte(rest[end+1:], '\n')
		if second >= 0 {
			second += end + 1
		}
		end = second
	}
	if end < 0 {
		return nil, s.corrupt("%s has no newline at its end", opcodes[s.data[s.op]].name)
	}
	s.pos += 1 + end + 1
	return rest[:end], nil
}

func (s *scanner) truncated(need uint64, left int) error {
	return s.corrupt("%s needs %d bytes, %d are left", opcodes[s.data[s.op]].name, need, left)
}

func (s *scanner) corrupt(format string, args ...any) error {
	return fault.New(fault.Corrupt, format, args...).At(int64(s.op))
}

// unsigned is a little-endian integer of at most 8 bytes.
func unsigned(b []byte) uint64 {
	if len(b) == 1 {
		return uint64(b[0])
	}
	var full [8]byte
	copy(full[:], b)
	return binary.LittleEndian.Uint64(full[:])
}

// memoIndex is the argument of the opcodes that name a memo entry.
func memoIndex(code byte, arg []byte) (uint64, bool) {
	if code != opGet && code != opPut {
		return unsigned(arg), true
	}
	n, err := strconv.ParseUint(string(arg), 10, 63)
	return n, err == nil
}

// memo holds the values that a pickle fetches again. CPython remembers every
// container and string, and fetches few: keeping the others alive would cost more
// memory than all that is kept of a large metadata file.
type memo struct {
	fetched []uint64 // a bit for each entry
	before  []uint32 // how many of the bits come before each word
	values  []Value  // of the entries that are fetched
}

// unset stands for a memo entry that was not set yet.
type unset struct{}

// scanMemo reads the instructions of one pickle ahead, for those that fetch memo
// entries below limit. It stops where the pickle is damaged: the machine will too.
func scanMemo(data []byte, limit int) memo {
	var m memo
	s := scanner{data: data}
	for {
		code, arg, err := s.next()
		if err != nil || code == opStop || opcodes[code].name == "" {
			break
		}
		if code != opBinGet && code != opLongBinGet && code != opGet {
			continue
		}
		i, ok := memoIndex(code, arg)
		if !ok || i >= uint64(limit) {
			continue
		}
		for uint64(len(m.fetched)) <= i/64 {
			m.fetched = append(m.fetched, 0)
		}
		m.fetched[i/64] |= 1 << (i % 64)
	}
	m.before = make([]uint32, len(m.fetched))
	count := 0
	for i, word := range m.fetched {
		m.before[i] = uint32(count)
		count += bits.OnesCount64(word)
	}
	m.values = make([]Value, count)
	for i := range m.values {
		m.values[i] = unset{}
	}
	return m
}

// at is the place of entry i, nil if nothing fetches it.
func (m *memo) at(i uint64) *Value {
	if i/64 >= uint64(len(m.fetched)) {
		return nil
	}
	word, bit := m.fetched[i/64], uint64(1)<<(i%64)
	if word&bit == 0 {
		return nil
	}
	return &m.values[int(m.before[i/64])+bits.OnesCount64(word&(bit-1))]
}
