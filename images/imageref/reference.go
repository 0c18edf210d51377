package imageref

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"demesne/images/oci"
	"demesne/images/recipes"
)

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
		return n.recipe(name)
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
