package imageref

import (
	"slices"
	"strings"
)

// hostName is the image that is no image: the host's own /usr.
const hostName = "host"

// catalogue is every name that stands for an image without being a reference, in the order that
// help shows them. Nowhere else is one of these names mapped to anything.
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

// Catalogue returns the names that need no registry's name, in the order to show them.
func Catalogue() []string {
	names := make([]string, len(catalogue))
	for i, c := range catalogue {
		names[i] = c.name
	}
	return names
}

// inCatalogue returns what a catalogue name stands for.
func inCatalogue(name string) (full string, ok bool) {
	for _, c := range catalogue {
		if c.name == name {
			return c.full, true
		}
	}
	return "", false
}

// Default returns the image that a caller who names none gets: $DEMESNE_DEFAULT_IMAGE, else "host".
func Default(getenv func(string) string) string {
	if name := getenv("DEMESNE_DEFAULT_IMAGE"); name != "" {
		return name
	}
	return hostName
}

// Allowed says whether a caller who is not the operator may use ref, and why not. Catalogue names
// may always be used, any other registry reference if the operator's list has it: an entry is a
// reference, or a prefix of repositories as in "ghcr.io/org/*". Files and directories of this
// machine may never be.
func Allowed(ref Ref, list []string) (ok bool, reason string) {
	if _, ok := inCatalogue(ref.Given); ok {
		return true, "it is in the catalogue"
	}
	if ref.Kind != Registry {
		return false, "only catalogue names and references to a registry may be used here"
	}
	if slices.ContainsFunc(list, func(entry string) bool { return listed(ref, entry) }) {
		return true, "it is in the operator's list"
	}
	return false, "it is neither in the catalogue nor in the operator's list"
}

// listed says whether one entry of an operator's list covers ref. An entry that cannot be parsed
// covers nothing. One without a tag or digest covers only :latest, as everywhere else.
func listed(ref Ref, entry string) bool {
	if prefix, ok := strings.CutSuffix(entry, "/*"); ok {
		return repositoryPrefix(prefix) && strings.HasPrefix(ref.Full, prefix+"/")
	}
	e, err := Parse(entry)
	return err == nil && e.Kind == Registry && e.Full == ref.Full
}

// repositoryPrefix says whether s names a registry, and perhaps more: "ghcr.io", "ghcr.io/org".
func repositoryPrefix(s string) bool {
	domain, path, more := strings.Cut(s, "/")
	return isDomain(domain) && domainLike(domain) && (!more || badPath(path) == "")
}
