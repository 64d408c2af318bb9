package pickle

import (
	"math/big"

	"gefenckpt/internal/fault"
)

// machine is the pickle machine: a stack of values, the positions of marks in
// it, and a memo.
type machine struct {
	scanner
	opts   Options
	limits Limits
	stack  []Value
	marks  []int

	memo     memo
	memoized uint64 // entries set, all below their number unless unordered
	// unordered is set once a PUT skips entries, which CPython never does.
	unordered bool
	repeated  int64 // see Limits.Repeat

	nodes int // see Limits.Nodes
	// replaced is set once a container that stands in another one is changed, as
	// CPython does on cycles only: the depths counted on the way may then be too
	// small, and searched is how much was spent on counting again.
	replaced bool
	searched int
	keys     map[Value]map[Value]struct{} // of large dicts, to find those set twice
}

// run executes instructions up to STOP.
func (m *machine) run() error {
	for {
		code, arg, err := m.next()
		if err != nil {
			return err
		}
		do := opcodes[code].do
		if do == nil {
			return m.refuse(code)
		}
		if err := do(m, arg); err != nil || code == opStop {
			return err
		}
	}
}

// refuse names an opcode that is not on the allow-list.
func (m *machine) refuse(code byte) error {
	if name := opcodes[code].name; name != "" {
		return fault.New(fault.Unsupported, "the pickle opcode %s (0x%02x) is not read", name, code).At(int64(m.op)).
			WithHint("no checkpoint needs it: was the file written by something other than torch.save?")
	}
	return m.corrupt("0x%02x is no pickle opcode", code)
}

func (m *machine) protocol(arg []byte) error {
	if arg[0] > highestProtocol {
		return fault.New(fault.Unsupported, "pickle protocol %d, expected at most %d", arg[0], highestProtocol).At(int64(m.op))
	}
	return nil
}

// frame reads how far a reader may read ahead, which a truncated file has not
// got.
func (m *machine) frame(arg []byte) error {
	if n, left := unsigned(arg), len(m.data)-m.pos; n > uint64(left) {
		return m.truncated(n, left)
	}
	return nil
}

func (m *machine) stop([]byte) error {
	if len(m.stack) != 1 || len(m.marks) != 0 {
		return m.corrupt("the pickle ends with %d values and %d marks on its stack, expected one value", len(m.stack), len(m.marks))
	}
	return m.checkDepth(m.stack[0])
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
		return nil, m.corrupt("%s needs %d values, the stack has %d", opcodes[m.data[m.op]].name, below+1, len(m.stack)-m.floor())
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

func (m *machine) mark([]byte) error {
	if len(m.marks) >= m.limits.Stack {
		return exceeded("open marks", m.limits.Stack, m.op)
	}
	m.marks = append(m.marks, len(m.stack))
	return nil
}

// popMark takes the values above the last mark, and the mark. They stay valid
// until the next push.
func (m *machine) popMark() ([]Value, error) {
	if len(m.marks) == 0 {
		return nil, m.corrupt("%s needs a mark, there is none", opcodes[m.data[m.op]].name)
	}
	at := m.floor()
	m.marks = m.marks[:len(m.marks)-1]
	items := m.stack[at:]
	m.stack = m.stack[:at]
	return items, nil
}

// popAny drops a value, or the mark that lies on top.
func (m *machine) popAny([]byte) error {
	if len(m.marks) > 0 && len(m.stack) == m.floor() {
		m.marks = m.marks[:len(m.marks)-1]
		return nil
	}
	_, err := m.pop(1)
	return err
}

func (m *machine) dup([]byte) error {
	v, err := m.top(0)
	if err != nil {
		return err
	}
	return m.again(v)
}

// The memo.

func (m *machine) put(arg []byte) error {
	i, ok := memoIndex(m.data[m.op], arg)
	if !ok {
		return m.corrupt("%q is no memo entry", arg)
	}
	if i > m.memoized {
		m.unordered = true
	}
	return m.remember(i)
}

func (m *machine) memoize([]byte) error {
	if m.unordered {
		return m.corrupt("MEMOIZE after memo entries out of order")
	}
	return m.remember(m.memoized)
}

func (m *machine) remember(i uint64) error {
	v, err := m.top(0)
	if err != nil {
		return err
	}
	if i >= uint64(m.limits.Memo) {
		return exceeded("memo entries", m.limits.Memo, m.op)
	}
	m.memoized = max(m.memoized, i+1)
	if entry := m.memo.at(i); entry != nil {
		*entry = v
	}
	return nil
}

func (m *machine) get(arg []byte) error {
	i, ok := memoIndex(m.data[m.op], arg)
	if !ok {
		return m.corrupt("%q is no memo entry", arg)
	}
	entry := m.memo.at(i)
	if entry == nil || *entry == Value(unset{}) {
		return m.corrupt("memo entry %d is fetched before it is set", i)
	}
	return m.again(*entry)
}

// again pushes a value that was pushed before.
func (m *machine) again(v Value) error {
	switch v := v.(type) {
	case string:
		m.repeated += int64(len(v))
	case Bytes:
		m.repeated += int64(len(v))
	case *ByteArray:
		m.repeated += int64(len(v.Data))
	case *big.Int:
		m.repeated += int64(v.BitLen() / 8)
	case *Global:
		m.repeated += int64(len(v.Module) + len(v.Name))
	}
	if m.repeated > m.limits.Repeat {
		return exceeded("bytes that are repeated from the memo", m.limits.Repeat, m.op)
	}
	return m.push(v)
}
