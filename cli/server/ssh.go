package server

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner/client"
	"demesne/server/sshcmd"
)

// SSH returns demesne ssh.
func SSH() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "ssh", Usage: []string{"[--forward-agent] [--forward-remote] [ssh's flags] NAME [CMD…]", "--config", "--stdio [--forward-agent] [--forward-remote] NAME"},
			Summary: "reach a persistent sandbox by ssh, scp, sftp, rsync and editors",
			About: `Starts OpenSSH's client for the sandbox NAME, without a server in the sandbox, a port, a key or an account. All other flags
are ssh's own: -t, -L, -N. Its configuration files are not read; -F names one.

--config prints a block for ~/.ssh/config. Every program that uses ssh then reaches the sandbox NAME as the host
demesne-NAME. rsync -e "demesne ssh" and GIT_SSH_COMMAND="demesne ssh" need no block.

--stdio serves one connection on stdin and stdout, for a ProxyCommand. It accepts its client without a key, because only
you can start it, with the rights that you have.

The user name is ignored: commands run as the sandbox's user. -L reaches ports of the sandbox.
--forward-agent lets programs of the sandbox use your ssh agent, if ssh forwards it (-A). --forward-remote lets it reach the addresses of -R.`,
			Examples: []cmdline.Example{
				{Says: "get a shell", Line: "demesne ssh build"},
				{Says: "reach a server of the sandbox at port 8080 here", Line: "demesne ssh -N -L 8080:localhost:80 build"},
				{Says: "let editors, scp and git use ssh", Line: "demesne ssh --config >> ~/.ssh/config"},
				{Says: "copy a directory", Line: `rsync -rlpt -e "demesne ssh" src/ build:/workspace/src/`},
			},
			Operand: cmdline.Sandbox, Raw: true,
		},
		New: func(a *app.App) app.Options { return &sshOptions{App: a} },
	}
}

type sshOptions struct {
	*app.App
	config, stdio, forward, remote bool
}

// Flags returns demesne's own flags. They come first, as the others are ssh's.
func (o *sshOptions) Flags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupCommand, Long: "forward-agent", Set: cmdline.On(&o.forward), Help: "let programs of the sandbox use your ssh agent"},
		{Group: app.GroupCommand, Long: "forward-remote", Set: cmdline.On(&o.remote), Help: "let ports of the sandbox lead to the addresses of -R"},
		{Group: app.GroupResult, Long: "config", Set: cmdline.On(&o.config), Help: "print a block for ~/.ssh/config"},
		{Group: app.GroupResult, Long: "stdio", Set: cmdline.On(&o.stdio), Help: "serve one connection on stdin and stdout"},
	}
}

func (o *sshOptions) Run(args []string) (int, error) {
	own := 0
	for own < len(args) && slices.Contains([]string{sshcmd.ForwardAgent, sshcmd.ForwardRemote, "--config", "--stdio"}, args[own]) {
		own++
	}
	c := SSH()
	if _, err := c.With(o.Flags()).Table().UpTo(own, args[:own]); err != nil {
		return 0, err
	}
	args = args[own:]
	switch {
	case o.config && (len(args) > 0 || o.stdio):
		return 0, errors.New("--config: takes no argument")
	case o.config:
		return o.printConfig()
	case o.stdio:
		name, err := app.OneSandbox(args)
		if err != nil {
			return 0, err
		}
		return app.Become(o.server(name)...)
	case len(args) == 0:
		_, err := app.OneSandbox(nil)
		return 0, err
	}
	return o.start(args)
}

// server returns the arguments of the frontend that serves a connection.
func (o *sshOptions) server(name string) []string {
	args := []string{"ssh"}
	if o.forward {
		args = append(args, sshcmd.ForwardAgent)
	}
	if o.remote {
		args = append(args, sshcmd.ForwardRemote)
	}
	return append(args, name)
}

// start executes OpenSSH's client.
func (o *sshOptions) start(args []string) (int, error) {
	path, err := exec.LookPath("ssh")
	if err != nil {
		return 0, text.Hinted(errors.New("find ssh: not installed"), "apt install openssh-client, or demesne exec -it %s -- sh", text.SafeLine(args[len(args)-1]))
	}
	frontend, err := client.FindProgram(client.FrontendProgram)
	if err != nil {
		return 0, err
	}
	settings, err := o.settings(strings.Join(append([]string{quoted(frontend)}, o.server("%n")...), " "))
	if err != nil {
		return 0, err
	}
	argv := []string{"ssh", "-F", "none"}
	for _, s := range settings {
		argv = append(argv, "-o", s)
	}
	if err := unix.Exec(path, append(argv, args...), os.Environ()); err != nil {
		return 0, fmt.Errorf("start %q: %w", path, err)
	}
	return 0, nil
}

// settings are what OpenSSH's client needs to know about a sandbox: see ssh_config(5).
func (o *sshOptions) settings(proxy string) ([]string, error) {
	dir, err := fsutil.StateDir(sshcmd.StateName)
	if err != nil {
		return nil, err
	}
	known := filepath.Join(dir, sshcmd.KnownHosts)
	if strings.ContainsAny(known, "\"\n") {
		return nil, fmt.Errorf("directory %q: ssh cannot quote it", dir)
	}
	return []string{
		"ProxyCommand " + proxy,
		`UserKnownHostsFile "` + strings.ReplaceAll(known, "%", "%%") + `"`,
		"GlobalKnownHostsFile none",
		"StrictHostKeyChecking yes",
		"UpdateHostKeys no",
		"CheckHostIP no",
		"IdentityFile none",
		"SendEnv LANG LC_*",
	}, nil
}

func (o *sshOptions) printConfig() (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find own program: %w", err)
	}
	settings, err := o.settings(quoted(portable(self)) + " ssh --stdio %n")
	if err != nil {
		return 0, err
	}
	return o.Print("Host demesne-*\n    " + strings.Join(settings, "\n    ") + "\n")
}

// quoted quotes a word for the shell that starts a ProxyCommand.
func quoted(path string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(path, "'", `'\''`), "%", "%%") + "'"
}
