package unpack

import (
	"errors"
	"fmt"
)

// A Reason says why a layer is refused. A refused layer is removed as a whole.
type Reason string

// Reasons that a caller may want to handle.
const (
	TooMany   Reason = "it has too many entries"
	TooBig    Reason = "it is too big"
	TooDense  Reason = "it unpacks to far more than its size"
	BadMedia  Reason = "its media type is not a layer's"
	BadTar    Reason = "it is not a valid archive"
	BadDiffID Reason = "its contents are not what the image's config says"
)

// All other reasons. The package comment lists what is changed instead of refused.
const (
	tooDeep     Reason = "a path has too many components"
	tooLong     Reason = "a name is too long"
	badName     Reason = "a name contains a NUL byte"
	climbs      Reason = "a name leads out of the root"
	badWhiteout Reason = "a whiteout names no file"
	badType     Reason = "it has an entry of unknown type"
	badRoot     Reason = "it makes the root something other than a directory"
	badXattr    Reason = "an extended attribute is too big"
	badEntry    Reason = "an entry cannot be made"
)

// A RefusedError says why a layer is refused, and at which entry.
type RefusedError struct {
	Reason Reason
	Entry  string // as named in the archive; "" if no single entry is the cause
	Err    error  // error of the file system or the archive's format, or nil
}

func (e *RefusedError) Error() string {
	text := string(e.Reason)
	if e.Entry != "" {
		text += fmt.Sprintf(" (entry %.200q)", e.Entry)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *RefusedError) Unwrap() error { return e.Err }

// ErrCorrupt reports that a blob in the store does not match its digest: it must be pulled again.
var ErrCorrupt = errors.New("blob does not match its digest")
