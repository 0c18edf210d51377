package pull

import (
	"context"
	"errors"
	"fmt"

	digest "github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage/pkg/configfile"

	"demesne/images"
	"demesne/images/events"
)

// allow checks an image against the user's policy.json, before the image's manifest is parsed.
// Without a policy.json every image is allowed; its digest identifies it. A policy.json that
// exists, or that the environment names, but cannot be read is an error.
func allow(ctx context.Context, sys *types.SystemContext, img types.UnparsedImage) (err error) {
	policy, err := signature.DefaultPolicy(sys)
	if errors.Is(err, configfile.ErrConfigFileNotFound) {
		return nil
	}
	if err != nil {
		return errorf(events.CodePolicy, "read policy.json: %w", err)
	}
	judge, err := signature.NewPolicyContext(policy)
	if err != nil {
		return fmt.Errorf("read policy.json: %w", err)
	}
	defer func() { err = errors.Join(err, judge.Destroy()) }()
	allowed, err := judge.IsRunningImageAllowed(ctx, img)
	if allowed && err == nil {
		return nil
	}
	if unanswered(err) != "" || answered(err) != "" || ctx.Err() != nil {
		return fmt.Errorf("fetch signatures: %w", err) // the policy was not evaluated
	}
	return errorf(events.CodePolicy, "refused by policy.json: %w", err)
}

// stillAllowed checks an image of the store against policy.json, which may have changed since the pull. Most policies
// need no signatures; then it does not ask the registry.
func (p *puller) stillAllowed(ctx context.Context, named reference.Named, have *images.Image) error {
	ref, err := docker.NewReference(reference.TagNameOnly(named))
	if err != nil {
		return errorf(events.CodeInvalid, "parse reference %q: %w", named, err)
	}
	if allow(ctx, p.sys, unsigned{ref}) == nil {
		return nil
	}
	src, err := p.dial(ctx, []reference.Named{named})
	if err != nil {
		return err
	}
	defer src.Close()
	instance := digest.Digest(have.Digest)
	return p.retry(ctx, func(ctx context.Context) error { return allow(ctx, p.sys, src.Unparsed(&instance)) })
}

// unsigned is an image without signatures, which a policy may allow by its name.
type unsigned struct{ ref types.ImageReference }

func (u unsigned) Reference() types.ImageReference { return u.ref }

func (u unsigned) Manifest(context.Context) ([]byte, string, error) { return nil, "", errUnsigned }

func (u unsigned) Signatures(context.Context) ([][]byte, error) { return nil, nil }

var errUnsigned = errors.New("the policy needs the image itself")
