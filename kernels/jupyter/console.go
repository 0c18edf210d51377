package jupyter

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/kernels/kernelcmd"
)

// Exit codes: the code failed; demesne failed.
const exitCode, exitFailed = 1, 125

// console is the program's environment.
type console struct {
	cmdline.Console
	verb string
}

// main runs one command line of kernel, notebook or repl, and returns the exit code.
func (f *console) main(verb string, args []string) int {
	o := &kernelcmd.Options{}
	lines := o.Commands()
	line := &lines[slices.IndexFunc(lines, func(c cmdline.Command) bool { return c.Name == verb })]
	line.Program, f.verb = "demesne", verb
	rest, err := line.Parse(args)
	code := 0
	if err == nil {
		code, err = map[string]func(*kernelcmd.Options, []string, []string) (int, error){
			"kernel": f.kernel, "notebook": f.notebook, "repl": f.repl,
		}[verb](o, rest, args)
	}
	switch {
	case errors.Is(err, cmdline.ErrHelp):
		io.WriteString(f.Stdout, line.Help(cmdline.TerminalOf(f.Stdout, f.Env).Width()))
		return 0
	case err != nil:
		return f.report(err, max(code, exitFailed))
	}
	return code
}

// report prints an error with its hint, and returns the exit code.
func (f *console) report(err error, code int) int {
	cmdline.Report(f.Stderr, f.verb, err)
	return code
}

// say prints one line on stderr.
func (f *console) say(line string) {
	fmt.Fprintf(f.Stderr, "demesne: %s: %s\n", f.verb, text.SafeLine(line))
}

// kernel executes a verb of demesne kernel.
func (f *console) kernel(o *kernelcmd.Options, args, typed []string) (int, error) {
	verbs := []string{"install", "list", "remove", "run"}
	if len(args) == 0 {
		return 0, text.Hinted(errors.New("needs a verb"), "demesne kernel %s", strings.Join(verbs, " | "))
	}
	verb, rest := args[0], args[1:]
	if err := cmdline.OneOf(verb, verbs); err != nil {
		return 0, fmt.Errorf("%q: %w", verb, err)
	}
	if len(rest) > 0 && verb != "remove" {
		return 0, fmt.Errorf("%s: unexpected argument %q", verb, rest[0])
	}
	switch verb {
	case "install":
		return f.install(o, typed)
	case "list":
		return f.list(o)
	case "remove":
		return f.remove(o, rest)
	}
	return f.serve(o)
}
