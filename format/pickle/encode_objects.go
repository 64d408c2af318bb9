package pickle

import (
	"strings"

	"gefenckpt/internal/fault"
)

// global writes a class or function, under its Python 2 name as CPython does
// below protocol 3.
func (e *encoder) global(g *Global) error {
	name := className{g.Module, g.Name}
	if e.get(g) || e.get(name) {
		return nil
	}
	for _, s := range []string{g.Module, g.Name} {
		if strings.Contains(s, "\n") || notUTF8([]byte(s)) >= 0 {
			return fault.New(fault.Internal, "the global %q.%q has a name that no pickle can hold", g.Module, g.Name)
		}
	}
	if e.opts.Protocol >= 4 {
		if err := e.values([]Value{g.Module, g.Name}); err != nil {
			return err
		}
		e.op(opStackGlobal)
	} else {
		module, name := python2Name(g.Module, g.Name)
		e.op(opGlobal)
		e.out = append(e.out, module+"\n"+name+"\n"...)
	}
	e.put(name)
	e.memo[g] = e.memo[name]
	return nil
}

// call writes v as the result of callable(*args).
func (e *encoder) call(v Value, callable *Global, args *Tuple) error {
	_, err := e.made(v, opReduce, callable, args)
	return err
}

// made writes v as what code makes of parts. It is false if v was written on the
// way, see again.
func (e *encoder) made(v Value, code byte, parts ...Value) (bool, error) {
	if err := e.values(parts); err != nil {
		return false, err
	}
	if written, err := e.again(v, len(parts)); written {
		e.pop(len(parts))
		e.get(v)
		return false, err
	}
	e.op(code)
	e.put(v)
	return true, nil
}

func (e *encoder) object(o *Object) error {
	if first, err := e.bare(o); err != nil || !first {
		return err
	}
	if o.Extra != nil {
		if err := e.items(o.Extra.Items); err != nil {
			return err
		}
		if err := e.pairs(o.Extra.Pairs); err != nil {
			return err
		}
	}
	if !o.HasState {
		return nil
	}
	if err := e.value(o.State); err != nil {
		return err
	}
	e.op(opBuild)
	return nil
}

// bare writes an object without what is added to it later.
func (e *encoder) bare(o *Object) (bool, error) {
	args := o.args()
	switch {
	case o.Extra != nil && o.Extra.Kwargs != nil && e.opts.Protocol >= 4:
		return e.made(o, opNewObjEx, o.Class, args, o.Extra.Kwargs)
	case o.Extra != nil && o.Extra.Kwargs != nil:
		return e.made(o, opReduce, newObjExFunction, NewTuple(o.Class, args, o.Extra.Kwargs))
	case o.New:
		return e.made(o, opNewObj, o.Class, args)
	}
	return e.made(o, opReduce, o.Class, args)
}

// args are the arguments, which an object built in Go may leave out.
func (o *Object) args() *Tuple {
	if o.Args == nil {
		return emptyTuple
	}
	return o.Args
}

func (e *encoder) persistent(p *Persistent) error {
	if err := e.value(p.ID); err != nil {
		return err
	}
	e.op(opBinPersID)
	return nil
}
