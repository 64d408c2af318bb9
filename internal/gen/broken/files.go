package broken

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"os"
	"strings"
)

// raw is a case whose file is made of the bytes of a sound one.
func raw(name, what string, exit int, text string, make func(data []byte) []byte) Case {
	return Case{name, what, exit, text, func(s *Sound, path string) error {
		return os.WriteFile(path, make(bytes.Clone(s.Compact)), 0o666)
	}}
}

// member is a file of a zip archive.
type member struct {
	name, data string
	deflate    bool
}

// zipped is an archive of members, each with its checksum.
func zipped(members ...member) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		h := &zip.FileHeader{Name: "archive/" + m.name}
		if m.deflate {
			h.Method = zip.Deflate
		}
		f, err := w.CreateHeader(h)
		if err == nil {
			_, err = f.Write([]byte(m.data))
		}
		if err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// pickled is an archive of a pickle and one storage.
func pickled(pickle string) func([]byte) []byte {
	return func([]byte) []byte {
		return zipped(member{name: "data.pkl", data: pickle}, member{name: "byteorder", data: "little"}, member{name: "data/0", data: "0123456789abcdef"}, member{name: "version", data: "3\n"})
	}
}

// aTensor is the pickle of {"optimizer": tensor} with a storage of so many
// elements, from an offset on, of a length.
func aTensor(elements, offset, length int32) string {
	i := func(n int32) string { return "J" + string(binary.LittleEndian.AppendUint32(nil, uint32(n))) }
	s := func(x string) string {
		return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(x)))) + x
	}
	return "\x80\x02}" + s("optimizer") + "ctorch._utils\n_rebuild_tensor_v2\n((" + s("storage") + "ctorch\nFloatStorage\n" + s("0") + s("cpu") + i(elements) + "tQ" +
		i(offset) + i(length) + "\x85" + i(1) + "\x85\x89ccollections\nOrderedDict\n)RtRs."
}

