package convert

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/compact"
	"gefenckpt/format/manifest"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
	"gefenckpt/internal/fsx"
	"gefenckpt/reshard"
)

// Target ranks do not depend on each other, so that n processes, on as many
// machines, can each write a part of them: the ranks' payloads of a torch.save
// file, or their files of a dense directory. A part is a directory of its own,
//
//	.DST.gefenckpt-HASH-of-N/part-I
//
// beside the target; HASH is a digest of the source's fingerprint and of the
// options, so that parts of different work cannot meet. Last in it is the record
// that makes it whole.

// Part says which part of the target ranks to write: part Index, from 1, of Of. Of
// is 0 for all.
type Part struct{ Index, Of int }

// String is i/n.
func (p Part) String() string { return fmt.Sprintf("%d/%d", p.Index, p.Of) }

// ranks are the target ranks [first, last) of the part.
func (p Part) ranks(world int) (first, last int) {
	return (p.Index - 1) * world / p.Of, p.Index * world / p.Of
}

// partRecord is the record of a part.
type partRecord struct {
	Part  int                  `json:"part"`
	Ranks []reshard.RankRecord `json:"ranks,omitempty"` // where the state was resharded
	Files []manifest.File      `json:"files"`
}

// recordName is the record's file; mostRecord is how long one may be.
const (
	recordName = "part.json"
	mostRecord = 1 << 30
)

// PartDone says what a part has written.
type PartDone struct {
	Index     int    `json:"index"`
	Of        int    `json:"of"`
	FirstRank int    `json:"first_rank"`
	LastRank  int    `json:"last_rank"`
	Dir       string `json:"dir"`
	Already   bool   `json:"already,omitempty"` // it was there
}

// checkPart refuses what cannot be written in parts.
func (j *job) checkPart(world int) error {
	o := &j.o
	if o.Part.Of == 0 && !o.Finish {
		return nil
	}
	switch {
	case o.Part.Of > 0 && o.Finish:
		return fault.New(fault.Usage, "--part and --finish exclude each other").WithHint("run all parts first, then --finish")
	case o.Plan:
		return fault.New(fault.Usage, "--plan is of the whole conversion").WithHint("leave out --part and --finish")
	case o.To == checkpoint.Native, o.To == checkpoint.Compact && o.Container == checkpoint.Directory:
		return fault.New(fault.Usage, "only a compact torch.save file and a dense directory are written in parts").WithHint("leave out --part and --finish")
	case o.Part.Of > world:
		return fault.New(fault.Usage, "there are %d parts, and %d ranks of the target", o.Part.Of, world).WithHint("take at most a part per rank")
	}
	return nil
}

// partsName is what the directories of a target's parts begin with.
func (j *job) partsName() (string, error) {
	pins, err := j.pins()
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(pins)
	if err != nil {
		return "", fault.New(fault.Internal, "the options: %w", err)
	}
	sum := sha256.Sum256(text)
	return "." + filepath.Base(filepath.Clean(j.dst)) + ".gefenckpt-" + hex.EncodeToString(sum[:6]) + "-of-", nil
}

// beginPart turns the job into one that writes its part as a directory. It is
// already there if a run has written it.
func (j *job) beginPart() (already bool, err error) {
	name, err := j.partsName()
	if err != nil {
		return false, err
	}
	p := j.o.Part
	parent := filepath.Dir(filepath.Clean(j.dst))
	if _, err := j.fs.Lstat(filepath.Join(parent, filepath.Base(j.dst))); err == nil && !j.o.Force {
		return false, fault.New(fault.Output, "the target exists").File(j.dst).WithHint("choose another name, or replace it with --force")
	}
	dir := filepath.Join(parent, name+strconv.Itoa(p.Of))
	if err := j.fs.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, fault.New(fault.Output, "the directory for the parts cannot be made: %w", err).File(dir).WithHint("make the folder first, or choose another name")
	}
	first, last := p.ranks(j.ranks())
	done := &PartDone{Index: p.Index, Of: p.Of, FirstRank: first, LastRank: last - 1, Dir: filepath.Join(dir, "part-"+strconv.Itoa(p.Index))}
	j.result.Part = done
	j.dst = done.Dir
	_, err = j.fs.Lstat(done.Dir)
	done.Already = err == nil
	return done.Already, nil
}

