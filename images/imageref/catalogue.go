package imageref

import (
	"slices"
	"strings"

	"demesne/images/recipes"
)

// hostName names the host's own /usr, which is not an image.
const hostName = "host"

// catalogue lists the short names for images, in the order of the help text. It is the only such
// table.
var catalogue = []struct{ name, full string }{
	{hostName, ""},
	{"node", "docker.io/library/node:22"},
	{"python", "docker.io/library/python:3.12"},
	{"go", "docker.io/library/golang:1"},
	{"anaconda", "docker.io/continuumio/anaconda3:latest"},
	{"debian", "docker.io/library/debian:latest"},
	{"ubuntu", "docker.io/library/ubuntu:latest"},
	{"alpine", "docker.io/library/alpine:latest"},
}

// Catalogue returns the catalogue names, in display order, and then the names of images that demesne builds.
func Catalogue() []string {
	var names []string
	for _, c := range catalogue {
		names = append(names, c.name)
	}
	for _, r := range recipes.All() {
		if r.Word {
			names = append(names, r.Name)
		} else {
			names = append(names, recipes.Namespace+r.Name)
		}
	}
	return names
}

// inCatalogue returns the full reference of a catalogue name.
func inCatalogue(name string) (full string, ok bool) {
	for _, c := range catalogue {
		if c.name == name {
			return c.full, true
		}
	}
	return "", false
}

// Default returns the image to use if a caller names none: $DEMESNE_DEFAULT_IMAGE, else "host".
func Default(getenv func(string) string) string {
	if name := getenv("DEMESNE_DEFAULT_IMAGE"); name != "" {
		return name
	}
	return hostName
}

// Allowed reports whether a caller other than the operator may use ref, and the reason. Catalogue
// names are always allowed. Another registry reference is allowed if the operator's list covers it.
// A list entry is a reference, or a prefix of repositories such as "ghcr.io/org/*". A prefix without a
// registry, such as "local/*", and a single word cover images in the store: see [Permitted]. Local files
// and directories are never allowed.
func (ref Ref) Allowed(list []string) (ok bool, reason string) {
	if _, ok := inCatalogue(ref.Given); ok || ref.Kind == Recipe {
		return true, "it is in the catalogue"
	}
	if ref.Kind != Registry && ref.Kind != Bare {
		return false, "only catalogue names and references to a registry may be used here"
	}
	if slices.ContainsFunc(list, func(entry string) bool { return ref.listed(entry) }) {
		return true, "it is in the operator's list"
	}
	return false, "it is neither in the catalogue nor in the operator's list"
}

// Permitted reports whether a caller other than the operator may use the image of that name. stored means
// that only an entry without a registry covers it: the image must then come from the store, because an
// attacker may have registered its name at the default registry.
func Permitted(name string, list []string) (ok, stored bool) {
	ref, err := Parse(name)
	if err != nil {
		return false, false
	}
	if ok, _ = ref.Allowed(list); !ok {
		return false, false
	}
	pulled, _ := ref.Allowed(slices.DeleteFunc(slices.Clone(list), local))
	return true, !pulled
}

// Entries returns the valid entries of an operator's list.
func Entries(list []string) (valid []string) {
	for _, entry := range list {
		e, err := Parse(entry)
		prefix, many := strings.CutSuffix(entry, "/*")
		if many && (repositoryPrefix(prefix) || local(entry)) || !many && err == nil && (e.Kind == Registry || e.Kind == Bare) {
			valid = append(valid, entry)
		}
	}
	return valid
}

// local reports whether an entry is a prefix of repository names without a registry.
func local(entry string) bool {
	prefix, many := strings.CutSuffix(entry, "/*")
	first, _, _ := strings.Cut(prefix, "/")
	return many && !domainLike(first) && badPath(prefix) == ""
}

// listed reports whether an entry of the operator's list covers ref. An entry that cannot be parsed
// covers nothing. An entry without a tag or digest covers only :latest.
func (ref Ref) listed(entry string) bool {
	if prefix, ok := strings.CutSuffix(entry, "/*"); ok {
		if local(entry) {
			prefix = defaultDomain + "/" + prefix
		}
		return repositoryPrefix(prefix) && strings.HasPrefix(ref.Full, prefix+"/")
	}
	e, err := Parse(entry)
	return err == nil && e.Kind == ref.Kind && e.Full == ref.Full
}

// repositoryPrefix reports whether s is a registry, with or without a path: "ghcr.io",
// "ghcr.io/org".
func repositoryPrefix(s string) bool {
	domain, path, more := strings.Cut(s, "/")
	return isDomain(domain) && domainLike(domain) && (!more || badPath(path) == "")
}
