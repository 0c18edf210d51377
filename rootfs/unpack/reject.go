package unpack

import (
	"errors"
	"fmt"
)

// A Reason says why a layer is refused: the whole layer, of which nothing stays.
type Reason string

// What a caller may have something to say about.
const (
	TooMany   Reason = "it has too many entries"
	TooBig    Reason = "it is too big"
	TooDense  Reason = "it unpacks to far more than its size"
	BadMedia  Reason = "its media type is none of a layer"
	BadTar    Reason = "it is no proper archive"
	BadDiffID Reason = "its contents are not what the image's config says"
)

// The rest of what is refused. What is changed instead is in the package comment.
const (
	tooDeep     Reason = "a path has too many components"
	tooLong     Reason = "a name is too long"
	badName     Reason = "a name has a NUL in it"
	climbs      Reason = "a name leads out of the root"
	badWhiteout Reason = "a whiteout stands for no file"
	badType     Reason = "it has an entry of unknown type"
	badRoot     Reason = "it makes the root something other than a directory"
	badXattr    Reason = "an extended attribute is too big"
	badEntry    Reason = "an entry cannot be made"
)

// A RefusedError says why a layer is refused, and at which entry.
type RefusedError struct {
	Reason Reason
	Entry  string // as the archive names it; "" if it is about no single one
	Err    error  // what the file system or the archive's format said, or nil
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

// ErrCorrupt says that a blob in the store is not what its digest says: it has to be pulled again.
var ErrCorrupt = errors.New("blob does not match its digest")
