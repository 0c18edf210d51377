package tarball

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
)

// Limits bounds one copy. The zero value allows 64 GiB in 1<<20 entries.
type Limits struct {
	Bytes   int64 // of data, in bytes; holes do not count
	Entries int   // files, directories and all others

	Meter *Meter // counts what the copy has moved so far; may be nil
}

// maxSizes bounds the total file size of a copy in bytes, including holes. A program that ignores holes reads that
// much.
const maxSizes = 1 << 44

// Errors of a copy, in addition to the file system's errors.
var (
	errTooLarge = errors.New("too large")
	errBadName  = errors.New("name leads out of the directory")
)

// A LimitError is an errTooLarge that names the limit.
type LimitError struct {
	Limit int64
	Of    string // the limited quantity, one of the constants below
}

// Limited quantities.
const (
	OfBytes   = "bytes"
	OfEntries = "files and directories"
	ofSizes   = "bytes, holes included"
)

func (e *LimitError) Error() string { return fmt.Sprintf("too large: more than %d %s", e.Limit, e.Of) }
func (e *LimitError) Unwrap() error { return errTooLarge }

// budget holds the remainder of [Limits] during a copy.
type budget struct {
	limits       Limits
	bytes, sizes int64
	entries      int
}

func (l Limits) budget() budget {
	if l.Bytes <= 0 {
		l.Bytes = 64 << 30
	}
	if l.Entries <= 0 {
		l.Entries = 1 << 20
	}
	return budget{limits: l, bytes: l.Bytes, sizes: maxSizes, entries: l.Entries}
}

// entry counts one entry.
func (b *budget) entry() error {
	if b.entries--; b.entries < 0 {
		return &LimitError{int64(b.limits.Entries), OfEntries}
	}
	return nil
}

// file counts a file's data and its size including holes.
func (b *budget) file(data, size int64) error {
	if b.bytes -= data; b.bytes < 0 {
		return &LimitError{b.limits.Bytes, OfBytes}
	}
	if b.sizes -= size; b.sizes < 0 {
		return &LimitError{maxSizes, ofSizes}
	}
	return nil
}

// Report describes the result of a copy.
type Report struct {
	Files   int
	Bytes   int64     // of data
	Left    []LeftOut // the first 100 entries that were skipped
	LeftAll int       // number of skipped entries
}

// LeftOut is an entry that was not copied.
type LeftOut struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // for example "a named pipe"
}

// maxLeft bounds [Report.Left].
const maxLeft = 100

func (r *Report) leave(name, kind string) {
	if r.LeftAll++; len(r.Left) < maxLeft {
		r.Left = append(r.Left, LeftOut{name, kind})
	}
}

// Kinds of entries that are not copied.
const (
	aLink   = "a link"
	aPipe   = "a named pipe"
	aSocket = "a socket"
	aDevice = "a device"
	special = "a special file"
)

// kindRecord is the PAX record for the kind of a special file, because tar has no type for sockets.
const kindRecord = "DEMESNE.kind"

// leftKind returns the kind of an entry that is not copied. The stream may be hostile, so only the constants above
// are returned.
func leftKind(h *tar.Header) string {
	switch k := h.PAXRecords[kindRecord]; k {
	case aPipe, aSocket, aDevice:
		return k
	}
	switch h.Typeflag {
	case tar.TypeSymlink, tar.TypeLink:
		return aLink
	case tar.TypeFifo:
		return aPipe
	case tar.TypeChar, tar.TypeBlock:
		return aDevice
	}
	return special
}

func specialKind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return aPipe
	case mode&fs.ModeSocket != 0:
		return aSocket
	case mode&fs.ModeDevice != 0:
		return aDevice
	}
	return special
}

// A SpecialError is the error for copying something that is neither a file nor a directory.
type SpecialError struct{ Kind string }

func (e *SpecialError) Error() string {
	return "is " + e.Kind + ": only files and directories are copied"
}
