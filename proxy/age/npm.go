package age

import (
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/mod/semver"
)

// NPM filters a packument in its full form; the abbreviated one has no times.
func NPM(body []byte, b Bound) (out []byte, times Times, err error) {
	var doc map[string]json.RawMessage
	var written map[string]json.RawMessage
	var versions map[string]json.RawMessage
	tags := map[string]string{}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, nil, fmt.Errorf("read packument: %w", err)
	}
	if doc["time"] == nil || doc["versions"] == nil {
		return nil, nil, errors.New("read packument: no times or no versions")
	}
	err = errors.Join(json.Unmarshal(doc["time"], &written), json.Unmarshal(doc["versions"], &versions))
	if tag := doc["dist-tags"]; tag != nil {
		err = errors.Join(err, json.Unmarshal(tag, &tags))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read packument: %w", err)
	}
	times = Times{}
	for v := range versions {
		var text string
		json.Unmarshal(written[v], &text) // another type is no time
		times[v] = parseTime(text)
	}
	for v := range written { // also versions that were unpublished have times
		if _, has := versions[v]; !has && v != "created" && v != "modified" {
			delete(written, v)
		}
	}
	for v, at := range times {
		if b.Young(at) {
			delete(versions, v)
			delete(written, v)
		}
	}
	if len(versions) == 0 {
		return nil, times, errNone
	}
	retag(tags, versions)
	for name, v := range map[string]any{"time": written, "versions": versions, "dist-tags": tags} {
		if doc[name], err = json.Marshal(v); err != nil {
			return nil, nil, fmt.Errorf("write packument: %w", err)
		}
	}
	out, err = json.Marshal(doc)
	return out, times, err
}

// retag removes the tags of removed versions. latest then names the highest version below it that remains, a release
// if there is one.
func retag(tags map[string]string, versions map[string]json.RawMessage) {
	for tag, v := range tags {
		if _, has := versions[v]; has {
			continue
		}
		delete(tags, tag)
		if tag != "latest" {
			continue
		}
		best := ""
		for other := range versions {
			if better(other, best, v) {
				best = other
			}
		}
		tags[tag] = best
	}
}

// better reports whether a is a better latest version than b. A release is better than none, one below the bound better than
// one above.
func better(a, b, bound string) bool {
	if b == "" {
		return true
	}
	rank := func(v string) int {
		n := 0
		if semver.IsValid("v"+v) && semver.Prerelease("v"+v) == "" {
			n += 2
		}
		if semver.Compare("v"+v, "v"+bound) < 0 {
			n++
		}
		return n
	}
	if x, y := rank(a), rank(b); x != y {
		return x > y
	}
	if c := semver.Compare("v"+a, "v"+b); c != 0 {
		return c > 0
	}
	return a > b
}
