package pickle

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"gefenckpt/internal/fault"
)

// Options steer Decode. The zero value decodes with the default limits and
// keeps everything.
type Options struct {
	Limits
	// Persistent turns a persistent id into a value; nil keeps *Persistent.
	Persistent func(id Value, offset int64) (Value, error)
	// Reduce is called for each REDUCE with the object just made and returns what
	// takes its place, the object itself to keep it.
	Reduce func(o *Object) (Value, error)
	// Build is called after each BUILD of an object; it may replace o.State by
	// something more compact.
	Build func(o *Object) error
}

// Decode reads the one pickle that data holds.
//
// Errors are faults with the byte offset of the opcode: Corrupt for what is not a
// pickle, Resource past a limit, Unsupported for opcodes outside the allow-list.
func Decode(data []byte, o Options) (Value, error) {
	v, n, err := DecodePrefix(data, o)
	if err == nil && n < len(data) {
		return nil, fault.New(fault.Corrupt, "%d bytes follow the end of the pickle", len(data)-n).At(int64(n))
	}
	return v, err
}

// DecodePrefix reads the pickle that data begins with and returns its length in
// bytes too.
func DecodePrefix(data []byte, o Options) (Value, int, error) {
	m := &machine{data: data, opts: o, limits: o.withDefaults(len(data))}
	v, err := m.run()
	if err == nil {
		err = m.finish(v)
	}
	if err != nil {
		return nil, m.pos, err
	}
	return v, m.pos, nil
}

// machine is the pickle machine: a stack of values, positions of marks in it,
// and a memo.
type machine struct {
	data   []byte
	pos    int // of the next byte
	op     int // of the opcode at work
	opts   Options
	limits Limits
	stack  []Value
	marks  []int
	memo   []Value
	// replaced is set once a container that stands in another one is changed:
	// CPython never does so, and the depths counted on the way may be too small.
	replaced bool
	large    []*Dict // whose keys are checked at the end
}

func (m *machine) run() (Value, error) {
	for {
		m.op = m.pos
		code, err := m.byte()
		if err != nil {
			return nil, err
		}
		if code == opStop {
			if len(m.stack) != 1 || len(m.marks) != 0 {
				return nil, m.corrupt("the pickle ends with %d values and %d marks on its stack, expected one value", len(m.stack), len(m.marks))
			}
			return m.stack[0], nil
		}
		do := opcodes[code].do
		if do == nil {
			return nil, m.refuse(code)
		}
		if err := do(m); err != nil {
			return nil, err
		}
	}
}

// refuse names an opcode that is not on the allow-list.
func (m *machine) refuse(code byte) error {
	if name := opcodes[code].name; name != "" {
		return fault.New(fault.Unsupported, "pickle opcode %s (0x%02x) is not read", name, code).At(int64(m.op)).
			WithHint("no checkpoint needs it: was the file written by something other than torch.save?")
	}
	return m.corrupt("0x%02x is no pickle opcode", code)
}

// finish makes the checks that need the whole value.
func (m *machine) finish(v Value) error {
	for _, d := range m.large {
		if key, dup := d.duplicate(); dup {
			return m.corrupt("a dict of %d entries has the key %v twice", len(d.Pairs), key)
		}
	}
	if m.replaced && deeperThan(v, m.limits.Depth) {
		return exceeded("nesting", m.limits.Depth, m.op)
	}
	return nil
}

func (m *machine) corrupt(format string, args ...any) error {
	return fault.New(fault.Corrupt, format, args...).At(int64(m.op))
}

// Reading.

func (m *machine) byte() (byte, error) {
	if m.pos == len(m.data) {
		return 0, m.corrupt("the pickle ends in the middle, after %d bytes", len(m.data))
	}
	m.pos++
	return m.data[m.pos-1], nil
}

// take returns the next n bytes, which are not copied.
func (m *machine) take(n uint64) ([]byte, error) {
	if left := uint64(len(m.data) - m.pos); n > left {
		return nil, m.corrupt("%s needs %d bytes, %d are left", opNames[m.data[m.op]], n, left)
	}
	m.pos += int(n)
	return m.data[m.pos-int(n) : m.pos], nil
}

// counted returns a string of bytes behind its length in width bytes.
func (m *machine) counted(width uint64) ([]byte, error) {
	n, err := m.uint(width)
	if err != nil {
		return nil, err
	}
	return m.take(n)
}

// uint reads a little-endian unsigned integer of width bytes.
func (m *machine) uint(width uint64) (uint64, error) {
	b, err := m.take(width)
	if err != nil {
		return 0, err
	}
	var full [8]byte
	copy(full[:], b)
	return binary.LittleEndian.Uint64(full[:]), nil
}

