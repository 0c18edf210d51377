package age

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// GoInfo reads the time of one version of a Go module.
func GoInfo(body []byte) (version string, at time.Time, err error) {
	var info struct{ Version, Time string }
	if err := json.Unmarshal(body, &info); err != nil {
		return "", at, fmt.Errorf("read version of module: %w", err)
	}
	if info.Version == "" {
		return "", at, errors.New("read version of module: it has no name")
	}
	return info.Version, parseTime(info.Time), nil
}

// GoList returns the versions of a module, the highest first: releases, then pre-releases.
func GoList(body []byte) (versions []string, err error) {
	for v := range strings.FieldsSeq(string(body)) {
		if !semver.IsValid(v) {
			return nil, fmt.Errorf("read versions of module: %.80q is not one", v)
		}
		versions = append(versions, v)
	}
	slices.SortFunc(versions, func(a, b string) int {
		if x, y := semver.Prerelease(a) != "", semver.Prerelease(b) != ""; x != y {
			if x {
				return 1
			}
			return -1
		}
		return semver.Compare(b, a)
	})
	return versions, nil
}

// Crates filters a file of the sparse index: one line of JSON a version.
func Crates(body []byte, b Bound) (out []byte, times Times, err error) {
	times = Times{}
	kept := 0
	for line := range bytes.Lines(body) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var v struct {
			Version   string `json:"vers"`
			Published string `json:"pubtime"`
		}
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, nil, fmt.Errorf("read index of crate: %w", err)
		}
		if v.Version == "" {
			return nil, nil, errors.New("read index of crate: a line without a version")
		}
		at := parseTime(v.Published)
		times[v.Version] = at
		if b.Young(at) {
			continue
		}
		kept++
		out = append(out, line...)
	}
	if kept == 0 && len(times) > 0 {
		return nil, times, errNone
	}
	return out, times, nil
}
