package debian

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// pack is a package of the index.
type pack struct {
	name, path string
	file
	needs    [][]string // alternatives of each dependency
	required bool       // by its priority
}

// index is the part of an index of packages that a minimal system is chosen from.
type index struct {
	byName    map[string]*pack
	provided  map[string][]string // packages that provide a name
	essential []string
}

// readIndex parses the text of an index.
func readIndex(text string) (*index, error) {
	x := &index{byName: map[string]*pack{}, provided: map[string][]string{}}
	for _, f := range paragraphs(text) {
		size, err := strconv.ParseInt(f["Size"], 10, 64)
		p := &pack{name: f["Package"], path: path.Clean("/" + f["Filename"]), file: file{f["SHA256"], size}}
		if err != nil || p.name == "" || len(p.sum) != 64 || size > maxDeb && f["Essential"] == "yes" {
			return nil, fmt.Errorf("package %q: incomplete entry in the index", p.name)
		}
		p.needs = append(dependencies(f["Pre-Depends"]), dependencies(f["Depends"])...)
		for _, names := range dependencies(f["Provides"]) {
			x.provided[names[0]] = append(x.provided[names[0]], p.name)
		}
		p.required = f["Priority"] == "required"
		if f["Essential"] == "yes" {
			x.essential = append(x.essential, p.name)
		}
		x.byName[p.name] = p
	}
	return x, nil
}

// dependencies parses a field such as "a (>= 1) | b:any, c". Versions are not compared: a release is consistent.
func dependencies(field string) (all [][]string) {
	for one := range strings.SplitSeq(field, ",") {
		var names []string
		for alternative := range strings.SplitSeq(one, "|") {
			name, _, _ := strings.Cut(strings.TrimSpace(alternative), " ")
			name, _, _ = strings.Cut(name, ":")
			if name != "" {
				names = append(names, name)
			}
		}
		if names != nil {
			all = append(all, names)
		}
	}
	return all
}

// choose returns the essential packages, the named ones, and all that these depend on, sorted by name.
func (x *index) choose(more ...string) ([]*pack, error) {
	chosen := map[string]*pack{}
	queue := append(slices.Clone(x.essential), more...)
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		if chosen[name] != nil {
			continue
		}
		p := x.byName[name]
		if p == nil {
			return nil, fmt.Errorf("the mirror has no package %q", name)
		}
		chosen[name] = p
		for _, names := range p.needs {
			one, ok := x.satisfy(names, chosen)
			if !ok {
				return nil, fmt.Errorf("package %q: nothing satisfies %q", name, strings.Join(names, " | "))
			}
			queue = append(queue, one)
		}
	}
	var all []*pack
	for _, p := range chosen {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *pack) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// satisfy returns a package for a dependency: one that is chosen already, one of the priority "required", or the first that
// exists.
func (x *index) satisfy(names []string, chosen map[string]*pack) (string, bool) {
	var all []string
	for _, name := range names {
		all = append(append(all, name), x.provided[name]...)
	}
	for _, fits := range []func(name string) bool{
		func(name string) bool { return chosen[name] != nil },
		func(name string) bool { return x.byName[name] != nil && x.byName[name].required },
		func(name string) bool { return x.byName[name] != nil },
	} {
		if i := slices.IndexFunc(all, fits); i >= 0 {
			return all[i], true
		}
	}
	return "", false
}
