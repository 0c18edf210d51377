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

// allow asks the user's policy.json whether an image may be used, before anything of it is parsed.
// Without such a file every image may: what it is, its digest says. One that is there, or that the
// environment names, and that cannot be read is an error.
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
		return fmt.Errorf("fetch signatures: %w", err) // nothing was judged
	}
	return errorf(events.CodePolicy, "refused by policy.json: %w", err)
}