// ranks is how many ranks the target has.
func (j *job) ranks() int {
	if j.o.To == checkpoint.Dense {
		return j.denseWorld
	}
	return j.o.World
}

// partSink is the files of a part but for its record.
type partSink struct{ of []sinkFile }

func (s *partSink) files() []sinkFile { return s.of }
func (s *partSink) dropped() []string { return nil }

// newPartSink has the payloads of the part's ranks in c, or their files of a
// directory.
func (j *job) newPartSink(c *checkpoint.Checkpoint) (sink, error) {
	first, last := j.o.Part.ranks(j.ranks())
	if c == nil {
		return &partSink{j.sink.files()[first:last]}, nil
	}
	s := &partSink{}
	for r := first; r < last; r++ {
		payload, err := compact.Payload(c, r)
		if err != nil {
			return nil, err
		}
		s.of = append(s.of, sinkFile{payloadName(r), payload.Size(), func(w io.Writer) error { _, err := payload.WriteTo(w); return err }})
	}
	return s, nil
}

func payloadName(rank int) string { return "payload-" + strconv.Itoa(rank) + ".pt" }

// writeRecord stages the record of a part.
func (j *job) writeRecord(staging *fsx.Staging) error {
	rec := partRecord{Part: j.o.Part.Index, Files: written(staging.Files())}
	if j.plan != nil {
		first, last := j.o.Part.ranks(j.ranks())
		for r := first; r < last; r++ {
			rec.Ranks = append(rec.Ranks, j.plan.Record(r))
		}
	}
	text, err := json.Marshal(rec)
	if err != nil {
		return fault.New(fault.Internal, "the record of a part: %w", err)
	}
	w, err := staging.Create(recordName)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	return w.Close()
}

// parts are the finished parts of a target.
type parts struct {
	fs    fsx.FS
	dir   string
	ranks []reshard.RankRecord
	files map[string]partFile
}

// partFile is a file of a part; a tensor.Content.
type partFile struct {
	fs   fsx.FS
	path string
	manifest.File
}

// Size is in bytes.
func (f *partFile) Size() int64 { return f.Bytes }

// WriteTo copies the file, and fails if it is not the one that the part's record
// speaks of.
func (f *partFile) WriteTo(w io.Writer) (int64, error) {
	in, err := f.fs.Open(f.path)
	if err != nil {
		return 0, fault.New(fault.Incomplete, "a file of a part cannot be read: %w", err).File(f.path).WithHint("run that part again")
	}
	defer in.Close()
	sum := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(w, sum)}, struct{ io.Reader }{io.LimitReader(in, f.Bytes+1)}, make([]byte, 1<<20))
	if err == nil && (n != f.Bytes || hex.EncodeToString(sum.Sum(nil)) != f.SHA256) {
		err = fault.New(fault.Corrupt, "a file of a part is not the one that was written: its length or digest differs").
			File(f.path).WithHint("remove the directory of the part, and run the part again")
	}
	return n, err
}

// openParts finds the parts of this work and reads their records.
func (j *job) openParts() (*parts, error) {
	prefix, err := j.partsName()
	if err != nil {
		return nil, err
	}
	parent := filepath.Dir(filepath.Clean(j.dst))
	entries, err := j.fs.ReadDir(parent)
	if err != nil {
		return nil, fault.New(fault.Output, "the target's folder cannot be listed: %w", err).File(parent)
	}
	var found, others []string
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, prefix):
			found = append(found, name)
		case strings.HasPrefix(name, "."+filepath.Base(j.dst)+".gefenckpt-") && strings.Contains(name, "-of-"):
			others = append(others, name)
		}
	}
	switch {
	case len(found) == 0 && len(others) > 0:
		return nil, fault.New(fault.Incomplete, "there are parts of this target, but of another source or with other options: %s", strings.Join(others, ", ")).
			File(j.dst).WithHint("give --finish the options of the parts, or remove those")
	case len(found) == 0:
		return nil, fault.New(fault.Incomplete, "no part of it has been written").File(j.dst).WithHint("run the same command with --part 1/N, 2/N, ... first")
	case len(found) > 1:
		return nil, fault.New(fault.Usage, "it was written in different numbers of parts: %s", strings.Join(found, ", ")).File(j.dst).WithHint("remove those that are not to be joined")
	}
	n, err := strconv.Atoi(strings.TrimPrefix(found[0], prefix))
	if err != nil || n < 1 || n > 1<<16 {
		return nil, fault.New(fault.Corrupt, "the directory's name does not end in a number of parts").File(filepath.Join(parent, found[0])).WithHint("remove it")
	}
	p := &parts{fs: j.fs, dir: filepath.Join(parent, found[0]), files: map[string]partFile{}}
	var missing []string
	for i := 1; i <= n; i++ {
		switch there, err := p.read(i); {
		case err != nil:
			return nil, err
		case !there:
			missing = append(missing, strconv.Itoa(i))
		}
	}
	if len(missing) > 0 {
		return nil, fault.New(fault.Incomplete, "of its %d parts these are missing: %s", n, strings.Join(missing, ", ")).
			File(j.dst).WithHint("run the same command with --part %s/%d", missing[0], n)
	}
	return p, nil
}

