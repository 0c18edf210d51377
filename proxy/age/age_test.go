package age

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"
)

var bound = Bound{7 * 24 * time.Hour, time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)}

// FuzzNPM checks that no young version passes, and that what remains is as it was.
func FuzzNPM(f *testing.F) {
	f.Add([]byte(`{"time":{"1.0.0":"2026-01-01T00:00:00Z","2.0.0":"2026-06-09T00:00:00Z"},"versions":{"1.0.0":{"a" : 1},"2.0.0":{}},"dist-tags":{"latest":"2.0.0"}}`))
	f.Add([]byte(`{"time":{"1.0.0":1},"versions":{"1.0.0":null},"dist-tags":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		out, times, err := NPM(body, bound)
		if err != nil {
			return
		}
		var doc, versions map[string]json.RawMessage // not a struct, which would take names in any case
		var tags map[string]string
		if json.Unmarshal(out, &doc) != nil || json.Unmarshal(doc["versions"], &versions) != nil || len(versions) == 0 || json.Unmarshal(doc["dist-tags"], &tags) != nil {
			t.Fatalf("%s", out)
		}
		for v := range versions {
			if bound.Young(times[v]) {
				t.Errorf("young %q in %s", v, out)
			}
		}
		for tag, v := range tags {
			if versions[v] == nil {
				t.Errorf("tag %q of missing %q", tag, v)
			}
		}
	})
}

// FuzzPyPI checks the same of a project's page, in both forms.
func FuzzPyPI(f *testing.F) {
	f.Add([]byte(`{"versions":["1"],"files":[{"filename":"a-1.whl","url":"../x#y","upload-time":"2026-01-01T00:00:00.5Z","hashes":{"sha256":"a\"<"},"yanked":"why","core-metadata":{"sha256":"b"}},{"filename":"a-2.whl","url":"z"}]}`))
	at := &url.URL{Scheme: "https", Host: "index.test", Path: "/simple/a/"}
	f.Fuzz(func(t *testing.T, body []byte) {
		out, page, times, err := PyPI(body, at, bound)
		if err != nil {
			return
		}
		var doc struct {
			Files []struct {
				URL      string
				Uploaded string `json:"upload-time"`
			}
		}
		if err := json.Unmarshal(out, &doc); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, file := range doc.Files {
			if bound.Young(parseTime(file.Uploaded)) {
				t.Errorf("young %q in %s", file.URL, out)
			}
		}
		if n := strings.Count(string(page), "<a "); n != len(doc.Files) || len(times) > 0 && strings.Count(string(page), "<") != 2*n+n+5 {
			t.Errorf("%d files, and the page %s", len(doc.Files), page)
		}
	})
}

// FuzzGo checks that every version of a list is one, and that none is added.
func FuzzGo(f *testing.F) {
	f.Add([]byte("v1.0.0\nv1.2.0-pre\n"), []byte(`{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, list, info []byte) {
		versions, err := GoList(list)
		for _, v := range versions {
			if err == nil && !strings.Contains(string(list), v) {
				t.Errorf("%q is not in %q", v, list)
			}
		}
		if v, _, err := GoInfo(info); err == nil && v == "" {
			t.Errorf("no version in %s", info)
		}
	})
}

// FuzzCrates checks that no young version passes, and that lines are copied.
func FuzzCrates(f *testing.F) {
	f.Add([]byte(`{"vers":"1.0.0","pubtime":"2026-01-01T00:00:00Z"}` + "\n" + `{"vers":"2.0.0"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		out, times, err := Crates(body, bound)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(out)) {
			var v struct{ Vers, Pubtime string }
			if !strings.Contains(string(body), line) || json.Unmarshal([]byte(line), &v) != nil || bound.Young(parseTime(v.Pubtime)) {
				t.Errorf("line %q, times %v", line, times)
			}
		}
	})
}

// TestLatest checks which version becomes the latest one.
func TestLatest(t *testing.T) {
	for latest, want := range map[string]string{"2.0.0": "1.9.0", "9.0.0": "3.0.0", "0.1.0": "3.0.0", "1.9.1": "1.9.0"} {
		tags := map[string]string{"latest": latest, "next": latest}
		retag(tags, map[string]json.RawMessage{"1.9.0": nil, "1.10.0-rc.1": nil, "3.0.0": nil, "bad": nil})
		if tags["latest"] != want || len(tags) != 1 {
			t.Errorf("%s: %v, want %s", latest, tags, want)
		}
	}
}
