package pull

import (
	"context"
	"errors"
	"fmt"

	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage/pkg/configfile"

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
