package rest

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"demesne/runner"
	"demesne/runner/fileops"
	"demesne/session"
)

// runAs makes a request run its command as a user: an id in numbers, or an account of the image.
func runAs(r *session.Request, user string) error {
	switch u, ok := runner.ParseUser(user); {
	case user == "":
	case ok:
		r.Run.Command.User = &u
	case !accountName(user):
		return refused("user", "neither UID, UID:GID nor the name of an account")
	default:
		r.Create.User = user
	}
	return nil
}

// execAs sets the user of a command in a sandbox, which looks for a name among its accounts.
func (s *Server) execAs(ctx context.Context, id, user string, c *runner.Command) error {
	var r session.Request
	if err := runAs(&r, user); err != nil {
		return err
	}
	if c.User = r.Run.Command.User; r.Create.User == "" {
		return nil
	}
	sb, err := s.service(ctx).Open(ctx, id)
	if err != nil {
		return failed(err)
	}
	a, err := sb.Tree(ctx, nil, "/", fileops.Request{Op: fileops.OpHome, Path: user}, nil, nil)
	switch {
	case errors.Is(err, syscall.ESRCH):
		return refused("user", "the sandbox has no such account")
	case err != nil:
		return failed(err)
	case a.Home == nil || !a.Home.Found:
		return refused("user", "the sandbox has no such account")
	}
	c.User = &runner.User{UID: a.Home.UID, GID: a.Home.GID}
	return nil
}

// accountName reports whether s can be the name of an account.
func accountName(s string) bool {
	return s != "" && len(s) <= 64 && s[0] != '-' && !strings.ContainsAny(s, "/:~ \t\n\x00")
}
