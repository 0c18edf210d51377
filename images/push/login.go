package push

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/types"

	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/pull"
)

// loginTime bounds how long a registry may take to check a password.
const loginTime = time.Minute

// place checks the name of a registry, or of a part of it, such as registry.test/team. It returns the registry.
func place(name string) (string, error) {
	registry, path, _ := strings.Cut(name, "/")
	ref, err := imageref.Parse(registry + "/" + strings.TrimPrefix(path+"/x", "/"))
	if err != nil || !ref.Explicit() || strings.Contains(path, ":") {
		return "", errorf(events.CodeInvalid, "registry %q: not HOST[:PORT][/PATH]", name)
	}
	named, err := reference.ParseNormalizedNamed(ref.Full)
	if err != nil {
		return "", errorf(events.CodeInvalid, "registry %q: %w", name, err)
	}
	return reference.Domain(named), nil
}

// Login checks a password with a registry, and stores it where podman login stores it. It returns that place: the path of
// a file, or the name of a credential helper.
func Login(ctx context.Context, sys *types.SystemContext, name, user, password string, report func(events.Event)) (string, error) {
	registry, err := place(name)
	if err != nil {
		return "", err
	}
	named, err := reference.ParseNormalizedNamed(registry + "/x")
	if err != nil {
		return "", errorf(events.CodeInvalid, "registry %q: %w", name, err)
	}
	guarded, err := pull.Guarded(sys, named, report)
	if err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	if err := docker.CheckAuth(limited, guarded, user, password, registry); err != nil {
		return "", pull.Speak(fmt.Errorf("log in to %q: %w", name, err))
	}
	where, err := config.SetCredentials(sys, name, user, password)
	if err != nil {
		return "", fmt.Errorf("store credentials: %w", err)
	}
	return where, nil
}

// ErrNotLoggedIn reports that there are no credentials to remove.
var ErrNotLoggedIn = errors.New("not logged in")

// Logout removes the credentials that Login stored for a registry, or all of them if name is "".
func Logout(sys *types.SystemContext, name string) error {
	if name == "" {
		if err := config.RemoveAllAuthentication(sys); err != nil {
			return fmt.Errorf("remove credentials: %w", err)
		}
		return nil
	}
	if _, err := place(name); err != nil {
		return err
	}
	err := config.RemoveAuthentication(sys, name)
	if errors.Is(err, config.ErrNotLoggedIn) {
		if other, cerr := config.GetCredentials(sys, name); cerr == nil && other != (types.DockerAuthConfig{}) {
			return errorf(events.CodeInvalid, "log out of %q: %w here: another program stored the credentials, such as docker login", name, ErrNotLoggedIn)
		}
		return errorf(events.CodeInvalid, "log out of %q: %w", name, ErrNotLoggedIn)
	}
	if err != nil {
		return fmt.Errorf("remove credentials: %w", err)
	}
	return nil
}
