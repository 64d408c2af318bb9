package torchfile

import (
	"bytes"

	"gefenckpt/format/tensor"
)

// extent is what the end records say of the directory.
type extent struct {
	off, length int64
	count       uint64
}

// endSearch is how far from the end the end record is looked for: its comment may
// be 64 KiB long, and torch.load accepts padding there.
const endSearch = 1<<16 + endLen

// findDirectory reads the end records. trailing is how many bytes follow them.
func findDirectory(s tensor.Storage) (x extent, trailing int64, err error) {
	end, at, err := findEnd(s)
	if err != nil {
		return extent{}, 0, err
	}
	if le.Uint32(end[4:]) != 0 || le.Uint16(end[8:]) != le.Uint16(end[10:]) {
		return extent{}, 0, corrupt(at, "the zip archive is one part of several")
	}
	x = extent{off: int64(le.Uint32(end[16:])), length: int64(le.Uint32(end[12:])), count: uint64(le.Uint16(end[10:]))}
	stop := at
	if at >= locatorLen {
		locator, err := readFull(s, at-locatorLen, locatorLen)
		if err != nil {
			return extent{}, 0, err
		}
		if le.Uint32(locator) == locatorSig {
			if x, stop, err = readEnd64(s, x, locator, at-locatorLen); err != nil {
				return extent{}, 0, err
			}
		}
	}
	if x.off < 0 || x.length < 0 || x.off > stop || x.length != stop-x.off {
		return extent{}, 0, corrupt(at, "the zip directory is said to be %d bytes at %d, and its end stands at %d", x.length, x.off, stop).
			WithHint("offsets count from the start of the archive: bytes were lost or added before its end")
	}
	trailing = s.Size() - at - endLen - int64(le.Uint16(end[20:]))
	return x, trailing, nil
}

// findEnd finds the end record: the last one that ends exactly at the end, else
// the last one at all.
func findEnd(s tensor.Storage) (end []byte, at int64, err error) {
	if at = s.Size() - endLen; at >= 0 { // without a comment, as torch writes it
		if end, err = readFull(s, at, endLen); err != nil {
			return nil, 0, err
		}
		if le.Uint32(end) == endSig && le.Uint16(end[20:]) == 0 {
			return end, at, nil
		}
	}
	n := min(s.Size(), endSearch)
	tail, err := readFull(s, s.Size()-n, n)
	if err != nil {
		return nil, 0, err
	}
	best := -1
	for stop := len(tail); ; {
		i := bytes.LastIndex(tail[:stop], []byte("PK\x05\x06"))
		if i < 0 {
			break
		}
		if i+endLen <= len(tail) {
			rest := len(tail) - i - endLen - int(le.Uint16(tail[i+20:]))
			if rest == 0 {
				best = i
				break
			}
			if best < 0 && rest > 0 {
				best = i
			}
		}
		stop = i
	}
	if best < 0 {
		return nil, 0, corrupt(s.Size(), "no zip end record in the last %d of %d bytes: the archive is cut short, or is none", n, s.Size()).
			WithHint("copy the file again from where it was written")
	}
	return tail[best : best+endLen], s.Size() - n + int64(best), nil
}

// readEnd64 reads the zip64 end record that a locator points to, and where it
// begins. Values of the end record that fit there must be the same.
func readEnd64(s tensor.Storage, small extent, locator []byte, locatorAt int64) (extent, int64, error) {
	at := int64(le.Uint64(locator[8:]))
	if at < 0 || at > locatorAt-end64Len {
		return extent{}, 0, corrupt(locatorAt, "the zip64 end record is said to be at %d, before %d", at, locatorAt-end64Len)
	}
	b, err := readFull(s, at, end64Len)
	if err != nil {
		return extent{}, 0, err
	}
	x := extent{off: int64(le.Uint64(b[48:])), length: int64(le.Uint64(b[40:])), count: le.Uint64(b[32:])}
	switch {
	case le.Uint32(b) != end64Sig || le.Uint64(b[4:]) != uint64(locatorAt-at-12):
		return extent{}, 0, corrupt(at, "no zip64 end record where its locator points")
	case le.Uint64(b[16:]) != 0 || le.Uint64(b[24:]) != x.count:
		return extent{}, 0, corrupt(at, "the zip archive is one part of several")
	case small.off != max32 && small.off != x.off || small.length != max32 && small.length != x.length || small.count != max16 && small.count != x.count:
		return extent{}, 0, corrupt(at, "the zip end records disagree: directory of %d members, %d bytes at %d, or of %d members, %d bytes at %d",
			x.count, x.length, x.off, small.count, small.length, small.off)
	}
	return x, at, nil
}
