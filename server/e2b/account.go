package e2b

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	"demesne/runner"
	"demesne/runner/fileops"
	"demesne/server"
	"demesne/session"
)

// account is a user of a sandbox, and where its relative paths begin.
type account struct {
	name string
	user *runner.User // nil: the sandbox's own
	home string
	gift bool // root may make files that belong to the account
}

// The names that every sandbox has.
const (
	defaultUser = "user"
	defaultHome = "/home/user"
	rootUser    = "root"
	startDir    = "/workspace" // where commands without a directory start
)

// userOf returns the name in an Authorization header, as the SDKs send it: without a password.
func userOf(h http.Header) string {
	text, ok := strings.CutPrefix(h.Get("Authorization"), "Basic ")
	if !ok {
		return ""
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(string(raw), ":")
	return name
}

// account returns the account called name; "" is the default user.
func (e *entry) account(ctx context.Context, name string) (account, error) {
	if name == "" {
		name = defaultUser
	}
	if name == rootUser {
		return account{name: rootUser, user: &runner.User{}, home: "/root"}, nil
	}
	e.mu.Lock()
	a, known := e.accounts[name]
	e.mu.Unlock()
	if known {
		return a, nil
	}
	err := e.with(ctx, func(sb server.Sandbox) (err error) {
		a, err = find(ctx, sb, name)
		return err
	})
	if err != nil {
		return a, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.accounts) > 100 || e.accounts == nil {
		e.accounts = map[string]account{}
	}
	e.accounts[name] = a
	return a, nil
}

// findAccount looks for the default account.
func (e *entry) findAccount() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e.account(ctx, "") // an error comes again
}

// find looks for an account in the sandbox. The default user is the image's account of that name, if the sandbox can have
// its id; otherwise it is the sandbox's own user, with a home directory of that name.
func find(ctx context.Context, sb server.Sandbox, name string) (account, error) {
	if strings.ContainsAny(name, "/:\x00\n") {
		return account{}, fmt.Errorf("%w: %q", errUser, name)
	}
	ask := fileops.Request{Op: fileops.OpHome, Path: name}
	if name == defaultUser {
		ask.To = defaultHome
	}
	h, err := home(ctx, sb, nil, ask)
	if errors.Is(err, syscall.ESRCH) {
		err = fmt.Errorf("%w: %q", errUser, name)
	}
	if err != nil {
		return account{}, err
	}
	if h.Found {
		u := &runner.User{UID: h.UID, GID: h.GID}
		err := touchAs(ctx, sb, u)
		if err == nil {
			root, err := home(ctx, sb, &runner.User{}, ask)
			if err != nil && !errors.Is(err, session.ErrInvalid) {
				return account{}, err
			}
			gift := err == nil && root.Gives && u.UID != 0
			if gift && name == defaultUser {
				// A sandbox of E2B has no such directory, so frameworks make it as this user.
				sb.Tree(ctx, &runner.User{}, "/", fileops.Request{Op: fileops.OpOwn, Path: startDir, Owner: &fileops.Owner{UID: u.UID, GID: u.GID}}, nil, nil)
			}
			return account{name, u, h.Dir, gift}, nil
		}
		if !errors.Is(err, session.ErrInvalid) { // the account is kept: a passing failure must not decide about it
			return account{}, err
		}
		if name != defaultUser {
			return account{}, fmt.Errorf("%w: %q", errUser, name)
		}
		if h, err = home(ctx, sb, nil, fileops.Request{Op: fileops.OpHome, Path: "/", To: defaultHome}); err != nil {
			return account{}, err
		}
	}
	return account{name: name, home: h.Dir}, nil
}

func home(ctx context.Context, sb server.Sandbox, user *runner.User, t fileops.Request) (*fileops.Home, error) {
	a, err := sb.Tree(ctx, user, "/", t, nil, nil)
	switch {
	case err != nil:
		return nil, err
	case a.Home == nil || !strings.HasPrefix(a.Home.Dir, "/") || strings.ContainsRune(a.Home.Dir, 0):
		return nil, &fileops.Error{Errno: syscall.EIO, Text: "the sandbox sent no account"}
	}
	return a.Home, nil
}

// touch executes an operation without effect.
func touch(ctx context.Context, sb server.Sandbox) error { return touchAs(ctx, sb, nil) }

func touchAs(ctx context.Context, sb server.Sandbox, user *runner.User) error {
	_, err := sb.Tree(ctx, user, "/", fileops.Request{Op: fileops.OpStat, Path: "/"}, nil, nil)
	return err
}

// files returns the user who performs an operation on files for the account, and the operation. As in E2B's sandboxes this
// is root, and what it makes belongs to the account: frameworks write below / without naming a user. Root of a sandbox on
// the host's files has no capability, so there it is the account.
func (a account) files(t fileops.Request) (*runner.User, fileops.Request) {
	if !a.gift {
		return a.user, t
	}
	t.Owner = &fileops.Owner{UID: a.user.UID, GID: a.user.GID}
	return &runner.User{}, t
}

// environ returns the variables of a command: the account's, the sandbox's, and the command's, of which the last wins.
func (e *entry) environ(a account, own map[string]string) []string {
	rec := e.snap()
	all := []string{"HOME=" + a.home, "USER=" + a.name, "LOGNAME=" + a.name, "E2B_SANDBOX=true", "E2B_SANDBOX_ID=" + rec.ID}
	for _, m := range []map[string]string{rec.Env, own} {
		for k, v := range m {
			all = append(all, k+"="+v)
		}
	}
	return all
}

// badVariable returns the name of a variable that no command can have, or "".
func badVariable(m map[string]string) (name string, bad bool) {
	for k, v := range m {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return k, true
		}
	}
	return "", false
}
