package mcp

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
)

// given is an input as a caller wrote it: a text PATH or PATH:NAME, or an object with path and name.
type given struct {
	path, name string
	exact      bool // path is a path, also if it has a colon
}

// inputs reads an optional list of inputs. It is strict, as texts is.
func (a args) inputs(name string) (list []given, err error) {
	all, ok := a[name].([]any)
	if !ok && a[name] != nil {
		return nil, fmt.Errorf("%s must be an array of strings", name)
	}
	for i, v := range all {
		switch v := v.(type) {
		case string:
			list = append(list, given{path: v})
		case map[string]any:
			g, err := args(v).inputObject()
			if err != nil {
				return nil, fmt.Errorf("%s[%d]: %w", name, i, err)
			}
			list = append(list, g)
		default:
			return nil, fmt.Errorf("%s[%d] is not a string", name, i)
		}
	}
	return list, nil
}

// inputObject reads {"path": …, "name": …}; the name may be missing.
func (o args) inputObject() (g given, err error) {
	if g.path, err = o.required("path"); err != nil {
		return g, err
	}
	if o["name"] != nil {
		if g.name, err = o.required("name"); err == nil {
			err = runner.CheckInputName(g.name)
		}
	}
	for member := range o {
		if member != "path" && member != "name" {
			err = errors.Join(err, fmt.Errorf("unknown member %s; known: path, name", clipped(member)))
		}
	}
	g.exact = true
	return g, err
}

// named returns g with its path and name apart. A path that a caller may not ask for does not exist for it.
func (m Mounts) named(g given) (given, error) {
	if g.exact {
		return g, nil
	}
	exists := func(path string) bool { return m.plausible(path) && fsutil.Exists(path) }
	path, name, err := runner.SplitInput(m.host(g.path), exists)
	switch {
	case err != nil:
		return g, fmt.Errorf("mount path %s: %w", g.path, err)
	case name == "":
		return g, nil
	}
	return given{path: path, name: name}, nil
}

// inputs returns the files and directories of a call. Each has the name that the caller gave, or else the base name of the
// requested path. Of several with that base name, the later ones get a number: out, out-2, out-3. In that case the result
// also has a line for each input, with its name.
func (m Mounts) inputs(files, dirs []given) (in []runner.Input, lines []string, err error) {
	var list []given
	for i, g := range append(files[:len(files):len(files)], dirs...) {
		if g, err = m.named(g); err != nil {
			return nil, nil, err
		}
		real, info, err := m.resolve(g.path)
		switch {
		case err != nil:
			return nil, nil, err
		case i < len(files) && !info.Mode().IsRegular():
			return nil, nil, fmt.Errorf("%s is not a regular file", g.path)
		case i >= len(files) && info.Mode().Type() != fs.ModeDir:
			return nil, nil, fmt.Errorf("%s is not a directory", g.path)
		}
		in, list = append(in, runner.Input{Path: real, Name: g.name}), append(list, g)
	}
	numbered, err := number(in, list, len(files))
	if !numbered || err != nil {
		return in, nil, err
	}
	for i := range in {
		lines = append(lines, text.SafeLine(fmt.Sprintf("/in/%s is %s", in[i].Name, list[i].path)))
	}
	return in, lines, nil
}

// number names the inputs without a name, the first files of which are files. It reports whether a name got a number.
// A name that the caller gave precedes base names, and a base name precedes one with a number.
func number(in []runner.Input, list []given, files int) (numbered bool, err error) {
	taken := map[string]int{}
	for i := range in {
		if in[i].Name == "" {
			continue
		}
		if other, ok := taken[in[i].Name]; ok {
			return false, fmt.Errorf("mount name %q would collide: %s and %s", in[i].Name, list[other].path, list[i].path)
		}
		taken[in[i].Name] = i
	}
	var later []int
	base := func(i int) string { return filepath.Base(filepath.Clean(list[i].path)) }
	for i := range in {
		if in[i].Name != "" {
			continue
		}
		if _, ok := taken[base(i)]; ok {
			later = append(later, i)
			continue
		}
		in[i].Name, taken[base(i)] = base(i), i
	}
	next := map[string]int{}
	for _, i := range later {
		for in[i].Name == "" {
			next[base(i)]++
			name := numberedName(base(i), i < files, next[base(i)]+1)
			if _, ok := taken[name]; !ok {
				in[i].Name, taken[name] = name, i
			}
		}
	}
	return len(later) > 0, nil
}

// numberedName puts a number behind a name, before the extension of a file. The result is never longer than a name may
// be.
func numberedName(name string, file bool, n int) string {
	end := fmt.Sprintf("-%d", n)
	if ext := path.Ext(name); file && ext != name && len(ext) < runner.MostInputName/2 {
		name, end = strings.TrimSuffix(name, ext), end+ext
	}
	for len(name)+len(end) > runner.MostInputName {
		_, last := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-last]
	}
	return name + end
}
