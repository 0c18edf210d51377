package agents

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Call is a command line of the user for a program at a terminal, or of an editor that starts it.
type Call struct {
	Args []string
	Dir  string // that Args name as the program's; empty: the working directory
	Asks bool   // the program asks before it acts, unless Args say otherwise
	ACP  bool   // it speaks the Agent Client Protocol on its stdin and stdout
}

// NewCall returns the call of arguments. It drops a "--" before them, and a first argument that is a program's own path: an editor that starts
// its bundled program through a wrapper gives that path to the wrapper, or node's with the script's.
func (p *Provider) NewCall(args []string) Call {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	own := func(i int, name string) bool {
		return i < len(args) && filepath.IsAbs(args[i]) && strings.TrimSuffix(filepath.Base(args[i]), ".exe") == name
	}
	switch {
	case own(0, p.Command):
		args = args[1:]
	case own(0, "node") && len(args) > 1 && filepath.IsAbs(args[1]) && strings.HasSuffix(args[1], ".js"):
		args = args[2:]
	}
	return Call{Args: args, Dir: p.chdir(args)}
}

// chdir returns the directory that arguments name, or "".
func (p *Provider) chdir(args []string) string {
	before, _, _ := splitArgs(args)
	for i, arg := range before {
		name, value, joined := strings.Cut(arg, "=")
		switch {
		case !slices.Contains(p.Chdir, name):
		case joined:
			return value
		case i+1 < len(before):
			return before[i+1]
		}
	}
	return ""
}

// Informs reports whether a call asks no model: it prints help or a version, or is a sub-command of the row's list. It needs
// neither a credential nor a project.
func (p *Provider) Informs(c Call) bool {
	if c.ACP || len(c.Args) == 0 {
		return false
	}
	before, _, _ := splitArgs(c.Args)
	return slices.Contains(p.Commands, c.Args[0]) || slices.ContainsFunc(before, func(a string) bool {
		return slices.Contains([]string{"--help", "-h", "--version", "-v", "-V"}, a)
	})
}

// splitArgs returns the arguments before and after a "--".
func splitArgs(args []string) (before, after []string, found bool) {
	i := slices.Index(args, "--")
	if i < 0 {
		return args, nil, false
	}
	return args[:i], args[i+1:], true
}

func (p *Provider) command(c Call) bool {
	return len(c.Args) > 0 && (slices.Contains(p.Commands, c.Args[0]) || slices.Contains(p.Serves, c.Args[0]))
}

// chosen reports whether the caller's own arguments say whether the program asks.
func (p *Provider) chosen(c Call) bool {
	before, _, _ := splitArgs(c.Args)
	return slices.ContainsFunc(before, func(arg string) bool {
		return slices.ContainsFunc(p.Prompts.Chosen, func(option string) bool {
			prefix, is := strings.CutSuffix(option, "*")
			long := strings.HasPrefix(prefix, "--") && !strings.HasSuffix(prefix, "=")
			return arg == option || is && (arg == prefix || strings.HasPrefix(arg, prefix+"=") || !long && strings.HasPrefix(arg, prefix))
		})
	})
}

// Interactive plans the program at a terminal. home is $HOME in the sandbox. It is kept for later sessions, so the files of
// the Launch must be added by Seed.
func (a *Agent) Interactive(t Task, c Call, home string) (*Launch, error) {
	l, values := a.launch(t, home)
	p := a.Provider
	if c.Asks && p.Prompts.Ask == nil {
		return nil, fmt.Errorf("agent %q cannot ask for permissions", p.Name)
	}
	row, own := p.Interactive, c.Args
	if p.command(c) || p.Informs(c) { // claude answers --version at once only without other arguments
		row = []string{"{args}"}
	}
	if c.ACP {
		if err := a.speak(l, c); err != nil {
			return nil, err
		}
		own = append(slices.Clone(p.ACP.Arguments), c.Args...)
		if p.ACP.Command != "" {
			row = []string{"{args}"}
		}
	}
	prompts := p.Prompts.Skip
	if asks := c.Asks || c.ACP; asks || p.chosen(c) {
		prompts = nil
		if asks && !p.chosen(c) {
			prompts = p.Prompts.Ask
		}
		l.Env = replaceEnv(l.Env, p.Prompts.AskEnv)
	}
	for _, word := range row {
		switch word {
		case "{args}":
			l.Argv = append(l.Argv, own...)
		case "{skip}":
			l.Argv = append(l.Argv, prompts...)
		default:
			l.Argv = append(l.Argv, expand([]string{word}, values)...)
		}
	}
	return l, nil
}

// speak makes the launch one of the adapter that speaks the protocol for the program.
func (a *Agent) speak(l *Launch, c Call) error {
	acp := a.Provider.ACP
	if !acp.Speaks() {
		return fmt.Errorf("agent %q does not speak the Agent Client Protocol", a.Provider.Name)
	}
	l.Env = replaceEnv(l.Env, acp.Env)
	if acp.Command == "" {
		return nil
	}
	if a.program.inImage {
		l.Argv = []string{"/bin/sh", "-c", acp.Variable + `=$(command -v "$0") && export ` + acp.Variable + ` && exec "$@"`, a.Provider.Command, acp.Command}
		return nil
	}
	if len(a.program.argv) != 1 {
		return fmt.Errorf("start %s: the program %s is a script, and the adapter needs an executable", acp.Command, a.program.argv[len(a.program.argv)-1])
	}
	argv, mounts, err := a.o.installed(Provider{Command: acp.Command})
	if err != nil {
		return fmt.Errorf("agent %q: %w: %w", a.Provider.Name, ErrNoAdapter, err)
	}
	l.Env = replaceEnv(l.Env, map[string]string{acp.Variable: a.program.argv[0]})
	l.Argv = argv
	for _, m := range mounts {
		if !slices.Contains(l.Mounts, m) {
			l.Mounts = append(l.Mounts[:len(l.Mounts):len(l.Mounts)], m)
		}
	}
	return nil
}

// ErrNoAdapter is in the error for a program whose adapter for the Agent Client Protocol this host lacks.
var ErrNoAdapter = errors.New("its adapter for the Agent Client Protocol is missing")

// replaceEnv returns env with other values of variables. An empty value removes one.
func replaceEnv(env []string, values map[string]string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		_, replaced := values[name]
		return replaced
	})
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name] != "" {
			env = append(env, name+"="+values[name])
		}
	}
	return env
}