// read reads the record of part i; false if it is not there.
func (p *parts) read(i int) (bool, error) {
	dir := filepath.Join(p.dir, "part-"+strconv.Itoa(i))
	path := filepath.Join(dir, recordName)
	f, err := p.fs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fault.New(fault.Resource, "%w", err).File(path)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostRecord))
	if err != nil {
		return false, fault.New(fault.Resource, "%w", err).File(path)
	}
	rec, err := decodeRecord(data, i)
	if err != nil {
		return false, fault.New(fault.Corrupt, "it is no record of part %d: %w", i, err).File(path).WithHint("remove the directory of the part, and run the part again")
	}
	p.ranks = append(p.ranks, rec.Ranks...)
	for _, file := range rec.Files {
		p.files[file.Name] = partFile{p.fs, filepath.Join(dir, file.Name), file}
	}
	return true, nil
}

// decodeRecord reads the record of part i.
func decodeRecord(data []byte, i int) (*partRecord, error) {
	var rec partRecord
	if err := json.Unmarshal(data, &rec); err != nil {
		return nil, err
	}
	if rec.Part != i {
		return nil, fmt.Errorf("it is of part %d", rec.Part)
	}
	for _, f := range rec.Files {
		if f.Bytes < 0 || f.Name == "" || filepath.Base(f.Name) != f.Name {
			return nil, fmt.Errorf("the name %q of a file is no plain one, or its length is %d", f.Name, f.Bytes)
		}
	}
	return &rec, nil
}

// joinParts opens the parts that a target of world ranks is made of, if it is to
// be.
func (j *job) joinParts(world int) error {
	err := j.checkPart(world)
	if err == nil && j.o.Finish {
		j.parts, err = j.openParts()
	}
	return err
}

// madePayload gives the payloads that parts have written; nil if there are none.
func (j *job) madePayload() func(rank int, size int64) (tensor.Content, error) {
	if j.parts == nil {
		return nil
	}
	return func(rank int, size int64) (tensor.Content, error) { return j.parts.file(payloadName(rank), size) }
}

// file is a part's file, which must be size bytes long.
func (p *parts) file(name string, size int64) (*partFile, error) {
	f, ok := p.files[name]
	if !ok || f.Bytes != size {
		return nil, fault.New(fault.Corrupt, "the parts have %s of %d bytes, expected %d", name, f.Bytes, size).File(p.dir).WithHint("remove the directory, and run the parts again")
	}
	return &f, nil
}

// remove removes the parts, once they are joined.
func (p *parts) remove() error { return fsx.RemoveTree(p.fs, p.dir) }

// joinedSink is a directory whose files were written in parts.
type joinedSink struct {
	*directorySink
	parts *parts
}

func (s *joinedSink) files() []sinkFile {
	files := s.directorySink.files()
	for i := range files[:len(files)-1] {
		f := &files[i]
		f.write = func(w io.Writer) error {
			part, err := s.parts.file(f.name, f.bytes)
			if err == nil {
				_, err = part.WriteTo(w)
			}
			s.writer.Written(i)
			return err
		}
	}
	return files
}
