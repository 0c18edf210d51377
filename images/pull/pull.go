// Package pull brings images from registries into the store, with go.podman.io/image/v5 (the living
// path of containers/image): registries.conf with its mirrors and short names, auth.json and Docker's
// config.json with credential helpers, certs.d, the proxy variables and policy.json mean what they
// mean to podman and skopeo.
//
// What comes from a registry is hostile until its digest was compared. A tag is resolved once; from
// then on everything is asked for by digest. In order:
//
//	index or manifest   by tag or digest; of an index the image for the platform
//	policy.json         before anything of the image is parsed; without such a file all may be used
//	configuration       must be for the platform
//	layers              some at once, each from where the last process left it
//	[images.Store.Add]  only now has the image a name
//
// The library's own copy package is not used: it links a terminal's progress bars, whose tables of
// character widths cost 16 ms before main, and knows neither partial blobs nor two processes that
// want the same one.
//
// A try that fails for a passing reason (a cut connection, 5xx, silence) is made again after a growing
// pause and goes on where it stopped. 401, 403, 404, a certificate nobody trusts and a registry that
// does not answer at all are told at once. A registry that says nothing for a minute is given up.
//
// It does not unpack (rootfs/unpack does, elsewhere and with fewer rights), does not follow URLs in
// manifests, and refuses schema 1, encrypted layers and layers that must not be distributed.
package pull

import (
	"context"
	"errors"
	"os"
	"time"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// Options say how to pull. Store must be set; the zero value of the rest is the default.
type Options struct {
	Store    *images.Store
	Platform Platform             // whose image of an index; this machine's
	Report   func(events.Event)   // what goes on, from several goroutines; nil: nobody listens
	Jobs     int                  // layers at once; 3
	Backoff  time.Duration        // before the second try; one second
	Idle     time.Duration        // how long a registry may say nothing; one minute
	System   *types.SystemContext // where configuration is; the usual places, and $REGISTRY_AUTH_FILE
}

// puller is a pull under way.
type puller struct {
	Options
	sys *types.SystemContext
	src Source
}

func newPuller(o Options) *puller {
	p := &puller{Options: o, sys: &types.SystemContext{AuthFilePath: os.Getenv("REGISTRY_AUTH_FILE")}}
	if o.System != nil {
		*p.sys = *o.System
	}
	if p.sys.DockerRegistryUserAgent == "" {
		p.sys.DockerRegistryUserAgent = "demesne"
	}
	if p.Report == nil {
		p.Report = func(events.Event) {}
	}
	if p.Jobs <= 0 {
		p.Jobs = 3
	}
	if p.Backoff <= 0 {
		p.Backoff = time.Second
	}
	if p.Idle <= 0 {
		p.Idle = time.Minute
	}
	return p
}

// Image pulls what a registry's reference names, unless the store has just that, and returns the
// digest of its manifest.
func Image(ctx context.Context, ref imageref.Ref, o Options) (oci.Digest, error) {
	d, err := newPuller(o).pull(ctx, ref)
	return d, speak(err)
}

func (p *puller) pull(ctx context.Context, ref imageref.Ref) (oci.Digest, error) {
	all, err := candidates(p.sys, ref)
	if err != nil {
		return "", err
	}
	if d, err := p.present(ctx, ref, all[0]); d != "" || err != nil {
		return d, err
	}
	src, err := p.dial(ctx, all)
	if err != nil {
		return "", err
	}
	defer src.Close()
	return p.copy(ctx, src, ref)
}

// present returns the digest of the image if the store has all of it and the registry no newer one
// under that name; "" if it must be pulled. A damaged one must: that mends it.
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
	return have.Digest, nil
}

// Copy brings the image of any source into the store under a name, with the same care.
func Copy(ctx context.Context, src Source, ref imageref.Ref, o Options) (oci.Digest, error) {
	return newPuller(o).copy(ctx, src, ref)
}
