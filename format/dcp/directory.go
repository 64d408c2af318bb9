package dcp

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"gefenckpt/format/pickle"
	"gefenckpt/internal/fault"
)

// Directory is an opened checkpoint directory: metadata in memory, items on
// disk. It and its tensors are safe for concurrent use, lazy values are not. Close
// releases its files.
type Directory struct {
	Path     string
	Metadata *Metadata
	// Faults are what keeps torch from loading the whole directory, those of the
	// metadata first. Reading an item that one of them touches gives it again.
	Faults []*fault.Error
	// Notes are what is odd and does no harm.
	Notes []string
	// Unread lists files that look like parts of a checkpoint and that nothing
	// refers to: left over from another save, as a rule.
	Unread []string

	fsys  fs.FS
	close func() error
	sizes []int64 // of Metadata.Files, as they were when the directory was opened
	files *pool[int32, file]
	// What is read of the files: decompressed items, headers of safetensors blobs,
	// and chunks of tensors.
	spools        *pool[itemID, *spool]
	blobs         *pool[blobID, *blob]
	items         *pool[itemID, *opened]
	decompressing sync.Mutex
	root          pickle.Value
}

// Open opens the directory at path. It reads the metadata and looks at the size
// of every file that it names; it opens no item. An error says why this is no
// directory that can be read at all; see [Directory.Faults] for the rest.
func Open(path string) (*Directory, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fault.New(fault.Usage, "cannot be opened: %w", err).File(path)
	case !info.IsDir():
		return nil, fault.New(fault.Usage, "is no directory").File(path)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fault.New(fault.Resource, "cannot be opened: %w", err).File(path)
	}
	d, err := OpenFS(root.FS(), path)
	if err != nil {
		root.Close()
		return nil, err
	}
	d.close = root.Close
	return d, nil
}

// OpenFS opens the directory that fsys is. Its files must be io.ReaderAt. The
// path is what messages call it.
func OpenFS(fsys fs.FS, path string) (*Directory, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fault.New(fault.Resource, "cannot be listed: %w", err).File(path)
	}
	d := &Directory{Path: path, fsys: fsys, close: func() error { return nil }}
	listing := newListing(entries)
	if d.Metadata, err = d.readMetadata(listing); err != nil {
		return nil, fault.Within(err, path, "")
	}
	d.files = newPool(mostFiles, func(i int32) (file, error) {
		return openFile(fsys, d.Metadata.Files[i], d.sizes[i])
	})
	d.spools = newPool(mostSpools, d.openSpool)
	d.blobs = newPool(mostBlobs, d.openBlob)
	d.items = newPool(mostItems, d.openItem)
	d.scan(listing)
	d.root = d.build()
	d.Faults = d.Metadata.Faults
	for i, f := range d.Faults {
		d.Faults[i] = f.File(path)
	}
	d.Notes = d.Metadata.Notes
	return d, nil
}

// Close releases the files. Items cannot be read afterwards.
func (d *Directory) Close() error {
	d.items.Close()
	d.blobs.Close()
	d.spools.Close()
	d.files.Close()
	return d.close()
}

// Root is the tree that was saved: dicts and lists as planner_data describes
// them, tensors as *tensor.Tensor whose chunks are opened when they are first
// read, and everything else as *tree.Lazy. The caller must not change it.
func (d *Directory) Root() pickle.Value { return d.root }

// place is the path of a file as messages name it.
func (d *Directory) place(file int32) string {
	name := d.Metadata.Files[file]
	if !fs.ValidPath(name) { // it leads out of the directory: the message has it
		return d.Path
	}
	return filepath.Join(d.Path, filepath.FromSlash(name))
}

// readMetadata reads .metadata, or, where a save without collectives left one
// file per rank, their union.
func (d *Directory) readMetadata(l *listing) (*Metadata, error) {
	if l.names[metadataName] {
		m, err := d.readFile(metadataName)
		if err == nil {
			m.check()
		}
		return m, err
	}
	if len(l.rankLocal) == 0 {
		return nil, l.explain(d.fsys)
	}
	u := newUnion()
	for _, rank := range l.rankLocal {
		m, err := d.readFile(rankMetadataName(rank))
		if err != nil {
			return nil, err
		}
		if err := u.add(m); err != nil {
			return nil, fault.Within(err, d.file(rankMetadataName(rank)), "")
		}
	}
	return u.finish(l.rankLocal), nil
}

// file is the path of a name in the directory as messages have it.
func (d *Directory) file(name string) string { return filepath.Join(d.Path, name) }

// mostMetadata is the largest metadata file that is read, in bytes: three times
// what ten million items take.
const mostMetadata = 1<<31 - 1

// readFile reads one metadata file.
func (d *Directory) readFile(name string) (*Metadata, error) {
	m, err := func() (*Metadata, error) {
		info, err := stat(d.fsys, name)
		if err != nil {
			return nil, err
		}
		size := info.Size()
		if size > mostMetadata {
			return nil, fault.New(fault.Resource, "the file has %d bytes, and at most %d are read", size, int64(mostMetadata))
		}
		f, err := openFile(d.fsys, name, size)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		data := make([]byte, size)
		if n, err := f.ReadAt(data, 0); n < len(data) {
			return nil, fault.New(fault.Resource, "reading failed after %d of %d bytes: %w", n, size, noEOF(err))
		}
		return assemble(data)
	}()
	return m, fault.Within(err, d.file(name), "")
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
