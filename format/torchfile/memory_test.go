package torchfile

import (
	"fmt"
	"strings"
	"testing"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/heap"
)

// bomb is a pickle of a list, and what is in it.
type bomb struct{ text, items string }

// bombs are pickles of n calls that make as much as they can of a few bytes each.
// Storage 0 has 16 bytes.
func bombs(n int) map[string]bomb {
	const (
		begin  = "\x80\x02"
		v2     = "ctorch._utils\n_rebuild_tensor_v2\nq\x00"
		id     = "(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x04tq\x01"
		hooks  = "ccollections\nOrderedDict\nq\x02)Rq\x03"
		args   = "(h\x01QK\x00K\x04\x85K\x01\x85\x89h\x03tq\x04"
		parts  = begin + v2 + "0" + id + "0" + hooks + "0"
		common = parts + args + "0"
	)
	many := func(s string) string { return "](" + strings.Repeat(s, n) + "e." }
	dims := "(" + strings.Repeat("K\x01", mostDims) + "tq\x05"
	spec := "csome\nSpec\n)\x81}(U\x0aplacementsccollections\nOrderedDict\n)R\x85ub"
	return map[string]bomb{
		"tensors of the same arguments": {common + many("h\x00h\x04R"), "*tensor.Tensor"},
		"tensors of the same parts":     {parts + dims + "0h\x01Qq\x060K\x00q\x070\x89q\x080" + many("h\x00(h\x06h\x07h\x05h\x05h\x08h\x03tR"), "*tensor.Tensor"},
		"tensors of their own shapes":   {parts + "h\x01Qq\x060" + many("h\x00(h\x06K\x00K\x01K\x01K\x01\x87K\x01K\x01K\x01\x87\x89h\x03tR"), "*tensor.Tensor"},
		"parameters": {common + "ctorch._utils\n_rebuild_parameter\nq\x050h\x00h\x04R\x88h\x03\x87q\x060" +
			many("h\x05h\x06R"), "*tensor.Tensor"},
		"DTensors": {common + "ctorch._tensor\n_rebuild_from_type_v2\nq\x050(h\x00ctorch.distributed.tensor\nDTensor\n" +
			"(NNK\x04\x85NNNN\x89tN}(U\x0d_local_tensorh\x00h\x04RU\x05_spec" + spec + "u\x86tq\x060" + many("h\x05h\x06R"), "*torchfile.DTensor"},
		"storages":             {begin + id + "0" + many("h\x01Q"), "*torchfile.BareStorage"},
		"other persistent ids": {begin + many("NQ"), "*pickle.Persistent"},
		"inert tensors":        {parts + "(h\x01QK\x00K\x04\x85K\x01\x85\x89h\x03}U\x04conj\x88stq\x040" + many("h\x00h\x04R"), "*pickle.Object"},
	}
}

// Whatever calls a pickle makes of few bytes, an archive stays within 64 bytes for
// each of them.
func TestMemoryOfBombs(t *testing.T) {
	for name, bomb := range bombs(50_000) {
		t.Run(name, func(t *testing.T) {
			data := zipOf(t, file{name: "a/data.pkl", data: bomb.text}, file{name: "a/version", data: "3\n"}, file{name: "a/data/0", data: "0123456789abcdef"})
			var a *Archive
			var err error
			heap.Within(t, allowed(data), func() { a, err = Open(tensor.Memory(data), Options{}) })
			if err != nil {
				t.Fatal(err)
			}
			if items, _ := pickle.Sequence(a.Root()); len(items) != 50_000 || fmt.Sprintf("%T", items[9_999]) != bomb.items {
				t.Errorf("%d items, such as a %T; expected %s", len(items), items[9_999], bomb.items)
			}
		})
	}
}

// A directory of many members costs no more.
func TestMemoryOfDirectories(t *testing.T) {
	files := []file{{name: "a/data.pkl", data: "\x80\x02N."}, {name: "a/version", data: "3\n"}}
	for i := range 20_000 {
		files = append(files, file{name: "a/" + string(rune('\u4e00'+i))})
	}
	data := zipOf(t, files...)
	var err error
	heap.Within(t, allowed(data), func() { _, err = Open(tensor.Memory(data), Options{}) })
	if err != nil {
		t.Error(err)
	}
}
