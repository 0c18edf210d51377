package unpack

import (
	"errors"
	"fmt"
)

// A Reason says why a layer is refused: the whole layer, of which nothing stays.
type Reason string

// What this package refuses. What it changes instead is in the package comment.
const (
	TooMany     Reason = "it has too many entries"
	TooBig      Reason = "it is too big"
	TooDeep     Reason = "a path has too many components"
	TooLong     Reason = "a name is too long"
	BadName     Reason = "a name has a NUL in it"
	Climbs      Reason = "a name leads out of the root"
	BadWhiteout Reason = "a whiteout stands for no file"
	BadType     Reason = "it has an entry of unknown type"
	BadRoot     Reason = "it makes the root something other than a directory"
	BadXattr    Reason = "an extended attribute is too big"
	BadMedia    Reason = "its media type is none of a layer"
	BadTar      Reason = "it is no proper tar archive"
	BadEntry    Reason = "an entry cannot be made"
	BadDiffID   Reason = "its contents are not what the image's config says"
)

// A RefusedError says which layer is refused, at which entry, and why.
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
