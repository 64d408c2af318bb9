package pickle

import (
	"strings"

	"gefenckpt/internal/fault"
)

func (m *machine) globalByLines(arg []byte) error {
	g, err := m.globalIn(arg)
	if err != nil {
		return err
	}
	return m.push(g)
}

// globalIn is the global whose module and name are two lines.
func (m *machine) globalIn(lines []byte) (*Global, error) {
	if err := m.checkText(lines); err != nil {
		return nil, err
	}
	module, name, _ := strings.Cut(string(lines), "\n")
	return m.global(module, name)
}

func (m *machine) globalByStack([]byte) error {
	v, err := m.pop(2)
	if err != nil {
		return err
	}
	module, ok := v[0].(string)
	name, ok2 := v[1].(string)
	if !ok || !ok2 {
		return m.corrupt("a global is named by %s and %s, expected two strings", Describe(v[0]), Describe(v[1]))
	}
	if strings.Contains(module, "\n") || strings.Contains(name, "\n") {
		return m.corrupt("a global is named by %s and %s, which is no name", Describe(module), Describe(name))
	}
	g, err := m.global(module, name)
	if err != nil {
		return err
	}
	return m.push(g)
}

func (m *machine) global(module, name string) (*Global, error) {
	if err := m.count(); err != nil {
		return nil, err
	}
	module, name = python3Name(module, name)
	return &Global{Module: module, Name: name, Offset: int64(m.op)}, nil
}

func (m *machine) reduce([]byte) error {
	o, err := m.called(false)
	if err != nil {
		return err
	}
	return m.result(o)
}

// result pushes what the call o results in.
func (m *machine) result(o *Object) error {
	v := builtin(o)
	if v == Value(o) && m.opts.Reduce != nil {
		if err := m.checkDepth(o); err != nil {
			return err
		}
		var err error
		if v, err = m.opts.Reduce(o); err != nil {
			return m.placed(err)
		}
	}
	return m.push(v)
}

func (m *machine) newObject([]byte) error {
	o, err := m.called(true)
	if err != nil {
		return err
	}
	return m.push(o)
}

func (m *machine) newObjectEx([]byte) error {
	kwargs, err := m.pop(1)
	if err != nil {
		return err
	}
	named, ok := kwargs[0].(*Dict)
	if !ok {
		return m.corrupt("the keyword arguments are %s, expected a dict", Describe(kwargs[0]))
	}
	o, err := m.called(true)
	if err != nil {
		return err
	}
	o.extra().Kwargs = named
	if err := m.place(&o.nesting, named); err != nil {
		return err
	}
	return m.push(o)
}

// called makes the object that the call of the value below the top with the
// tuple at the top would give.
func (m *machine) called(isNew bool) (*Object, error) {
	v, err := m.pop(2)
	if err != nil {
		return nil, err
	}
	args, ok := v[1].(*Tuple)
	if !ok {
		return nil, m.corrupt("%s is called with %s, expected a tuple", Describe(v[0]), Describe(v[1]))
	}
	return m.object(v[0], args, isNew)
}

func (m *machine) object(callable Value, args *Tuple, isNew bool) (*Object, error) {
	class, ok := callable.(*Global)
	if _, isObject := callable.(*Object); isObject {
		return nil, fault.New(fault.Unsupported, "the pickle calls %s, and only classes and functions by name are followed", Describe(callable)).At(int64(m.op))
	}
	if !ok {
		return nil, m.corrupt("the pickle calls %s, expected a class or function by name", Describe(callable))
	}
	if err := m.count(); err != nil {
		return nil, err
	}
	o := &Object{Class: class, Args: args, Offset: int64(m.op), New: isNew}
	return o, m.place(&o.nesting, args)
}

// instanceByLines is INST of protocol 0: the class by name, the arguments above
// the mark.
func (m *machine) instanceByLines(arg []byte) error {
	args, err := m.popMark()
	if err != nil {
		return err
	}
	class, err := m.globalIn(arg)
	if err != nil {
		return err
	}
	return m.instantiate(class, args)
}

// instance is OBJ of protocol 1: the class above the mark, then the arguments.
func (m *machine) instance(items []Value) error {
	if len(items) == 0 {
		return m.corrupt("OBJ without a class")
	}
	return m.instantiate(items[0], items[1:])
}

// instantiate makes an object as Python 3 does for classes without
// __getinitargs__: without arguments, __init__ is not called.
func (m *machine) instantiate(class Value, args []Value) error {
	tuple, err := m.newTuple(args)
	if err != nil {
		return err
	}
	o, err := m.object(class, tuple, len(args) == 0)
	if err != nil {
		return err
	}
	if o.New {
		return m.push(o)
	}
	return m.result(o)
}

func (m *machine) build([]byte) error {
	v, err := m.pop(1)
	if err != nil {
		return err
	}
	state := v[0]
	target, err := m.top(0)
	if err != nil {
		return err
	}
	o, ok := target.(*Object)
	switch {
	case !ok && isValue(target):
		return m.corrupt("cannot set the state of %s", Describe(target))
	case !ok: // what the Reduce hook made; see there
		return nil
	case o.HasState:
		return m.corrupt("the state of %s is set twice", Describe(o))
	}
	o.State, o.HasState = state, true
	if err := m.place(&o.nesting, state); err != nil {
		return err
	}
	if m.opts.Build == nil {
		return nil
	}
	if err := m.checkDepth(o); err != nil {
		return err
	}
	if err := m.opts.Build(o); err != nil {
		return m.placed(err)
	}
	return nil
}

// placed gives a fault of a hook the offset of the opcode, if it has none.
func (m *machine) placed(err error) error {
	f := fault.Of(err)
	if f.Offset == fault.NoOffset {
		return f.At(int64(m.op))
	}
	return f
}

func (m *machine) persistentByLine(arg []byte) error {
	if err := m.checkText(arg); err != nil {
		return err
	}
	return m.persistent(string(arg))
}

func (m *machine) persistentByStack([]byte) error {
	v, err := m.pop(1)
	if err != nil {
		return err
	}
	return m.persistent(v[0])
}

func (m *machine) persistent(id Value) error {
	if m.opts.Persistent != nil {
		if err := m.checkDepth(id); err != nil {
			return err
		}
		v, err := m.opts.Persistent(id, int64(m.op))
		if err != nil {
			return m.placed(err)
		}
		return m.push(v)
	}
	if _, nested := id.(*Persistent); nested {
		return m.corrupt("a persistent id is the id of another")
	}
	p := &Persistent{ID: id, Offset: int64(m.op)}
	return m.made(p, &p.nesting, []Value{id})
}

func (o *Object) extra() *Extra {
	if o.Extra == nil {
		o.Extra = &Extra{}
	}
	return o.Extra
}
