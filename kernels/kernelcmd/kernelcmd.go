// Package kernelcmd is the command lines of demesne kernel, demesne notebook and demesne repl. demesne shows their help,
// and demesne-frontend, which it executes, parses them. The package is small because both link it.
package kernelcmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/kernels/languages"
	"demesne/runner"
)

// Options holds the flags as they were typed. Each command uses some.
type Options struct {
	Image, Egress, EgressFile string
	Allow, Deny               []string
	OpenWithInputs            bool
	Inputs                    []string
	Workspace                 string
	Dependencies              []string
	Env                       []string // NAME[=VALUE]
	Limits                    runner.Limits
	Language, Kernel          string
	Timeout                   time.Duration

	// The following are flags of demesne kernel.
	Name, DisplayName, Prefix string
	SysPrefix                 bool
	Connection                string
	TrustOutput               bool
	JSON                      bool

	// Of demesne notebook and demesne repl:
	Out         string
	AllowErrors bool
	Key         string
}

const (
	groupSandbox = "Sandbox"
	groupNetwork = "Network"
	groupKernel  = "Kernel"
	groupResult  = "Result"
)

// sandboxFlags describe the sandbox of a kernel.
func (o *Options) sandboxFlags() cmdline.Flags {
	return cmdline.Flags{
		{Group: groupSandbox, Long: "image", Arg: "NAME", Complete: cmdline.Image, Set: cmdline.Text(&o.Image),
			Help: "root filesystem, as in demesne run (default $DEMESNE_DEFAULT_IMAGE, or this machine's /usr)"},
		{Group: groupSandbox, Long: "in", Arg: "PATH[:NAME]", Repeat: true, Complete: cmdline.File, Set: cmdline.List(&o.Inputs, nil),
			Help: "show a file or directory, read-only, at /in/NAME"},
		{Group: groupSandbox, Long: "env", Arg: "NAME[=VALUE]", Repeat: true, Set: cmdline.List(&o.Env, nil),
			Help: "set a variable; NAME alone takes the value from this environment"},
		{Group: groupSandbox, Long: "dependency", Arg: "NAME[==VERSION]", Repeat: true, Set: cmdline.List(&o.Dependencies, nil),
			Help: "install a package of the language first; its registry must be allowed, for example by --egress package-managers"},
		{Group: groupSandbox, Long: "memory", Arg: "SIZE", Set: cmdline.Memory(&o.Limits.Memory),
			Help: "memory limit, such as 512m or 2g, or none (default half of the machine's)"},
		{Group: groupSandbox, Long: "cpus", Arg: "N", Set: cmdline.CPUs(&o.Limits.CPUs),
			Help: "limit of processor time, in processors: 0.5, 2, or none (default none)"},
		{Group: groupSandbox, Long: "disk", Arg: "SIZE", Set: cmdline.Disk(&o.Limits.Disk),
			Help: "limit for data written to each of /, /out and /workspace, or none (default 2g)"},
		{Group: groupNetwork, Long: "egress", Arg: "MODE", Words: runner.EgressModes(), Set: cmdline.Text(&o.Egress),
			Help: "destinations to allow: " + text.Or(runner.EgressModes()) + " (default none)"},
		{Group: groupNetwork, Long: "allow-domain", Arg: "NAME[:PORT]", Repeat: true, Set: cmdline.List(&o.Allow, nil),
			Help: "also allow this destination, as in demesne run"},
		{Group: groupNetwork, Long: "deny-domain", Arg: "NAME[:PORT]", Repeat: true, Set: cmdline.List(&o.Deny, nil),
			Help: "deny a name, even if another rule allows it"},
		{Group: groupNetwork, Long: "egress-file", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.EgressFile),
			Help: "take mode and rules from a policy file, in TOML"},
		{Group: groupNetwork, Long: "allow-open-with-inputs", Set: cmdline.On(&o.OpenWithInputs),
			Help: "allow --egress open together with inputs: the code can send them anywhere"},
		{Group: groupKernel, Long: "kernel", Arg: "NAME", Set: cmdline.Text(&o.Kernel),
			Help: "kernel of the sandbox's root, by the name of its kernelspec; demesne: the kernel that demesne brings (default the language's)"},
	}
}

// languageFlag is a flag of the commands without an operand for the language.
func (o *Options) languageFlag(fallback string) cmdline.Flags {
	return cmdline.Flags{{Group: groupKernel, Long: "language", Arg: "LANGUAGE", Words: names(), Set: o.setLanguage,
		Help: "language of the code: " + strings.Join(names(), ", ") + " (default " + fallback + ")"}}
}