// files are broken before anything of an optimizer is seen.
var files = []Case{
	raw("empty.pt", "a file of no bytes, as a full disk leaves it", 3, "the file is empty", func([]byte) []byte { return nil }),
	raw("half.pt", "the second half is missing, as of a copy that broke off", 4, "no zip end record in the last 7217 of 7217 bytes: the archive is cut short, or i", func(d []byte) []byte { return d[:len(d)/2] }),
	raw("short.pt", "the last ten bytes are missing", 4, "no zip64 end record where its locator points", func(d []byte) []byte { return d[:len(d)-10] }),
	raw("zeros.pt", "all bytes are zero, as after a crash", 4, "the file begins with 4096 zero bytes, expected a zip archive: its content was ne", func(d []byte) []byte { return make([]byte, len(d)) }),
	raw("tail-zeros.pt", "the last quarter is zeros", 4, "no zip64 end record where its locator points", func(d []byte) []byte { clear(d[3*len(d)/4:]); return d }),
	raw("html.pt", "a page that a download gave in its place", 5, "this is a web page, or other XML, no torch.save archive", func([]byte) []byte { return []byte("<!DOCTYPE html><html><body>403</body></html>\n") }),
	raw("lfs.pt", "a pointer of Git LFS in the place of the file", 5, "this is a Git LFS pointer, not the file itself, no torch.save archive", func([]byte) []byte {
		return []byte("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n")
	}),
	raw("legacy.pt", "the torch.save of before PyTorch 1.6, which is no zip", 5, "this is a torch.save file from before PyTorch 1.6, or saved with _use_new_zipfil", func([]byte) []byte {
		return []byte("\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00.")
	}),
	raw("gzip.pt", "the file is packed by gzip", 5, "this is a gzip file, no torch.save archive", func([]byte) []byte {
		return []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	}),
	raw("no-pickle.pt", "a zip without data.pkl", 5, "this zip file is no torch.save archive: it has no data.pkl", func([]byte) []byte { return zipped(member{name: "weights.bin", data: "x"}) }),
	raw("two-pickles.pt", "a zip with data.pkl twice", 4, "two members are named", func([]byte) []byte {
		return zipped(member{name: "data.pkl", data: "\x80\x02}."}, member{name: "data.pkl", data: "\x80\x02}."})
	}),
	raw("flipped.pt", "one bit of a stored tensor is flipped", 4, "payload of rank 0: archive/data/0: CRC-32 is e5994932, expected 3d4e10fa: the by", func(d []byte) []byte { d[bytes.Index(d, []byte("/data/1"))+200] ^= 1; return d }),
	raw("bomb.pt", "a packed member of 64 MiB of zeros", 4, "the archive has no member", func([]byte) []byte {
		return zipped(member{name: "data.pkl", data: strings.Repeat("\x00", 64<<20), deflate: true})
	}),
	raw("big-endian.pt", "the byte order of another machine", 5, "no optimizer's state is found among 0 keys ()", func([]byte) []byte {
		return zipped(member{name: "data.pkl", data: "\x80\x02}."}, member{name: "byteorder", data: "big"}, member{name: "version", data: "3\n"})
	}),
	raw("call.pt", "a pickle that would call os.system", 5, "no optimizer's state is found among 1 keys (optimizer)", pickled("\x80\x02}X\x09\x00\x00\x00optimizercos\nsystem\nX\x04\x00\x00\x00true\x85Rs.")),
	raw("cycle.pt", "a list that holds itself", 5, "this holds a list of 1, no optimizer", pickled("\x80\x02]q\x00h\x00a.")),
	raw("deep.pt", "lists a hundred thousand deep", 8, "archive/data.pkl: at byte 100501: the pickle exceeds the limit on nesting, 500", pickled("\x80\x02"+strings.Repeat("]", 100_000)+strings.Repeat("a", 99_999)+".")),
	raw("underflow.pt", "a pickle that takes more than it has put", 4, "archive/data.pkl: at byte 2: APPEND needs 1 values, the stack has 0", pickled("\x80\x02a.")),
	raw("no-stop.pt", "a pickle without an end", 4, "archive/data.pkl: at byte 3: the pickle ends after 3 bytes, before its STOP", pickled("\x80\x02}")),
	raw("opcode.pt", "a pickle with an unknown instruction", 4, "archive/data.pkl: at byte 2: 0xff is no pickle opcode", pickled("\x80\x02\xff.")),
	raw("protocol.pt", "a pickle of protocol 99", 5, "archive/data.pkl: at byte 0: pickle protocol 99, expected at most 5", pickled("\x80\x63}.")),
	raw("long-string.pt", "a string that claims 2 GiB", 4, "archive/data.pkl: at byte 2: BINUNICODE needs 2147483647 bytes, 4 are left", pickled("\x80\x02X\xff\xff\xff\x7fabc.")),
	raw("no-memo.pt", "a pickle that recalls what it never noted", 4, "archive/data.pkl: at byte 2: memo entry 7 is fetched before it is set", pickled("\x80\x02h\x07.")),
	raw("storage-long.pt", "a storage that claims more elements than its record has", 4, "has 16 bytes, expected 1000 elements of torch.FloatStorage", pickled(aTensor(1000, 0, 4))),
	raw("offset.pt", "a tensor behind the end of its storage", 4, "archive/data.pkl: at byte 151: a view of shape [4], strides [1] and offset 100 r", pickled(aTensor(4, 100, 4))),
	raw("negative-offset.pt", "a tensor before its storage", 4, "archive/data.pkl: at byte 151: a view of shape [4], strides [1] and offset -1 re", pickled(aTensor(4, -1, 4))),
	raw("negative-shape.pt", "a tensor of a negative length", 4, "archive/data.pkl: at byte 151: shape [-4] is no tensor's", pickled(aTensor(4, 0, -4))),
}
