package dcp

import (
	"encoding/binary"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// Pieces of pickles, by hand: what a writer of metadata would never share.
const (
	classM    = "c" + metadataModule + "\n"
	newObject = ")\x81"
)

func text(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

func short8(s string) string { return "\x8c" + string(byte(len(s))) + s }

func number32(n int) string {
	return "J" + string(binary.LittleEndian.AppendUint32(nil, uint32(n)))
}

// entries writes n entries of a dict under short names.
func entries(n int, value func(i int) string) string {
	var b strings.Builder
	b.WriteString("}")
	for i := range n {
		if i%1000 == 0 {
			b.WriteString("(")
		}
		b.WriteString(short8(strconv.FormatInt(int64(i), 36)))
		b.WriteString(value(i))
		if i%1000 == 999 || i == n-1 {
			b.WriteString("u")
		}
	}
	return b.String()
}

// once writes a piece the first time into memo entry k, and fetches it later.
func once(k byte, piece string) func(int) string {
	return func(i int) string {
		if i == 0 {
			return piece + "q" + string(k)
		}
		return "h" + string(k)
	}
}

// Metadata files that share what a writer writes anew take no more memory than
// 64 times their length, open or not, and end soon.
func TestHostileMetadata(t *testing.T) {
	sizeOf := func(dims int) string { return "ctorch\nSize\n(" + strings.Repeat("K\x01", dims) + "t\x85R" }
	chunk := classM + "ChunkStorageMetadata\n" + newObject + "}(" + text("offsets") + sizeOf(1) + text("sizes") + sizeOf(1) + "ub"
	properties := classM + "TensorProperties\n" + newObject + "(ctorch\nuint8\nctorch.serialization\n_get_layout\n" + text("torch.strided") + "\x85R\x89" +
		classM + "_MEM_FORMAT_ENCODING\nK\x00\x85R\x89tb"
	tensorOf := func(chunks string) string {
		return classM + "TensorStorageMetadata\n" + newObject + "}(" + text("properties") + properties + text("size") + sizeOf(1) + text("chunks") + chunks + "ub"
	}
	bytesMeta := classM + "BytesStorageMetadata\n" + newObject
	manyChunks := "](" + chunk + "q\x05" + strings.Repeat("h\x05", 2000) + "e"
	for _, c := range []struct {
		name   string
		fields string
	}{
		{"items share one object", text("state_dict_metadata") + entries(50000, once(0, bytesMeta)) + text("storage_data") + "}"},
		{"tensors share one object", text("state_dict_metadata") + entries(50000, once(0, tensorOf("]"+chunk+"a"))) + text("storage_data") + "}"},
		{"tensors share one object of many chunks", text("state_dict_metadata") + entries(50000, once(0, tensorOf(manyChunks))) + text("storage_data") + "}"},
		{"tensors share one list of chunks", text("state_dict_metadata") + entries(20000, func(i int) string {
			return tensorOf(once(0, manyChunks)(i))
		}) + text("storage_data") + "}"},
		{"sizes share one tuple", text("state_dict_metadata") + "}" + text("storage_data") + "}" + text("x") + "](" +
			"(" + strings.Repeat("K\x01", 64) + "tq\x00" + "ctorch\nSize\nq\x01h\x00\x85R" + strings.Repeat("h\x01h\x00\x85R", 100000) + "e"},
		{"paths share one tuple", text("state_dict_metadata") + entries(5000, once(0, bytesMeta)) + text("planner_data") +
			entries(5000, once(1, "("+strings.Repeat("K\x00", 5000)+"t")) + text("storage_data") + "}"},
		{"a path of many steps", text("state_dict_metadata") + "}" + text(strings.Repeat("a.", 50000)+"a") + bytesMeta + "s" + text("planner_data") +
			"}" + text(strings.Repeat("a.", 50000)+"a") + "(" + text("a") + "q\x00" + strings.Repeat("h\x00", 50000) + "ts" + text("storage_data") + "}"},
		{"attributes without end", entries(50000, func(int) string { return "N" })[2:] + "(" + text("state_dict_metadata") + "}" + text("storage_data") + "}"},
		{"transforms without end", text("state_dict_metadata") + "}" + text("storage_data") + "}(" + "](" + text("t") + "q\x00" + strings.Repeat("h\x00", 50000) + "eq\x01" +
			strings.Repeat("c"+filesystemModule+"\n_StorageInfo\n"+newObject+"}("+text("transform_descriptors")+"h\x01ub", 1000) + "1u"},
		{"a list with one late item", text("state_dict_metadata") + "}" + text("l.1000000000") + bytesMeta + "s" + text("planner_data") +
			"}" + text("l.1000000000") + text("l") + number32(1000000000) + "\x86s" + text("storage_data") + "}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := []byte("\x80\x02" + classM + "Metadata\n" + newObject + "}(" + c.fields + "ub.")
			var d *Directory
			var err error
			bounded(t, 64*len(data)+1<<20, func() { d, err = OpenFS(fstest.MapFS{metadataName: {Data: data}}, "mem") })
			if err != nil {
				typed(t, err)
				return
			}
			if len(d.Faults) == 0 && len(d.Metadata.Items) > 0 {
				t.Error("it opens without a fault")
			}
			if err := everything(d); err != nil {
				typed(t, err)
			}
		})
	}
}
