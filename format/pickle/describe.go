package pickle

import (
	"fmt"
	"math/big"
)

// Describe is a value in a few words, for error texts: "a dict of 3", "None".
// Values of other packages may have a Describe method of their own.
func Describe(v Value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64, float64:
		return fmt.Sprintf("%v", v)
	case *big.Int:
		return "a long integer"
	case string:
		return quoted(v)
	case Bytes:
		return "bytes"
	case *ByteArray:
		return "a bytearray"
	case *Tuple:
		return fmt.Sprintf("a tuple of %d", len(v.Items))
	case *List:
		return fmt.Sprintf("a list of %d", len(v.Items))
	case *Dict:
		return fmt.Sprintf("a dict of %d", len(v.Pairs))
	case *Set:
		return fmt.Sprintf("a set of %d", len(v.Items))
	case *Global:
		return v.inWords()
	case *Object:
		return "an object of " + v.Class.inWords()
	case *Persistent:
		return "a persistent id"
	case interface{ Describe() string }:
		return v.Describe()
	}
	return fmt.Sprintf("a %T", v)
}

// inWords is the dotted name, which hostile files make long.
func (g *Global) inWords() string {
	const most = 120
	if name := g.Module + "." + g.Name; len(name) <= most {
		return name
	}
	return "the class or function " + quoted(g.Module+"."+g.Name)
}

// quoted is a string, or the beginning of a long one, that is safe to print.
func quoted(s string) string {
	const most = 40
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return fmt.Sprintf("%q", s)
}
