package cmd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gefenckpt/convert"

	"github.com/dustin/go-humanize"
)

// choice is a flag whose value is one of a few words.
type choice struct {
	value   string
	allowed []string
}

func newChoice(value string, allowed ...string) *choice { return &choice{value, allowed} }

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return "word" }

// Set takes one of the allowed words.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return fmt.Errorf("%q is none of %s", s, strings.Join(c.allowed, ", "))
	}
	c.value = s
	return nil
}

// byteSize is a flag whose value is a number of bytes: 256MiB, 1GB, 1048576.
type byteSize struct{ n int64 }

func (b *byteSize) String() string { return strings.ReplaceAll(humanize.IBytes(uint64(b.n)), " ", "") }
func (b *byteSize) Type() string   { return "size" }

// Set parses a number with an optional unit.
func (b *byteSize) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	if err != nil {
		return err
	}
	if n > 1<<62 {
		return fmt.Errorf("%q is more than any memory", s)
	}
	b.n = int64(n)
	return nil
}

// percent is a flag whose value is a fraction: 5% or 0.05.
type percent struct{ fraction float64 }

func (p *percent) String() string { return strconv.FormatFloat(100*p.fraction, 'g', 12, 64) + "%" }
func (p *percent) Type() string   { return "percent" }

// Set parses a number with or without a percent sign.
func (p *percent) Set(s string) error {
	number, isPercent := strings.CutSuffix(s, "%")
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || x < 0 || x > 1e6 {
		return fmt.Errorf("%q is no share such as 5%% or 0.05", s)
	}
	if isPercent {
		x /= 100
	}
	p.fraction = x
	return nil
}

// part is a flag whose value is a part of n: 3/8.
type part struct{ convert.Part }

func (p *part) String() string {
	if p.Of == 0 {
		return ""
	}
	return p.Part.String()
}
func (p *part) Type() string { return "i/n" }

// Set parses i/n.
func (p *part) Set(s string) error {
	i, n, _ := strings.Cut(s, "/")
	index, err := strconv.Atoi(i)
	of, err2 := strconv.Atoi(n)
	if err != nil || err2 != nil || index < 1 || index > of || of > 1<<16 {
		return fmt.Errorf("%q is no part such as 3/8, counted from 1", s)
	}
	p.Part = convert.Part{Index: index, Of: of}
	return nil
}
