package pickle

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// escapedText is UNICODE of protocol 0: each byte is a character of Latin-1,
// except for \uXXXX and \UXXXXXXXX behind an odd number of backslashes.
func (m *machine) escapedText(arg []byte) error {
	out := make([]byte, 0, len(arg))
	for i := 0; i < len(arg); {
		width := 0
		if arg[i] == '\\' && i+1 < len(arg) {
			switch arg[i+1] {
			case 'u':
				width = 4
			case 'U':
				width = 8
			case '\\': // neither of the two begins an escape
				out = append(out, `\\`...)
				i += 2
				continue
			}
		}
		if width == 0 {
			out = utf8.AppendRune(out, rune(arg[i]))
			i++
			continue
		}
		r, ok := hex(arg[i+2:], width, utf8.MaxRune)
		if !ok {
			return m.badEscape(arg[i:])
		}
		out = appendRune(out, r)
		i += 2 + width
	}
	return m.push(string(out))
}

// simpleEscapes are the escapes of one letter in a Python string literal.
var simpleEscapes = map[byte]byte{
	'\\': '\\', '\'': '\'', '"': '"', 'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v',
}

// quotedText is STRING of protocol 0: a literal of Python 2, whose bytes are
// UTF-8.
func (m *machine) quotedText(arg []byte) error {
	arg = bytes.TrimSpace(arg)
	last := len(arg) - 1
	if last < 1 || arg[0] != arg[last] || (arg[0] != '\'' && arg[0] != '"') {
		return m.corrupt("the string %s is not quoted", Describe(string(arg)))
	}
	arg = arg[1:last]
	out := make([]byte, 0, len(arg))
	for i := 0; i < len(arg); {
		if arg[i] != '\\' {
			out = append(out, arg[i])
			i++
			continue
		}
		rest := arg[i+1:]
		if len(rest) == 0 {
			return m.badEscape(arg[i:])
		}
		if c, ok := simpleEscapes[rest[0]]; ok {
			out = append(out, c)
			i += 2
			continue
		}
		switch digits := octal(rest); {
		case digits > 0:
			n, _ := strconv.ParseUint(string(rest[:digits]), 8, 16)
			out = append(out, byte(n))
			i += 1 + digits
		case rest[0] == 'x':
			r, ok := hex(rest[1:], 2, 0xff)
			if !ok {
				return m.badEscape(arg[i:])
			}
			out = append(out, byte(r))
			i += 4
		default: // Python keeps the backslash
			out = append(out, '\\', rest[0])
			i += 2
		}
	}
	return m.text(out)
}

// octal is how many octal digits b begins with, at most 3.
func octal(b []byte) int {
	n := 0
	for n < 3 && n < len(b) && b[n] >= '0' && b[n] <= '7' {
		n++
	}
	return n
}

// hex reads width hexadecimal digits, whose value is at most most.
func hex(b []byte, width int, most rune) (rune, bool) {
	if len(b) < width {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[:width]), 16, 32)
	return rune(n), err == nil && n <= uint64(most)
}

func (m *machine) badEscape(at []byte) error {
	return m.corrupt("a string has the escape %s", Describe(string(at[:min(len(at), 10)])))
}
