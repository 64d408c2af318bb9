package dcp

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"

	"gefenckpt/internal/fault"
)

// scan holds the metadata against the files: each file that it names is there
// and long enough, and no two items share bytes. It also finds the files that
// nothing names.
func (d *Directory) scan(l *listing) {
	d.measure()
	d.checkRanges()
	d.findUnread(l)
}

// measure looks up the size of every file.
func (d *Directory) measure() {
	m := d.Metadata
	d.sizes = make([]int64, len(m.Files))
	for i, name := range m.Files {
		info, err := stat(d.fsys, name)
		if err != nil {
			d.sizes[i] = -1
			f := fault.Of(err)
			if f.Kind == fault.Incomplete {
				f = f.In(fmt.Sprintf("%d items", d.itemsIn(int32(i))))
			}
			m.addFault(f.File(d.place(int32(i))))
			continue
		}
		d.sizes[i] = info.Size()
	}
}

// itemsIn counts the chunks that lie in a file.
func (d *Directory) itemsIn(file int32) int {
	n := 0
	for i := range d.Metadata.Items {
		for _, c := range d.Metadata.Items[i].Chunks {
			if c.Place.File == file {
				n++
			}
		}
	}
	return n
}

// itemID names a chunk: both are indices into their lists.
type itemID struct{ item, chunk int32 }

// extent is the range of bytes that a chunk claims of its file.
type extent struct {
	start, end int64
	file       int32
	itemID
}

// checkRanges checks where items lie, each against its file and against the
// others in it.
func (d *Directory) checkRanges() {
	m := d.Metadata
	var extents []extent
	need := make([]extent, len(m.Files)) // what reaches farthest in each file
	for i := range m.Items {
		item := &m.Items[i]
		for c := range item.Chunks {
			place := &item.Chunks[c].Place
			if place.File == noFile {
				continue
			}
			if place.Length > math.MaxInt64-place.Offset {
				m.blame(item, fault.New(fault.Corrupt, "its %d bytes at offset %d end beyond any file",
					place.Length, place.Offset).File(d.place(place.File)))
				continue
			}
			e := extent{place.Offset, place.Offset + place.Length, place.File, itemID{int32(i), int32(c)}}
			extents = append(extents, e)
			if e.end > need[e.file].end {
				need[e.file] = e
			}
		}
	}
	for i, e := range need {
		if size := d.sizes[i]; size >= 0 && size < e.end {
			m.addFault(tooShort(size, e.end).In(m.Items[e.item].FQN).File(d.place(int32(i))))
		}
	}
	slices.SortFunc(extents, func(a, b extent) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	blobs := make(map[blobID]bool)
	reach := extent{file: noFile} // the one that ends last so far
	for _, e := range extents {
		switch {
		case e.file != reach.file:
			reach = e
			continue
		case e.start >= reach.end, e.start == reach.start && d.sharesBlob(e, blobs) && d.sharesBlob(reach, blobs):
		default:
			d.blameOverlap(reach, e)
		}
		if e.end > reach.end {
			reach = e
		}
	}
}

func tooShort(size, need int64) *fault.Error {
	if size == 0 {
		return fault.New(fault.Incomplete, "the file is empty and needs %d bytes", need).
			WithHint("copy it again from where the checkpoint was saved")
	}
	return fault.New(fault.Incomplete, "the file has %d bytes and needs %d: it is cut short", size, need).
		WithHint("copy it again from where the checkpoint was saved")
}

// blobID is where a safetensors blob may begin.
type blobID struct {
	file  int32
	start int64
}

// sharesBlob says whether an item is a tensor of a safetensors blob, for which torch
// records the begin of the blob as the offset of every tensor in it. blobs has
// what is known already.
func (d *Directory) sharesBlob(e extent, blobs map[blobID]bool) bool {
	if item := &d.Metadata.Items[e.item]; !item.Tensor || item.Chunks[e.chunk].Place.transforms != 0 {
		return false
	}
	id := blobID{e.file, e.start}
	is, known := blobs[id]
	if !known {
		is = isBlob(&section{d, e.file, e.start, d.sizes[e.file] - e.start})
		blobs[id] = is
	}
	return is
}

func (d *Directory) blameOverlap(a, b extent) {
	m := d.Metadata
	other := m.Items[a.item].FQN
	m.blame(&m.Items[b.item], fault.New(fault.Corrupt, "its bytes %d to %d overlap those of %s, %d to %d",
		b.start, b.end, other, a.start, a.end).File(d.place(b.file)))
	if m.Items[a.item].Fault == nil {
		m.Items[a.item].Fault = m.Items[b.item].Fault
	}
}

// findUnread lists what was left over from other saves. An empty .distcp file is
// what torch leaves where a rank has nothing to write.
func (d *Directory) findUnread(l *listing) {
	named := make(map[string]bool, len(d.Metadata.Files))
	for _, name := range d.Metadata.Files {
		named[name] = true
	}
	for _, e := range l.entries {
		name := e.Name()
		switch {
		case named[name] || e.IsDir():
		case strings.HasSuffix(name, ".metadata.tmp"),
			l.names[metadataName] && rankMetadata.MatchString(name):
			d.Unread = append(d.Unread, name)
		case strings.HasSuffix(name, ".distcp"):
			if info, err := fs.Stat(d.fsys, name); err != nil || info.Size() > 0 {
				d.Unread = append(d.Unread, name)
			}
		}
	}
	if l.names[temporaryName] {
		d.Metadata.note("there is a .metadata.tmp: another save into this directory was cut short, and may have overwritten items")
	}
}