func (o *Options) workspaceFlag(help string) cmdline.Flags {
	return cmdline.Flags{{Group: groupSandbox, Long: "workspace", Arg: "DIR", Complete: cmdline.Directory, Set: cmdline.Text(&o.Workspace), Help: help}}
}

// names lists the languages.
func names() (all []string) {
	for _, l := range languages.All() {
		all = append(all, l.Name)
	}
	return all
}

func (o *Options) setLanguage(s string) error {
	l, ok := languages.Find(s)
	if !ok {
		return cmdline.OneOf(s, names())
	}
	o.Language = l.Name
	return nil
}

// Commands returns the three commands, bound to o.
func (o *Options) Commands() []cmdline.Command {
	return []cmdline.Command{o.kernel(), o.notebook(), o.repl()}
}

// runFlags returns the flags of demesne kernel run.
func (o *Options) runFlags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{
		{Group: groupKernel, Long: "connection-file", Short: 'f', Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.Connection),
			Help: "with run: the connection file of Jupyter's client"},
	}, o.ruleFlags())
}

// ruleFlags are the flags that install writes into a kernelspec, and run obeys.
func (o *Options) ruleFlags() cmdline.Flags {
	return slices.Concat(o.languageFlag("python"), cmdline.Flags{
		{Group: groupKernel, Long: "trust-output", Set: cmdline.On(&o.TrustOutput),
			Help: "pass outputs on unchanged, and widgets too: scripts in them then act as you in the browser"},
	}, o.sandboxFlags(), o.workspaceFlag("directory for /workspace, which the code can change (default the notebook's directory, unless it is your home or has no name; none: a temporary one)"))
}

// Rules returns the arguments for demesne kernel run that set the rules of args, which are the arguments of demesne kernel
// install. abs makes the paths in them absolute: Jupyter starts a kernel in the directory of its notebook.
func Rules(args []string, abs func(f *cmdline.Flag, value string) string) (rules []string, err error) {
	var o Options
	c := o.kernel()
	table := o.ruleFlags()
	for i := range c.Flags {
		f := &c.Flags[i]
		f.Set = func(value string) error {
			switch {
			case table.Long(f.Long) == nil:
			case f.Arg == "":
				rules = append(rules, "--"+f.Long)
			default:
				rules = append(rules, "--"+f.Long+"="+abs(f, value))
			}
			return nil
		}
	}
	_, err = c.Parse(args)
	return rules, err
}

func (o *Options) kernel() cmdline.Command {
	return cmdline.Command{
		Name: "kernel", Usage: []string{"install [flags] --name NAME", "list [--json]", "remove NAME…", "run -f FILE [flags]"},
		Summary: "let Jupyter run notebooks in sandboxes",
		About: `install writes a kernelspec. With it JupyterLab, jupyter console, nbconvert, nbclient and VS Code execute the cells of a
notebook in a sandbox with the given image and network. The image needs no part of Jupyter: where it has no kernel
for the language, demesne brings one for Python, Node and bash.

Each kernel has its own sandbox. The directory of the notebook is its /workspace and its working directory: the code can
read and change the files there, and no others of this machine. Interrupt and restart work. A restart begins a new kernel
and keeps the sandbox's files.

Outputs are made safe for the browser, because a script in an output could use your Jupyter server, and through it this
machine. Tables, images and figures remain; scripts and widgets do not. --trust-output turns that off.

list shows the installed kernels, and remove removes them. run is what Jupyter executes.`,
		Examples: []cmdline.Example{
			{Says: "add a kernel on this machine's Python, without a network", Line: "demesne kernel install --name sandbox"},
			{Says: "add one on an image, which may install packages", Line: "demesne kernel install --name science --image python:3.12 --egress package-managers --dependency pandas"},
			{Says: "execute a notebook with it", Line: "jupyter nbconvert --to notebook --execute --ExecutePreprocessor.kernel_name=sandbox report.ipynb"},
			{Says: "remove it", Line: "demesne kernel remove sandbox"},
		},
		Words: []string{"install", "list", "remove", "run"},
		Flags: slices.Concat(cmdline.Flags{
			{Group: groupKernel, Long: "name", Arg: "NAME", Set: o.setName, Help: "with install: name of the kernelspec"},
			{Group: groupKernel, Long: "display-name", Arg: "TEXT", Set: cmdline.Text(&o.DisplayName),
				Help: "with install: name in Jupyter's menus (default the language and NAME)"},
			{Group: groupKernel, Long: "user", Set: func(string) error { return nil },
				Help: "with install: for this user, in Jupyter's data directory; the default"},
			{Group: groupKernel, Long: "prefix", Arg: "DIR", Complete: cmdline.Directory, Set: cmdline.Text(&o.Prefix),
				Help: "with install and remove: in DIR/share/jupyter, such as /usr/local for all users"},
			{Group: groupKernel, Long: "sys-prefix", Set: cmdline.On(&o.SysPrefix),
				Help: "with install and remove: in the active virtual environment"},
			{Group: groupResult, Long: "json", Set: cmdline.On(&o.JSON), Help: "with list: print JSON"},
		}, o.runFlags()),
	}
}

