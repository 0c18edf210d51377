package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/kernels/languages"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/session"
)

// installTime bounds an installation.
const installTime = 30 * time.Minute

func (o *codeOptions) dependencyFlag() cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupSandbox, Long: "dependency", Arg: "NAME[==VERSION]", Repeat: true, Set: cmdline.List(&o.dependencies, app.CheckInput),
		Help: "first install a package of the language's registry; a failure is reported and is not an error (without a network flag, the sandbox may reach package registries)"}}
}

// installer returns the command that installs the dependencies, or nil without any. Without a flag about the network
// it allows package registries.
func (c *codeOptions) installer(o *launch.Options, sc *script, args []string) (*runner.Command, error) {
	if len(c.dependencies) == 0 {
		return nil, nil
	}
	l := c.language
	if sc != nil {
		l = sc.lang
	}
	if l.Name == "" && len(args) > 0 {
		l, _ = languages.OfProgram(args[0])
	}
	if l.Name == "" {
		return nil, text.Hinted(errors.New("--dependency: the language is not known"), "--language NAME tells it: %s",
			strings.Join(languages.Names(func(l languages.Language) bool { return l.Install != nil }), ", "))
	}
	var all []languages.Dependency
	for _, word := range c.dependencies {
		d, err := l.ParseDependency(word)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	if err := l.CheckDependencies(all); err != nil {
		return nil, err
	}
	if n := &o.Network; n.Mode == "" && n.File == "" && !n.Learn && len(n.Allow) == 0 {
		n.Mode = runner.PackageManagers
	}
	argv, env := l.Installer(all)
	return &runner.Command{Argv: argv, Env: env, User: o.User, Timeout: installTime}, nil
}

// install installs the dependencies in a sandbox. What the installer prints goes to stderr. A failure is reported only.
func (c *codeOptions) install(ctx context.Context, o *launch.Options, s *session.Service, id string, tool *runner.Command) error {
	if tool == nil {
		return nil
	}
	done, err := s.Exec(ctx, id, session.RunOptions{Command: *tool, Stdout: o.Stderr, Stderr: o.Stderr}, session.Callbacks{})
	var e *ipc.Error
	failed := ""
	switch {
	case errors.As(err, &e) && (e.Code == ipc.CodeCommandNotFound || e.Code == ipc.CodeNotExecutable):
		failed = fmt.Sprintf("the sandbox has no %s", tool.Argv[0])
	case err != nil:
		return err
	case done.Reason != runner.Exited:
		failed = string(done.Reason) + " " + done.Detail
	case done.ExitCode != 0:
		failed = fmt.Sprintf("exit code %d of the installer", done.ExitCode)
	default:
		return nil
	}
	o.Say(fmt.Sprintf("%s: install %s: %s", o.Verb, strings.Join(c.dependencies, " "), strings.TrimSpace(failed)))
	if o.Network.Mode == runner.NoEgress {
		fmt.Fprintln(o.Stderr, "hint: --egress package-managers lets the sandbox reach package registries")
	}
	return nil
}
