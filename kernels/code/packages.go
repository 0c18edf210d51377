package code

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"demesne/kernels"
	"demesne/kernels/languages"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/session"
	"demesne/session/events"
)

// Installed is the result of an installation.
type Installed struct {
	Packages []languages.Dependency
	OK       bool
	Stderr   string // the end of what the installer wrote to stderr; untrusted
	Hint     string // what to do about a failure; may be empty
}

// notices are, by language, the code by which a running kernel finds new packages. Other kernels find them by themselves.
var notices = map[string]string{
	"python": `exec("import importlib, site\nif site.ENABLE_USER_SITE: site.addsitedir(site.getusersitepackages())\nimportlib.invalidate_caches()", {})`,
	"r":      `.libPaths(c(Sys.getenv('R_LIBS_USER'), .libPaths()))`,
}

// installTime bounds one installation.
const installTime = 15 * time.Minute

// Install installs packages in the sandbox by the language's own installer, through the sandbox's egress. The running
// kernel finds them. It waits for its turn, as Execute does. A failure of the installer is not an error: see [Installed].
func (c *Session) Install(ctx context.Context, all []languages.Dependency) (*Installed, error) {
	if err := c.Language.CheckDependencies(all); err != nil {
		return nil, err
	}
	done, err := c.waitTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	argv, env := c.Language.Installer(all)
	cmd := runner.Command{Argv: argv, Env: env, Dir: c.options.Dir, Timeout: installTime}
	res, err := c.service.Exec(ctx, c.Sandbox.ID, session.RunOptions{Command: cmd}, session.Callbacks{})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case absent(err):
		return &Installed{all, false, err.Error(), fmt.Sprintf("the root has no %s: choose an image that contains it", cmd.Argv[0])}, nil
	case err != nil:
		return nil, fmt.Errorf("install packages: %w", err)
	}
	i := &Installed{Packages: all, OK: res.Reason == runner.Exited && res.ExitCode == 0, Stderr: lastOf(res.Stderr.Text)}
	if !i.OK {
		i.Hint = c.whyNot(res)
		return i, nil
	}
	for _, one := range all {
		c.service.Report(ctx, events.PackageInstalled, c.Sandbox.ID, map[string]string{"package": one.String(), "language": c.Language.Name})
	}
	return i, c.notice(ctx, notices[c.Language.Name])
}

// notice has the running kernel look for new packages. Only the kernel's end is an error.
func (c *Session) notice(ctx context.Context, code string) error {
	if code == "" {
		return nil
	}
	k := c.Kernel()
	_, err := k.Execute(ctx, kernels.Execution{Code: code, Silent: true, Timeout: noticeTime})
	if errors.Is(err, kernels.ErrDead) || errors.Is(err, kernels.ErrStuck) {
		return c.died(k, nil)
	}
	return nil
}

const noticeTime = 10 * time.Second

// absent reports whether a command does not exist in the sandbox.
func absent(err error) bool {
	var e *ipc.Error
	return errors.As(err, &e) && (e.Code == ipc.CodeCommandNotFound || e.Code == ipc.CodeNotExecutable)
}

// stderrShown is how much of an installer's stderr is shown, in bytes.
const stderrShown = 4 << 10

func lastOf(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > stderrShown {
		s = strings.ToValidUTF8(s[len(s)-stderrShown:], "")
	}
	return s
}

// registriesMode is the mode of package policy that allows the registries of all languages.
const registriesMode = runner.PackageManagers

// whyNot says what may have made an installation fail, apart from what the installer wrote.
func (c *Session) whyNot(r *session.RunResult) string {
	e := c.options.Create.Egress
	switch {
	case strings.Contains(r.Stderr.Text, "No module named pip"):
		return "the image has no pip: choose an image with pip, such as python"
	case r.Reason == runner.TimedOut:
		return fmt.Sprintf("the installation did not end within %s", installTime)
	case r.Reason == runner.OOM || r.Reason == runner.DiskFull:
		return "the sandbox needs more memory or disk: make a session with higher limits"
	case (e.Mode == "" || e.Mode == runner.NoEgress) && e.File == "" && len(e.Allow) == 0 && !e.Learn:
		return "the sandbox has no network: egress " + registriesMode + " allows the package registries"
	case len(r.Denied) > 0 && r.Denied[0].Failed:
		return fmt.Sprintf("not reached: %s", r.Denied[0])
	case len(r.Denied) > 0 && e.Mode != registriesMode:
		return fmt.Sprintf("egress denied %s: egress %s allows the package registries", r.Denied[0], registriesMode)
	case len(r.Denied) > 0:
		return fmt.Sprintf("egress denied %s", r.Denied[0])
	}
	return ""
}
