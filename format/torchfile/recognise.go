package torchfile

import (
	"bytes"
	"strings"

	"gefenckpt/internal/fault"
)

// foreign is a kind of file that people give instead of a torch.save archive,
// and how it begins.
type foreign struct {
	begin      string
	what, hint string
}

// legacyMagic begins the format before PyTorch 1.6: a pickle of a magic number.
const legacyMagic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e"

const (
	resave  = "load it with PyTorch and save it again with torch.save"
	restore = "copy the file again from where it was written"
)

// foreigners, the more telling beginnings first.
var foreigners = []foreign{
	{legacyMagic, "a torch.save file from before PyTorch 1.6, or saved with _use_new_zipfile_serialization=False", resave},
	{"PK\x05\x06", "an empty zip file", restore},
	{"version https://git-lfs", "a Git LFS pointer, not the file itself", "run git lfs pull"},
	{"\x1f\x8b", "a gzip file", "unpack it first"},
	{"\x28\xb5\x2f\xfd", "a zstd file", "unpack it first"},
	{"\xfd7zXZ", "an xz file", "unpack it first"},
	{"\x89HDF", "an HDF5 file", resave},
	{"\x93NUMPY", "a NumPy file", resave},
	{"GGUF", "a GGUF file, which holds weights alone", "give the file that torch.save wrote for the optimizer"},
	{"<", "a web page, or other XML", "download the file itself"},
	{"{", "a JSON file", "give the .pt file, or the directory of the checkpoint"},
	{"\x80\x02", "a bare pickle", barePickle},
	{"\x80\x03", "a bare pickle", barePickle},
	{"\x80\x04", "a bare pickle", barePickle},
	{"\x80\x05", "a bare pickle", barePickle},
}

const barePickle = "give the .pt file, or the directory whose .metadata this is"

// recognise refuses files that are known to be something else, by how they
// begin.
func recognise(head []byte, size int64) error {
	if size == 0 {
		return fault.New(fault.Incomplete, "the file is empty").WithHint("the save was cut short: use another checkpoint, or %s", restore)
	}
	if bytes.HasPrefix(head, []byte("PK\x03\x04")) {
		return nil
	}
	if len(head) > 262 && string(head[257:262]) == "ustar" {
		return refused("a tar file, such as PyTorch wrote before 0.1.10", resave)
	}
	if len(head) > 9 && head[8] == '{' && le.Uint64(head) < uint64(size) {
		return refused("a safetensors file, which holds tensors but no optimizer state", "give the file that torch.save wrote for the optimizer")
	}
	if len(bytes.Trim(head, "\x00")) == 0 {
		return corrupt(0, "the file begins with %d zero bytes, expected a zip archive: its content was never written", len(head)).WithHint(restore)
	}
	for _, f := range foreigners {
		if bytes.HasPrefix(head, []byte(f.begin)) {
			return refused(f.what, f.hint)
		}
	}
	return fault.New(fault.Unsupported, "this is no torch.save archive: it begins with % x, expected 50 4b 03 04", head[:min(len(head), 4)]).At(0)
}

func refused(what, hint string) error {
	return fault.New(fault.Unsupported, "this is %s, no torch.save archive", what).At(0).WithHint("%s", hint)
}

// relatives are zip archives of other kinds, by a member below the top folder.
var relatives = []foreign{
	{"constants.pkl", "a TorchScript module", "save the optimizer's state with torch.save"},
	{"archive_format", "a torch.export program", "save the optimizer's state with torch.save"},
}

// folder is the top folder of all members.
func (d *directory) folder() (string, error) {
	folder := ""
	for i := range d.entries {
		name := d.entries[i].name
		top, below, ok := strings.Cut(name, "/")
		switch {
		case strings.HasSuffix(name, ".npy"):
			return "", refused("a NumPy archive", resave)
		case !ok:
			return "", notTorch("member %q is in no folder", name)
		case folder != "" && folder != top && (d.holds(folder) || d.holds(top)):
			return "", corrupt(0, "members are in two folders, %q and %q, and torch.save writes one", folder, top)
		case folder != "" && folder != top:
			return "", notTorch("members are in two folders, %q and %q", folder, top)
		}
		folder = top
		for _, f := range relatives {
			if below == f.begin {
				return "", refused(f.what, f.hint)
			}
		}
	}
	if !d.holds(folder) {
		return "", notTorch("it has no data.pkl")
	}
	return folder, nil
}

// holds says whether a folder is that of an archive of torch.save.
func (d *directory) holds(folder string) bool {
	_, ok := d.byName[folder+"/data.pkl"]
	return ok
}

func notTorch(format string, args ...any) error {
	return fault.New(fault.Unsupported, "this zip file is no torch.save archive: "+format, args...)
}
