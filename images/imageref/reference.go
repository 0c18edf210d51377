package imageref

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"demesne/images/oci"
)

// Kind says where a reference points.
type Kind string

// The kinds of references.
const (
	Host          Kind = "host"           // the host's own /usr; no image
	Directory     Kind = "dir"            // a directory that is the root file system; no image
	Registry      Kind = "registry"       // an image in a registry, and in the store once it is pulled
	Bare          Kind = "bare"           // one word that is no catalogue name: only ever an image in the store
	Pinned        Kind = "digest"         // an image in the store, by its digest or the start of it
	OCILayout     Kind = "oci"            // an OCI image layout in a directory
	OCIArchive    Kind = "oci-archive"    // one in a tar
	DockerArchive Kind = "docker-archive" // what `docker save` writes
)

// A Ref is what a caller may say after --image, parsed. Only [Parse] makes one.
type Ref struct {
	Kind  Kind
	Given string // as it was said; Parse of it is this reference again
	Full  string // the name in the store: "docker.io/library/python:3.12", "…@sha256:…", "oci:/abs/dir:tag"
	Path  string // of the kinds that are files: absolute
	Tag   string // of OCILayout and the archives: which image in there; "" if there is only one
}

func (r Ref) String() string { return r.Given }

// Digest returns the digest that a registry's reference is pinned to, or "".
func (r Ref) Digest() oci.Digest {
	if r.Kind != Registry {
		return ""
	}
	_, d, _ := strings.Cut(r.Full, "@")
	return oci.Digest(d)
}

// Stored says whether the reference is of a kind that has an image in the store.
func (r Ref) Stored() bool { return r.Kind != Host && r.Kind != Directory }

// Local says whether the image is read from a file or directory of this machine.
func (r Ref) Local() bool { return r.Kind == OCILayout || archive(r.Kind) }

func archive(k Kind) bool { return k == OCIArchive || k == DockerArchive }

// Word is the one word that stands for an image's full name, if one does: for what Docker's registry
// has under no owner, in its latest version.
func Word(full string) (word string, ok bool) {
	word, ok = strings.CutPrefix(full, defaultDomain+"/"+defaultPrefix)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(word, ":"+defaultTag)
}

// minPrefix is how many digits of a digest one has to type.
const minPrefix = 12

// foreign are transports of containers/image that mean nothing here. Unrefused, one would be
// looked for on docker.io.
var foreign = []string{"docker-daemon", "containers-storage", "sif", "tarball", "ostree", "atomic"}

// Parse parses what a caller may say after --image:
//
//	host                       the host's /usr
//	python                     a name of the catalogue
//	ghcr.io/o/n:tag            a registry's reference, by Docker's rules; docker:// before it is ignored
//	debian:12, o/n@sha256:…    docker.io is the registry if none is named, and latest the tag
//	oci:DIR[:TAG]              oci-archive:FILE[:TAG], docker-archive:FILE[:NAME]
//	dir:ROOTFS                 a directory
//	sha256:…, 3fa9…            an image in the store, by 12 digits or more
//	word                       an image in the store, never one of a registry: a mistyped name
//	                           is not sent to whoever registered it
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
