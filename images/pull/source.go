package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	digest "github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/pkg/shortnames"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// A Source provides an image or an index of images. Its methods are safe for concurrent use.
type Source interface {
	// Unparsed returns the manifest and its signatures. If instance is not nil, they belong to one image of the index. Manifest
	// compares the content with the requested digest, if there was one.
	Unparsed(instance *digest.Digest) types.UnparsedImage
	// Blob opens a blob from an offset to its end. The caller must verify the content.
	Blob(ctx context.Context, d oci.Descriptor, offset int64) (io.ReadCloser, error)
	io.Closer
}

// endpoint is a registry, or the mirror that answered in its place.
type endpoint struct{ types.ImageSource }

func (r endpoint) Unparsed(instance *digest.Digest) types.UnparsedImage {
	return image.UnparsedInstance(r.ImageSource, instance)
}

func (r endpoint) Blob(ctx context.Context, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	return getBlob(ctx, r.ImageSource, d, offset)
}

// Range opens a part of a blob. From a registry that ignores ranges the library reads the whole blob, which is an error here
// for a part at the beginning.
func (r endpoint) Range(ctx context.Context, d oci.Descriptor, offset, length int64) (io.ReadCloser, error) {
	body, err := getBlobAt(ctx, r.ImageSource, types.BlobInfo{Digest: digest.Digest(d.Digest), Size: d.Size}, offset, length)
	if err == nil && isWhole(body) {
		return nil, errors.Join(errNoRanges, body.Close())
	}
	return body, err
}

// shortNameAlias returns the user's alias of a short name, or nil. The library makes a directory for aliases in the home,
// although it only reads them. Where that fails, the alias can only be in the system's files.
func shortNameAlias(sys *types.SystemContext, name string) (reference.Named, error) {
	alias, _, err := sysregistriesv2.ResolveShortNameAlias(sys, name)
	var path *fs.PathError
	if !errors.As(err, &path) {
		return alias, err
	}
	dir, derr := os.MkdirTemp("", "demesne-aliases.")
	if derr != nil {
		return nil, errors.Join(err, derr)
	}
	defer os.RemoveAll(dir)
	var without types.SystemContext
	if sys != nil {
		without = *sys
	}
	without.UserShortNameAliasConfPath = filepath.Join(dir, "aliases.conf")
	alias, _, err = sysregistriesv2.ResolveShortNameAlias(&without, name)
	return alias, err
}

// candidates returns the references where the image may be, in the order to try them. That is the
// reference itself, or the candidates that the user's registries.conf gives for a short name. A
// catalogue name is not a short name: registries.conf cannot change it.
func candidates(sys *types.SystemContext, ref imageref.Ref) ([]reference.Named, error) {
	full, err := reference.ParseNormalizedNamed(ref.Full)
	if err != nil {
		return nil, errorf(events.CodeInvalid, "parse reference %q: %w", ref.Full, err)
	}
	if inCatalogue(ref.Given) || !shortnames.IsShortName(ref.Given) {
		return []reference.Named{full}, nil
	}
	alias, err := shortNameAlias(sys, repository(ref.Given))
	if err != nil {
		return nil, errorf(events.CodeInvalid, "read registries.conf: %w", err)
	}
	search, err := sysregistriesv2.UnqualifiedSearchRegistries(sys)
	if err != nil {
		return nil, errorf(events.CodeInvalid, "read registries.conf: %w", err)
	}
	if alias == nil && len(search) == 0 {
		return []reference.Named{full}, nil
	}
	resolved, err := shortnames.Resolve(sys, ref.Given)
	if err != nil {
		return nil, errorf(events.CodeInvalid, "resolve short name %q: %w", ref.Given, err)
	}
	var all []reference.Named
	for _, c := range resolved.PullCandidates {
		all = append(all, c.Value)
	}
	return all, nil
}

// repository returns a short name without its tag and digest.
func repository(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return name
}

func inCatalogue(name string) bool {
	return slices.Contains(imageref.Catalogue(), name)
}

// dial opens the first candidate that answers. If all fail, it returns the error of the last one.
func (p *puller) dial(ctx context.Context, all []reference.Named) (Source, error) {
	var last error
	for _, named := range all {
		ref, err := docker.NewReference(reference.TagNameOnly(named))
		if err != nil {
			return nil, errorf(events.CodeInvalid, "parse reference %q: %w", named, err)
		}
		sys, err := Guarded(p.sys, named, p.Report)
		if err != nil {
			return nil, err
		}
		var src types.ImageSource
		last = p.retry(ctx, func(ctx context.Context) (err error) {
			src, err = ref.NewImageSource(ctx, sys)
			return unreadable(sys, named, err)
		})
		if last == nil {
			return endpoint{src}, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

// unchanged reports whether a tag still points to the image that the store has under that name. It is
// the only request of a pull whose image is present: one HEAD. The library does not send this HEAD to
// mirrors, so with mirrors configured the answer is false.
func (p *puller) unchanged(ctx context.Context, named reference.Named, have *images.Image) (bool, error) {
	named = reference.TagNameOnly(named)
	if direct, err := p.direct(named); !direct || err != nil {
		return false, err
	}
	ref, err := docker.NewReference(named)
	if err != nil {
		return false, errorf(events.CodeInvalid, "parse reference %q: %w", named, err)
	}
	sys, err := Guarded(p.sys, named, p.Report)
	if err != nil {
		return false, err
	}
	var now digest.Digest
	err = p.retry(ctx, func(ctx context.Context) (err error) {
		now, err = docker.GetDigest(ctx, sys, ref)
		return unreadable(sys, named, err)
	})
	if Classify(err) == events.CodeInternal && err != nil {
		return false, nil // no HEAD or no digest header: read the manifest instead
	}
	if err != nil {
		return false, err
	}
	d := oci.Digest(now)
	return d == have.Digest || d == have.Index, nil
}

// direct reports whether requests for a name go to the registry in that name, and not to a mirror.
func (p *puller) direct(named reference.Named) (bool, error) {
	registry, err := sysregistriesv2.FindRegistry(p.sys, named.Name())
	if err != nil {
		return false, errorf(events.CodeInvalid, "read registries.conf: %w", err)
	}
	if registry == nil {
		return true, nil
	}
	sources, err := registry.PullSourcesFromReference(named)
	if err != nil {
		return false, fmt.Errorf("find mirrors of %q: %w", named, err)
	}
	return len(sources) == 1 && sources[0].Reference.String() == named.String(), nil
}