// line reads up to a newline, which is dropped.
func (m *machine) line() (string, error) {
	i := bytes.IndexByte(m.data[m.pos:], '\n')
	if i < 0 {
		return "", m.corrupt("%s has no newline at its end", opNames[m.data[m.op]])
	}
	s := m.data[m.pos : m.pos+i]
	m.pos += i + 1
	return string(s), nil
}

// The stack.

func (m *machine) push(v Value) error {
	if len(m.stack) >= m.limits.Stack {
		return exceeded("the height of the stack", m.limits.Stack, m.op)
	}
	m.stack = append(m.stack, v)
	return nil
}

// floor is the first stack position above the last mark.
func (m *machine) floor() int {
	if len(m.marks) == 0 {
		return 0
	}
	return m.marks[len(m.marks)-1]
}

// top returns the value that lies below values under the top.
func (m *machine) top(below int) (Value, error) {
	i := len(m.stack) - 1 - below
	if i < m.floor() {
		return nil, m.corrupt("%s needs %d values, the stack has %d", opNames[m.data[m.op]], below+1, len(m.stack)-m.floor())
	}
	return m.stack[i], nil
}

// pop takes the top n values, which stay valid until the next push.
func (m *machine) pop(n int) ([]Value, error) {
	if _, err := m.top(n - 1); err != nil {
		return nil, err
	}
	items := m.stack[len(m.stack)-n:]
	m.stack = m.stack[:len(m.stack)-n]
	return items, nil
}

// popMark takes the values above the last mark, and the mark.
func (m *machine) popMark() ([]Value, error) {
	if len(m.marks) == 0 {
		return nil, m.corrupt("%s needs a mark, there is none", opNames[m.data[m.op]])
	}
	at := m.floor()
	m.marks = m.marks[:len(m.marks)-1]
	items := m.stack[at:]
	m.stack = m.stack[:at]
	return items, nil
}

// The memo.

func (m *machine) put(i uint64) error {
	v, err := m.top(0)
	if err != nil {
		return err
	}
	if i >= uint64(m.limits.Memo) {
		return exceeded("memo entries", m.limits.Memo, m.op)
	}
	for uint64(len(m.memo)) <= i {
		m.memo = append(m.memo, absent{})
	}
	m.memo[i] = v
	return nil
}

// absent stands for a memo entry that was never set.
type absent struct{}

func (m *machine) get(i uint64) error {
	if i < uint64(len(m.memo)) {
		if _, no := m.memo[i].(absent); !no {
			return m.push(m.memo[i])
		}
	}
	return m.corrupt("memo entry %d is read before it is set", i)
}

// Containers.

// place puts children into a container: it bounds the nesting and notes what
// CPython never writes.
func (m *machine) place(parent nested, children ...Value) error {
	p := parent.at()
	if p.placed {
		m.replaced = true
	}
	for _, c := range children {
		child, ok := c.(nested)
		if !ok {
			continue
		}
		n := child.at()
		n.placed = true
		if n.depth+1 > p.depth {
			p.depth = n.depth + 1
		}
	}
	if int(p.depth) >= m.limits.Depth {
		return exceeded("nesting", m.limits.Depth, m.op)
	}
	return nil
}

func (m *machine) tuple(items []Value) error {
	if len(items) == 0 {
		return m.push(emptyTuple)
	}
	t := &Tuple{Items: append([]Value(nil), items...)}
	if err := m.place(t, t.Items...); err != nil {
		return err
	}
	return m.push(t)
}

// emptyTuple is shared, as in CPython.
var emptyTuple = &Tuple{}

func (m *machine) appendItems(target Value, items []Value) error {
	var to *[]Value
	switch t := target.(type) {
	case *List:
		to = &t.Items
	case *Object:
		to = &t.extra().Items
	default:
		return m.corrupt("cannot append to %s", describe(target))
	}
	*to = append(*to, items...)
	return m.place(target.(nested), items...)
}

func (m *machine) setItems(target Value, items []Value) error {
	if len(items)%2 != 0 {
		return m.corrupt("a key without a value")
	}
	var to *[]Pair
	var dict *Dict
	switch t := target.(type) {
	case *Dict:
		to, dict = &t.Pairs, t
		t.index = nil
	case *Object:
		to = &t.extra().Pairs
	default:
		return m.corrupt("cannot set an entry of %s", describe(target))
	}
	for i := 0; i < len(items); i += 2 {
		*to = append(*to, Pair{items[i], items[i+1]})
	}
	if dict != nil {
		if err := m.checkKeys(dict, len(items)/2); err != nil {
			return err
		}
	}
	return m.place(target.(nested), items...)
}

