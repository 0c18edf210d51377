package imageref

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"demesne/images/oci"
	"demesne/images/recipes"
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

// Stored reports whether images of the reference's kind are kept in the store.
func (r Ref) Stored() bool { return r.Kind != Host && r.Kind != Directory }

// Local reports whether the image is read from a local layout or archive.
func (r Ref) Local() bool { return r.Kind == OCILayout || archive(r.Kind) }

func archive(k Kind) bool { return k == OCIArchive || k == DockerArchive }

// Word returns the single word that stands for a full name. It exists for docker.io's official images
// ("library/") with the tag "latest".
func Word(full string) (word string, ok bool) {
	word, ok = strings.CutPrefix(full, defaultDomain+"/"+defaultPrefix)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(word, ":"+defaultTag)
}

// ServerOf returns the host that answers for a registry, as names have it. Docker Hub has another one than in its names.
func ServerOf(domain string) string {
	if domain == defaultDomain {
		return "index." + defaultDomain
	}
	return domain
}

// Explicit reports whether a reference names its registry itself. Others, such as "o/n", stand for Docker Hub in a pull.
func (r Ref) Explicit() bool {
	first, _, ok := strings.Cut(strings.TrimPrefix(r.Given, "docker://"), "/")
	return r.Kind == Registry && ok && domainLike(first)
}

// minPrefix is the minimum number of hex digits in an abbreviated digest.
const minPrefix = 12

// foreign are transports of containers/image that are not supported. Without this check, such a name
// would be looked up on docker.io.
var foreign = []string{"docker-daemon", "containers-storage", "sif", "tarball", "ostree", "atomic"}

// Parse parses an image reference, as given to --image:
//
//	host                       the host's /usr
//	python                     a catalogue name
//	browser, demesne/browser   an image that demesne builds; demesne/… never comes from a registry
//	ghcr.io/o/n:tag            a registry reference, by Docker's rules; a leading docker:// is ignored
//	debian:12, o/n@sha256:…    the default registry is docker.io, the default tag latest
//	oci:DIR[:TAG]              oci-archive:FILE[:TAG], docker-archive:FILE[:NAME]
//	dir:ROOTFS                 a directory
//	sha256:…, 3fa9…            an image in the store, by 12 digits or more
//	word                       an image in the store, never in a registry: a mistyped name must not
//	                           reach a registry where an attacker registered it
func Parse(s string) (Ref, error) {
	r, err := parse(s)
	if err != nil {
		return Ref{}, fmt.Errorf("parse image %q: %w", oci.Clip(s), err)
	}
	r.Given = s
	return r, nil
}

func parse(s string) (Ref, error) {
	if s == "" {
		return Ref{}, errors.New("empty")
	}
	if full, ok := inCatalogue(s); ok {
		if full == "" {
			return Ref{Kind: Host, Full: hostName}, nil
		}
		return Ref{Kind: Registry, Full: full}, nil
	}
	if r, ok := recipes.Find(s); ok && r.Word {
		return recipeRef(r, nil), nil
	}
	transport, rest, ok := strings.Cut(s, ":")
	if ok {
		if k := Kind(transport); k == OCILayout || archive(k) || k == Directory {
			return parsePath(k, rest)
		}
		for _, f := range foreign {
			if transport == f {
				return Ref{}, fmt.Errorf("transport %q is not supported", f)
			}
		}
	}
	if hex := strings.TrimPrefix(s, oci.Algorithm); len(hex) >= minPrefix && len(hex) <= 64 && oci.IsHex(hex) {
		return Ref{Kind: Pinned, Full: oci.Algorithm + hex}, nil
	}
	return parseRegistry(strings.TrimPrefix(s, "docker://"))
}

func parseRegistry(s string) (Ref, error) {
	n, err := parseNamed(s)
	if err != nil {
		return Ref{}, err
	}
	if name, ok := strings.CutPrefix(n.path, recipes.Namespace); ok && n.domain == defaultDomain {
		return n.parse(name)
	}
	kind := Registry
	if !strings.ContainsAny(s, "/:@.") {
		kind = Bare
	}
	return Ref{Kind: kind, Full: n.String()}, nil
}

func parsePath(k Kind, s string) (Ref, error) {
	path, tag := s, ""
	if k != Directory {
		path, tag, _ = strings.Cut(s, ":")
	}
	if path == "" {
		return Ref{}, errors.New("empty path")
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return Ref{}, errors.New("control character")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return Ref{}, err
	}
	r := Ref{Kind: k, Path: abs, Tag: tag, Full: string(k) + ":" + abs}
	if tag != "" {
		r.Full += ":" + tag
	}
	return r, nil
}