func (o *Options) setName(s string) error {
	if s == "" || len(s) > 100 || s[0] == '.' || strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
		return errors.New("not a name for a kernel (letters, digits, '.', '_' and '-')")
	}
	o.Name = s
	return nil
}

func (o *Options) notebook() cmdline.Command {
	return cmdline.Command{
		Name: "notebook", Usage: []string{"run [flags] FILE.ipynb"}, Summary: "execute a notebook in a sandbox",
		About: `Executes the code cells of a notebook in one sandbox, in their order, and writes the notebook with their outputs. Neither
this machine nor the image needs Jupyter. The language is the notebook's.

FILE is not changed unless --out names it. The directory of FILE is not in the sandbox: --workspace or --in gives files to the
code. The first cell that fails ends the run with exit code 1, and stderr has its traceback; the written notebook has the
outputs up to there.`,
		Examples: []cmdline.Example{
			{Says: "execute a notebook, and write report.out.ipynb", Line: "demesne notebook run report.ipynb"},
			{Says: "let its code read data, and use packages of the registry", Line: "demesne notebook run --in data.csv --egress package-managers --dependency pandas --out done.ipynb report.ipynb"},
			{Says: "go on after cells that fail, with a minute for each cell", Line: "demesne notebook run --allow-errors --timeout 1m report.ipynb"},
		},
		Words: []string{"run"}, Then: cmdline.File,
		Flags: slices.Concat(cmdline.Flags{
			{Group: groupResult, Long: "out", Short: 'o', Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.Out),
				Help: "file for the executed notebook, or - for stdout (default FILE.out.ipynb beside FILE)"},
			{Group: groupResult, Long: "allow-errors", Set: cmdline.On(&o.AllowErrors),
				Help: "execute the remaining cells after one that fails, and exit 0"},
			{Group: groupKernel, Long: "timeout", Arg: "DURATION", Set: cmdline.Duration(&o.Timeout),
				Help: "interrupt a cell after this time, which fails it (default never)"},
		}, o.languageFlag("the notebook's"), o.sandboxFlags(), o.workspaceFlag("directory for /workspace, which the code can change (default a temporary one)")),
	}
}

func (o *Options) repl() cmdline.Command {
	return cmdline.Command{
		Name: "repl", Usage: []string{"[flags] [LANGUAGE]"}, Summary: "type code into a kernel in a sandbox",
		About: fmt.Sprintf(`Reads code, executes it in a kernel in a sandbox, and prints its output. LANGUAGE is %s (default python). The state
remains until the end of the input.

On a terminal, Enter executes what is complete, Tab completes names, the arrow keys recall earlier input, Ctrl-C interrupts,
and Ctrl-D ends. Figures are drawn where the terminal can draw them, and are files in /out otherwise.

If stdin is not a terminal, all of it is executed as one input, without prompts. The exit code is 1 if it fails.`, strings.Join(names(), ", ")),
		Examples: []cmdline.Example{
			{Says: "type Python", Line: "demesne repl"},
			{Says: "type Node, on an image", Line: "demesne repl --image node:24 node"},
			{Says: "keep the files of the sandbox for the next time", Line: "demesne repl --key scratch"},
			{Says: "execute a script", Line: "echo 'print(6 * 7)' | demesne repl python"},
		},
		Words: names(),
		Flags: slices.Concat(cmdline.Flags{
			{Group: groupSandbox, Long: "key", Arg: "KEY", Set: cmdline.Text(&o.Key),
				Help: "use the persistent sandbox of this key; make it if it does not exist"},
			{Group: groupSandbox, Long: "out", Arg: "DIR", Complete: cmdline.Directory, Set: cmdline.Text(&o.Out),
				Help: "directory for /out (default a new one in $DEMESNE_OUTPUT_ROOT or ~/.demesne/out)"},
			{Group: groupKernel, Long: "timeout", Arg: "DURATION", Set: cmdline.Duration(&o.Timeout),
				Help: "interrupt an input after this time (default never)"},
		}, o.sandboxFlags(), o.workspaceFlag("directory for /workspace, which the code can change (default a temporary one)")),
	}
}
