// Package pull copies images from registries into the store. It uses go.podman.io/image/v5, the
// maintained import path of containers/image. The following therefore work as in podman and skopeo:
// registries.conf with its mirrors and short names, auth.json, Docker's config.json with credential
// helpers, certs.d, the proxy variables and policy.json.
//
// Data from a registry is untrusted until its digest was compared. A tag is resolved once; every later
// request is by digest. The steps, in order:
//
//	index or manifest   by tag or digest; from an index the image for the platform
//	policy.json         before the image's manifest is parsed; without a policy.json every image is allowed
//	configuration       must match the platform
//	layers              several at once, each resumed where an earlier process stopped
//	[images.Store.Add]  names the image, only after all of the above
//
// The library's own copy package is not used: it links terminal progress bars, and supports neither
// partial blobs nor two processes that pull the same blob.
//
// A transient failure (a cut connection, 5xx, a registry that falls silent) is retried after a growing
// pause, and the download resumes. 401, 403, 404, an untrusted certificate and a registry that cannot
// be reached at all are reported at once. An attempt ends when the registry sends nothing for a
// minute.
//
// The package does not unpack layers; rootfs/unpack does that in another process with fewer rights. It
// does not follow URLs in manifests. It refuses schema 1, encrypted layers and non-distributable
// layers.
package pull

import (
	"context"
	"errors"
	"time"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// Options configure a pull. Store must be set; the zero value of each other field selects its default.
type Options struct {
	Store    *images.Store
	Platform Platform             // of the image to take from an index; default: this machine's
	System   *types.SystemContext // default: the standard configuration files and $REGISTRY_AUTH_FILE
	Transfer
}

// Transfer says how blobs go to or come from a registry.
type Transfer struct {
	Report  func(events.Event) // called for each event, from several goroutines; may be nil
	Jobs    int                // blobs transferred at once; default 3
	Backoff time.Duration      // wait before the second attempt; default one second
	Idle    time.Duration      // silence after which an attempt ends; default one minute
}

// Complete sets what has a default.
func (t *Transfer) Complete() {
	if t.Report == nil {
		t.Report = func(events.Event) {}
	}
	if t.Jobs <= 0 {
		t.Jobs = 3
	}
	if t.Backoff <= 0 {
		t.Backoff = time.Second
	}
	if t.Idle <= 0 {
		t.Idle = time.Minute
	}
}

// puller is a pull in progress.
type puller struct {
	Options
	sys     *types.SystemContext
	src     Source
	imports bool // no pull of the name fetches the image again
	copies  bool // src is an archive, which must have each blob itself
	// The fields of chunked.go: the image's repository, its layers' annotations, and parts that the store has.
	repository  string
	annotations map[oci.Digest]map[string]string
	stored      stored
}

func newPuller(o Options) *puller {
	p := &puller{Options: o, sys: &types.SystemContext{AuthFilePath: AuthFile()}}
	if o.System != nil {
		*p.sys = *o.System
	}
	if p.sys.DockerRegistryUserAgent == "" {
		p.sys.DockerRegistryUserAgent = "demesne"
	}
	p.Complete()
	return p
}

// Image pulls the image that a registry reference names, unless the store is up to date. It returns
// the digest of the image's manifest.
func Image(ctx context.Context, ref imageref.Ref, o Options) (oci.Digest, error) {
	d, err := newPuller(o).pull(ctx, ref)
	return d, Speak(err)
}

func (p *puller) pull(ctx context.Context, ref imageref.Ref) (oci.Digest, error) {
	all, err := candidates(p.sys, ref)
	if err != nil {
		return "", err
	}
	if d, err := p.present(ctx, ref, all[0]); d != "" || err != nil {
		return d, err
	}
	return p.take(ctx, all, ref)
}

// take copies the image of the first candidate that answers into the store, under the name as.
func (p *puller) take(ctx context.Context, all []reference.Named, as imageref.Ref) (oci.Digest, error) {
	src, err := p.dial(ctx, all)
	if err != nil {
		return "", err
	}
	defer src.Close()
	return p.copy(ctx, src, as)
}

// Private pulls an image with a login, which is used for this pull only, under another name. It always asks the registry: that
// the store has the image does not mean that this login may pull it. The library sends the login to no mirror.
func Private(ctx context.Context, ref imageref.Ref, login images.Login, as imageref.Ref, o Options) (oci.Digest, error) {
	p := newPuller(o)
	p.imports = true
	if !ref.Explicit() {
		return "", errorf(events.CodeInvalid, "a login is for one registry: write its host before the name, as in registry.example/%s", ref)
	}
	all, err := candidates(p.sys, ref)
	if err != nil {
		return "", Speak(err)
	}
	p.sys.DockerAuthConfig = &types.DockerAuthConfig{Username: login.User, Password: login.Password}
	d, err := p.take(ctx, all, as)
	return d, Speak(err)
}

// present returns the digest of the image if the store has all of it and the registry has no newer image under that name, and
// if policy.json allows it. It returns "" if the image must be pulled. A damaged image must be pulled, which repairs it.
func (p *puller) present(ctx context.Context, ref imageref.Ref, named reference.Named) (oci.Digest, error) {
	have, err := p.Store.Lookup(ref)
	if errors.Is(err, images.ErrNotFound) || errors.Is(err, images.ErrCorrupt) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if p.Platform.accepts(have.Config) != nil || p.Store.Whole(have) != nil {
		return "", nil
	}
	if ref.Digest() == "" {
		if same, err := p.unchanged(ctx, named, have); !same || err != nil {
			return "", err
		}
	}
	return have.Digest, p.stillAllowed(ctx, named, have)
}

// Copy copies the image of an archive into the store under a name, with the same checks as Image. Unless the source has this
// name, the image counts as made here: a pull of the name would ask a registry.
func Copy(ctx context.Context, src Source, ref imageref.Ref, o Options) (oci.Digest, error) {
	p := newPuller(o)
	p.copies = true
	p.imports = ref.Kind == imageref.Registry || ref.Kind == imageref.Bare
	return p.copy(ctx, src, ref)
}
