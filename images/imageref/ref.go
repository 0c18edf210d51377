package imageref

import (
	"path/filepath"
	"strings"

	"demesne/images/oci"
)

// Kind is the kind of a reference.
type Kind string

// The kinds of references.
const (
	Host          Kind = "host"           // the host's own /usr; not an image
	Directory     Kind = "dir"            // a directory with a root file system; not an image
	Registry      Kind = "registry"       // an image in a registry, and in the store after a pull
	Recipe        Kind = "recipe"         // an image that demesne builds itself: see package recipes
	Bare          Kind = "bare"           // a single word outside the catalogue: an image in the store only
	Pinned        Kind = "digest"         // an image in the store, by its digest or a prefix of it
	OCILayout     Kind = "oci"            // an OCI image layout in a directory
	OCIArchive    Kind = "oci-archive"    // an OCI image layout in a tar archive
	DockerArchive Kind = "docker-archive" // an archive in the format of `docker save`
)

// A Ref is a parsed image reference. Only [Parse] makes one.
type Ref struct {
	Kind  Kind
	Given string // as typed; Parse(Given) returns the same reference
	Full  string // the name in the store: "docker.io/library/python:3.12", "…@sha256:…", "oci:/abs/dir:tag"
	Path  string // absolute path, for the kinds that are files or directories
	Tag   string // image within an OCILayout or archive; "" if it has only one
	Args  string // arguments of a Recipe, NAME=VALUE, a line each
}

func (r Ref) String() string { return r.Given }

// Digest returns the digest that a registry reference is pinned to, or "".
func (r Ref) Digest() oci.Digest {
	if r.Kind != Registry {
		return ""
	}
	_, d, _ := strings.Cut(r.Full, "@")
	return oci.Digest(d)
}

// Stored reports whether images of the reference's kind are kept in the store. The zero Ref stands for the host.
func (r Ref) Stored() bool { return r.Kind != "" && r.Kind != Host && r.Kind != Directory }

// Local reports whether the image is read from a local layout or archive.
func (r Ref) Local() bool { return r.Kind == OCILayout || archive(r.Kind) }

func archive(k Kind) bool { return k == OCIArchive || k == DockerArchive }

// Absolute returns a reference as typed, with an absolute path if it names a file or a directory.
func Absolute(given string) string {
	kind, path, found := strings.Cut(given, ":")
	full, err := filepath.Abs(path)
	if k := Kind(kind); found && err == nil && (k == Directory || (Ref{Kind: k}).Local()) {
		return kind + ":" + full
	}
	return given
}

// Explicit reports whether a reference names its registry itself. Others, such as "o/n", stand for Docker Hub in a pull.
func (r Ref) Explicit() bool {
	first, _, ok := strings.Cut(strings.TrimPrefix(r.Given, "docker://"), "/")
	return r.Kind == Registry && ok && domainLike(first)
}