// checkKeys looks for keys that stand twice among few entries at once, and
// leaves large dicts for the end.
func (m *machine) checkKeys(d *Dict, added int) error {
	n := len(d.Pairs)
	if n > smallDict {
		if n-added <= smallDict {
			m.large = append(m.large, d)
		}
		return nil
	}
	for i := n - added; i < n; i++ {
		for j := range i {
			if sameKey(d.Pairs[i].Key, d.Pairs[j].Key) {
				return m.corrupt("a dict has the key %v twice", d.Pairs[i].Key)
			}
		}
	}
	return nil
}

func (o *Object) extra() *Extra {
	if o.Extra == nil {
		o.Extra = &Extra{}
	}
	return o.Extra
}

// Objects.

func (m *machine) global(module, name string) error {
	if py3, ok := renamed[module]; ok {
		module = py3
	}
	return m.push(&Global{Module: module, Name: name, Offset: int64(m.op)})
}

// renamed are the Python 2 modules that protocol 2 still names.
var renamed = map[string]string{"__builtin__": "builtins", "copy_reg": "copyreg"}

// object makes an object of callable and args; NEWOBJ when isNew, else REDUCE.
func (m *machine) object(callable, args Value, isNew bool) error {
	class, ok := callable.(*Global)
	if !ok {
		return m.corrupt("%s calls %s, expected a class or function by name", opNames[m.data[m.op]], describe(callable))
	}
	tuple, ok := args.(*Tuple)
	if !ok {
		return m.corrupt("%s.%s is called with %s, expected a tuple", class.Module, class.Name, describe(args))
	}
	o := &Object{Class: class, Args: tuple, Offset: int64(m.op), New: isNew}
	if err := m.place(o, tuple); err != nil {
		return err
	}
	var v Value = o
	if !isNew {
		v = builtin(o)
		if v == Value(o) && m.opts.Reduce != nil {
			var err error
			if v, err = m.opts.Reduce(o); err != nil {
				return fault.Of(err).At(int64(m.op))
			}
		}
	}
	return m.push(v)
}

func (m *machine) build() error {
	state, err := m.pop(1)
	if err != nil {
		return err
	}
	s := state[0]
	target, err := m.top(0)
	if err != nil {
		return err
	}
	o, ok := target.(*Object)
	if !ok {
		// A hook replaced the object, or Python subclassed a container: there is
		// nothing to keep the state in, and nothing that reads it.
		return nil
	}
	o.State, o.HasState = s, true
	if err := m.place(o, s); err != nil {
		return err
	}
	if m.opts.Build != nil {
		if err := m.opts.Build(o); err != nil {
			return fault.Of(err).At(int64(m.op))
		}
	}
	return nil
}

// Scalars.

func (m *machine) text(b []byte) error {
	if !utf8.Valid(b) {
		// CPython writes lone surrogates with surrogatepass. No key or value of a
		// checkpoint needs them, and Go strings that are not UTF-8 would be
		// written back as something else.
		return m.corrupt("a string is not UTF-8")
	}
	return m.push(string(b))
}

// escaped pushes a string of protocol 0, which CPython writes with backslashes.
// Nothing in a checkpoint is: a plain one is taken as it is.
func (m *machine) escaped(s string) error {
	if strings.Contains(s, "\\") {
		return fault.New(fault.Unsupported, "a string with backslash escapes, from pickle protocol 0, is not read").At(int64(m.op)).
			WithHint("save the checkpoint again with protocol 2 or newer")
	}
	return m.text([]byte(s))
}

// long decodes a two's complement little-endian integer.
func (m *machine) long(b []byte) error {
	if len(b) > m.limits.LongBytes {
		return exceeded("the bytes of one integer", m.limits.LongBytes, m.op)
	}
	if len(b) <= 8 {
		var full [8]byte
		if len(b) > 0 && b[len(b)-1]&0x80 != 0 {
			full = [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		}
		copy(full[:], b)
		return m.push(int64(binary.LittleEndian.Uint64(full[:])))
	}
	big8 := make([]byte, len(b))
	for i, c := range b {
		big8[len(b)-1-i] = c
	}
	n := new(big.Int).SetBytes(big8)
	if b[len(b)-1]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
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

// decimal parses the text of INT and LONG.
func (m *machine) decimal(s string) error {
	s = strings.TrimSuffix(s, "L")
	if len(s) > 3*m.limits.LongBytes {
		return exceeded("the bytes of one integer", m.limits.LongBytes, m.op)
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return m.corrupt("%q is no integer", s)
	}
	return m.push(integer(n))
}

func (m *machine) float(bits uint64) error { return m.push(math.Float64frombits(bits)) }

func (m *machine) decimalFloat(s string) error {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return m.corrupt("%q is no float", s)
	}
	return m.push(f)
}
