// Package serve serves HTTP APIs over sandboxes: the frontend serve of demesne-frontend. demesne serve executes it, and
// demesne approve and deny too.
//
// It parses the command lines. Package settings reads the configuration, program is the server, tokens is demesne serve token,
// and approve is demesne approve and demesne deny.
//
// It writes one line to stderr when it listens, and its messages afterwards. On INT, TERM or HUP it ends; sandboxes live on,
// and their commands end.
package serve

import (
	"errors"
	"fmt"
	"io"
	"os"

	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/procself"
	"demesne/internal/text"
	"demesne/server/serve/approve"
	"demesne/server/serve/program"
	"demesne/server/serve/settings"
	"demesne/server/serve/tokens"
	"demesne/server/servecmd"
	"demesne/session"
)

// Main executes the command line of the process, and exits.
func Main() {
	procself.OwnHome()
	procself.OwnState(fsutil.StateVariable) // on an error, what needs a directory reports it
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// exitUsage is the exit code for a wrong command line.
const exitUsage = 2

// approveVerb and denyVerb are the first arguments of demesne approve and demesne deny. All others are demesne serve's.
const approveVerb, denyVerb = "approve", "deny"

// run executes one command line and returns the exit code.
func run(args []string, out, errs io.Writer) int {
	if len(args) > 0 && args[0] == approveVerb {
		o := &servecmd.ApproveOptions{}
		rest, code := parse(servecmd.ApproveCommand(o), func(line *cmdline.Command) ([]string, error) { return line.Parse(args[1:]) }, out, errs)
		if code >= 0 {
			return code
		}
		return report(errs, approveVerb, approve.Approve(o, rest, out))
	}
	if len(args) > 0 && args[0] == denyVerb {
		rest, code := parse(servecmd.DenyCommand(), func(line *cmdline.Command) ([]string, error) { return line.Parse(args[1:]) }, out, errs)
		if code >= 0 {
			return code
		}
		return report(errs, denyVerb, approve.Deny(rest))
	}
	o := &servecmd.Options{}
	rest, code := parse(servecmd.Command(o), func(line *cmdline.Command) ([]string, error) { return settings.Read(line, o, args) }, out, errs)
	switch {
	case code >= 0:
		return code
	case (o.Name != "" || o.Expires != 0) && (len(rest) < 2 || rest[0] != "token" || rest[1] != "add"):
		report(errs, serveVerb, errors.New("--name and --expires: only with token add"))
		return exitUsage
	case len(rest) > 0 && rest[0] == "token":
		return report(errs, serveVerb, tokens.Run(o, rest[1:], out))
	case len(rest) > 0:
		report(errs, serveVerb, fmt.Errorf("unexpected argument %q", rest[0]))
		return exitUsage
	}
	if o.PackageAge > 0 { // for the sessions of this process, and of those that it starts
		os.Setenv(session.VarPackageAge, text.FormatAge(o.PackageAge))
	}
	return report(errs, serveVerb, program.Serve(procself.Ending(), o, out, errs))
}

const serveVerb = "serve"

// parse reads a line with read, or prints its help. code is negative if the command is to be executed.
func parse(line *cmdline.Command, read func(*cmdline.Command) ([]string, error), out, errs io.Writer) (rest []string, code int) {
	rest, err := read(line)
	switch {
	case errors.Is(err, cmdline.ErrHelp):
		io.WriteString(out, line.Help(cmdline.TerminalOf(os.Stdout, os.LookupEnv).Width()))
		return nil, 0
	case err != nil:
		report(errs, line.Name, err)
		return nil, exitUsage
	}
	return rest, -1
}

// report prints err and its hint as one line each, and returns the exit code.
func report(errs io.Writer, verb string, err error) int {
	if err == nil {
		return 0
	}
	cmdline.Report(errs, verb, err)
	return 1
}
