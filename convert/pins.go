package convert

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"gefenckpt/internal/fault"
	"gefenckpt/internal/fsx"
)

// pins are what the runs of one interrupted conversion have in common: the
// options that the target's bytes depend on, with the version of the tool, and
// the source's files as they were.
func (j *job) pins() ([]fsx.Pin, error) {
	text, err := json.Marshal(j.o)
	options := map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(text, &options)
	}
	if err != nil {
		return nil, fault.New(fault.Internal, "the options: %w", err)
	}
	var pins []fsx.Pin
	for _, name := range slices.Sorted(maps.Keys(options)) {
		pins = append(pins, fsx.Pin{What: "the option " + name, Value: string(options[name])})
	}
	files, err := j.sourceFiles()
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		print, err := fingerprint(j.sourcePath(f.Name, len(files)))
		if err != nil {
			return nil, err
		}
		pins = append(pins, fsx.Pin{What: "the source's file " + f.Name, Value: print})
	}
	return pins, nil
}

// edge is how much of a file's beginning and end a fingerprint reads. The
// directory of a torch.save archive, with the checksum of every member, is at its
// end.
const edge = 64 << 10

// fingerprint tells a file from a changed one: by its size, its time of change,
// and a digest of its beginning and end.
func fingerprint(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fault.New(fault.Resource, "%w", err).File(path)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fault.New(fault.Resource, "%w", err).File(path)
	}
	sum := sha256.New()
	for _, from := range []int64{0, max(0, info.Size()-edge)} {
		if _, err := io.Copy(sum, io.NewSectionReader(f, from, edge)); err != nil {
			return "", fault.New(fault.Resource, "reading: %w", err).File(path)
		}
	}
	binary.Write(sum, binary.LittleEndian, info.ModTime().UnixNano())
	return fmt.Sprintf("%d bytes with the fingerprint %s", info.Size(), hex.EncodeToString(sum.Sum(nil)[:8])), nil
}
