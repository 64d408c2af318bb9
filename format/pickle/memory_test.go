package pickle

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
)

// allowed is how much memory decoding may hold.
func allowed(data []byte) uint64 { return 64*uint64(len(data)) + 1<<20 }

func repeat(n int, parts ...string) string { return strings.Repeat(strings.Join(parts, ""), n) }

// bombs are valid and invalid pickles that make as much as they can of each byte.
var bombs = map[string]func(n int) string{
	"empty dicts":            func(n int) string { return "(" + repeat(n, "}") + "t." },
	"remembered dicts":       func(n int) string { return "](" + repeat(n/2, "}\x94") + "e." },
	"remembered and fetched": func(n int) string { return "](" + repeat(n/4, "}\x94h\x00") + "e." },
	"remembered lists":       func(n int) string { return "](" + repeat(n/2, "]\x94") + "e." },
	"remembered sets":        func(n int) string { return "](" + repeat(n/2, "\x8f\x94") + "e." },
	"dicts in batches":       func(n int) string { return "]" + repeat(n/1002, "("+repeat(500, "}N")+"e") + "." },
	"nones":                  func(n int) string { return "(" + repeat(n, "N") + "t." },
	"nones in a list":        func(n int) string { return "](" + repeat(n, "N") + "e." },
	"nones one by one":       func(n int) string { return "]" + repeat(n/2, "Na") + "." },
	"small tuples":           func(n int) string { return "(" + repeat(n/2, "N\x85") + "t." },
	"floats":                 func(n int) string { return "(" + repeat(n/9, "G\x3f\xf0\x00\x00\x00\x00\x00\x01") + "t." },
	"integers":               func(n int) string { return "(" + repeat(n/3, "M\x00\x01") + "t." },
	"short strings":          func(n int) string { return "(" + repeat(n/4, "U\x02ab") + "t." },
	"short bytes":            func(n int) string { return "(" + repeat(n/3, "C\x01a") + "t." },
	"long integers":          func(n int) string { return "(" + repeat(n/11, "\x8a\x09abcdefghi") + "t." },
	"classes":                func(n int) string { return "(" + repeat(n/3, "c\n\n") + "t." },
	"objects":                func(n int) string { return "cx\ny\n\x940(" + repeat(n/4, "h\x00)\x81") + "t." },
	"objects with items":     func(n int) string { return "cx\ny\n\x940(" + repeat(n/6, "h\x00)\x81Na") + "t." },
	"instances":              func(n int) string { return "(" + repeat(n/5, "(ia\nb\n") + "t." },
	"marks":                  func(n int) string { return repeat(n, "(") },
	"persistent ids":         func(n int) string { return "(" + repeat(n/2, "NQ") + "t." },
	"integer keys": func(n int) string {
		var b bytes.Buffer
		b.WriteString("}(")
		for i := range n / 5 {
			b.Write([]byte{'J', byte(i), byte(i >> 8), byte(i >> 16), 1, 'N'})
		}
		return b.String() + "u."
	},
	"keys one by one": func(n int) string {
		var b bytes.Buffer
		b.WriteString("}")
		for i := range n / 7 {
			b.Write([]byte{'J', byte(i), byte(i >> 8), byte(i >> 16), 1, 'N', 's'})
		}
		return b.String() + "."
	},
	"unset memo entries": func(n int) string { return "N" + repeat(n/5, "r\xff\xff\x00\x00") + "." },
	"high memo entries": func(n int) string {
		i := uint32(n / 2)
		return repeat(n/5, string([]byte{'j', byte(i), byte(i >> 8), byte(i >> 16), 0}))
	},
}

// Decoding never holds more than 64 bytes for each byte of the pickle and 1 MiB,
// whatever it is made of.
func TestMemoryOfBombs(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	for name, bomb := range bombs {
		t.Run(name, func(t *testing.T) {
			data := []byte(bomb(1 << 19))
			if live := peak(func() { _, _ = Decode(data, Options{}) }); live > allowed(data) {
				t.Errorf("%d bytes live for a pickle of %d, want at most %d", live, len(data), allowed(data))
			}
		})
	}
}

// peak is the most live heap, in bytes, that garbage collections see while do
// runs, beyond what was there before.
func peak(do func()) uint64 {
	live := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	runtime.GC()
	before, done, most := live(), make(chan struct{}), make(chan uint64)
	go func() {
		highest := before
		for {
			select {
			case <-done:
				most <- max(highest, live())
				return
			default:
				highest = max(highest, live())
				time.Sleep(200 * time.Microsecond)
			}
		}
	}()
	do()
	close(done)
	return <-most - before
}
