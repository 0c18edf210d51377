package tarball

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
)

// Limits bounds one copy. The zero value is 64 GiB in a million entries.
type Limits struct {
	Bytes   int64 // of data; a hole counts nothing
	Entries int   // files, directories and all else
}

// maxSizes bounds the sizes of all files of a copy, holes included: a program that does not know holes reads as much.
const maxSizes = 1 << 44

// Errors of a copy, besides those of the file system.
var (
	ErrTooLarge = errors.New("too large")
	ErrBadName  = errors.New("name leads outside")
)

// A LimitError is an [ErrTooLarge] that names the limit.
type LimitError struct {
	Limit int64
	Of    string // what is limited, one of the words below
}

// What is limited.
const (
	OfBytes   = "bytes"
	OfEntries = "files and directories"
	ofSizes   = "bytes, holes included"
)

func (e *LimitError) Error() string { return fmt.Sprintf("too large: more than %d %s", e.Limit, e.Of) }
func (e *LimitError) Unwrap() error { return ErrTooLarge }

// budget is what is left of [Limits] during a copy.
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

// file counts a file's data and its size with holes.
func (b *budget) file(data, size int64) error {
	if b.bytes -= data; b.bytes < 0 {
		return &LimitError{b.limits.Bytes, OfBytes}
	}
	if b.sizes -= size; b.sizes < 0 {
		return &LimitError{maxSizes, ofSizes}
	}
	return nil
}

// Report says what a copy did.
type Report struct {
	Files   int
	Bytes   int64     // of data
	Left    []LeftOut // what was not copied; the first 100
	LeftAll int       // how many there were
}

// LeftOut is something that was not copied.
type LeftOut struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // such as "a named pipe"
}

// maxLeft bounds [Report.Left].
const maxLeft = 100

func (r *Report) leave(name, kind string) {
	if r.LeftAll++; len(r.Left) < maxLeft {
		r.Left = append(r.Left, LeftOut{name, kind})
	}
}

// Kinds of what is not copied.
const (
	aLink   = "a link"
	aPipe   = "a named pipe"
	aSocket = "a socket"
	aDevice = "a device"
	special = "a special file"
)

// kindRecord is the PAX record that says what the entry of a special file stands for: tar has no type for sockets.
const kindRecord = "DEMESNE.kind"

// leftKind returns the kind of an entry that is not copied. The stream may be hostile: only the words above are returned.
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

// A SpecialError says that what was to be copied is neither file nor directory.
type SpecialError struct{ Kind string }

func (e *SpecialError) Error() string {
	return "is " + e.Kind + ": only files and directories are copied"
}
