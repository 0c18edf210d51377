package age

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"strings"
)

// JSONType is the content type of the simple API's JSON, whose files have times. HTML has none.
const JSONType = "application/vnd.pypi.simple.v1+json"

// file is what this package reads of a file of a project.
type file struct {
	Filename       string            `json:"filename"`
	URL            string            `json:"url"`
	Hashes         map[string]string `json:"hashes"`
	RequiresPython string            `json:"requires-python"`
	Yanked         json.RawMessage   `json:"yanked"`
	Metadata       json.RawMessage   `json:"core-metadata"`
	Uploaded       string            `json:"upload-time"`
}

// PyPI filters the page of a project. The keys of times are the files' addresses, resolved by the page's. page is what
// remains, as HTML.
func PyPI(body []byte, at *url.URL, b Bound) (out, page []byte, times Times, err error) {
	var doc map[string]json.RawMessage
	var raw []json.RawMessage
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, nil, nil, fmt.Errorf("read project: %w", err)
	}
	if doc["files"] == nil {
		return nil, nil, nil, errors.New("read project: no files")
	}
	if err := json.Unmarshal(doc["files"], &raw); err != nil {
		return nil, nil, nil, fmt.Errorf("read project: %w", err)
	}
	times = Times{}
	kept, names := []json.RawMessage{}, []string{}
	var links strings.Builder
	for _, one := range raw {
		var f file
		if err := json.Unmarshal(one, &f); err != nil {
			return nil, nil, nil, fmt.Errorf("read file of project: %w", err)
		}
		to, err := at.Parse(f.URL)
		if err != nil || f.Filename == "" {
			return nil, nil, nil, errors.New("read file of project: no address")
		}
		to.Fragment = ""
		uploaded := parseTime(f.Uploaded)
		times[to.String()] = uploaded
		if b.Young(uploaded) {
			continue
		}
		kept, names = append(kept, one), append(names, f.Filename)
		f.link(&links)
	}
	if len(kept) == 0 && len(raw) > 0 {
		return nil, nil, times, errNone
	}
	if doc["files"], err = json.Marshal(kept); err != nil {
		return nil, nil, nil, err
	}
	if err := filterVersions(doc, names); err != nil {
		return nil, nil, nil, err
	}
	out, err = json.Marshal(doc)
	return out, []byte("<!DOCTYPE html>\n<html><body>\n" + links.String() + "</body></html>\n"), times, err
}

// filterVersions removes the versions from a project that no file has.
func filterVersions(doc map[string]json.RawMessage, names []string) (err error) {
	if doc["versions"] == nil {
		return nil
	}
	var all, left []string
	if err := json.Unmarshal(doc["versions"], &all); err != nil {
		return fmt.Errorf("read versions of project: %w", err)
	}
	text := strings.ToLower(strings.Join(names, "\n")) + "\n"
	for _, v := range all {
		low := "-" + strings.ToLower(v)
		for _, end := range []string{"-", ".tar", ".zip", ".egg", ".tgz"} {
			if strings.Contains(text, low+end) || strings.Contains(text, strings.ReplaceAll(low, "+", "_")+end) {
				left = append(left, v)
				break
			}
		}
	}
	doc["versions"], err = json.Marshal(append([]string{}, left...))
	return err
}

// link writes the link of a file, as the simple API's HTML has it.
func (f *file) link(to *strings.Builder) {
	href := f.URL
	for _, algorithm := range []string{"sha256", "sha512", "sha384", "md5"} {
		if sum := f.Hashes[algorithm]; sum != "" {
			href += "#" + algorithm + "=" + sum
			break
		}
	}
	to.WriteString(`<a href="` + html.EscapeString(href) + `"`)
	if f.RequiresPython != "" {
		to.WriteString(` data-requires-python="` + html.EscapeString(f.RequiresPython) + `"`)
	}
	var yanked string
	if s := string(f.Yanked); s != "" && s != "false" && s != "null" {
		json.Unmarshal(f.Yanked, &yanked)
		to.WriteString(` data-yanked="` + html.EscapeString(yanked) + `"`)
	}
	var sums map[string]string
	if json.Unmarshal(f.Metadata, &sums) == nil && sums["sha256"] != "" {
		to.WriteString(` data-core-metadata="sha256=` + html.EscapeString(sums["sha256"]) + `"`)
	}
	to.WriteString(">" + html.EscapeString(f.Filename) + "</a><br>\n")
}
