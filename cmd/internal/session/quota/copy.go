package quota

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"demesne/runner/tarball"
)

// Variables that bound one copy into a sandbox, out of it, or between sandboxes.
const (
	VarCopyBytes = "DEMESNE_MAX_COPY_BYTES"
	VarCopyFiles = "DEMESNE_MAX_COPY_FILES"
)

// Copy returns the limits of one copy; a zero field means tarball's default.
func Copy(env func(string) string) (l tarball.Limits, err error) {
	if l.Bytes, err = size(env, VarCopyBytes); err == nil && env(VarCopyFiles) != "" {
		l.Entries, err = number(env, VarCopyFiles, 0)
	}
	return l, err
}

// size parses a size with an optional suffix k, m, g or t (512m, 2g). It returns 0 if the variable is not set.
func size(env func(string) string, variable string) (int64, error) {
	v := strings.ToLower(env(variable))
	if v == "" {
		return 0, nil
	}
	unit := int64(1)
	if i := strings.IndexByte("kmgt", v[len(v)-1]); i >= 0 {
		unit, v = 1<<(10*(i+1)), v[:len(v)-1]
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 1 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%s %q: not a size such as 512m or 2g", variable, env(variable))
	}
	return n * unit, nil
}

// CopyHint returns a hint that names the variable for the limit that a copy exceeded, or "".
func CopyHint(err error) string {
	var e *tarball.LimitError
	switch {
	case !errors.As(err, &e):
		return ""
	case e.Of == tarball.OfBytes:
		return "$" + VarCopyBytes + " sets the maximum of bytes in one copy"
	case e.Of == tarball.OfEntries:
		return "$" + VarCopyFiles + " sets the maximum of files and directories in one copy"
	}
	return ""
}
