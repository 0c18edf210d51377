// Package age removes young versions from what package registries say about themselves.
//
// Each function takes the metadata of one package in the format of its registry, and returns it without the versions that are
// younger than the bound, with the time of each version. Bytes about the versions that remain, such as checksums and
// signatures, are copied as they are. A version without a time counts as young. Metadata that cannot be parsed is an error, and
// never passes.
//
//	npm.go    packuments of npm
//	pypi.go   pages of Python's simple API, in JSON; HTML is written for clients that want it
//	others.go Go's module proxy, and the sparse index of crates
//
// The times are the registry's, except Go's: the module proxy has only the time of the commit, which its author sets.
package age

import (
	"errors"
	"fmt"
	"time"
)

// Most bounds the metadata of one package, in bytes.
const Most = 50 << 20

// Times has the time of publication of each version or file of a package. A zero time is unknown.
type Times map[string]time.Time

// Bound is an age that versions must have.
type Bound struct {
	Least time.Duration
	Now   time.Time
}

// Young reports whether a version of that time is too young. Unknown times, and times in the future, are.
func (b Bound) Young(t time.Time) bool { return t.IsZero() || b.Now.Sub(t) < b.Least }

// Says describes the age of a version for a person.
func (b Bound) Says(t time.Time) string {
	if t.IsZero() {
		return "its time of publication is unknown"
	}
	age := b.Now.Sub(t).Round(time.Minute)
	if age >= 48*time.Hour {
		return fmt.Sprintf("it is %d days old", int(age.Hours()/24))
	}
	return fmt.Sprintf("it is %v old", age)
}

// errNone reports that a package has no version that is old enough.
var errNone = errors.New("every version is too young")

// IsNone reports whether err means that no version is old enough.
func IsNone(err error) bool { return errors.Is(err, errNone) }

// parseTime parses a time as registries write it, or returns the zero time.
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
