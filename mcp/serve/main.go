// Package serve is demesne's MCP server, over stdio or HTTP: the frontend mcp of demesne-frontend, and its link demesne-mcp.
//
//	demesne-mcp                       stdio, as clients start it
//	demesne-mcp --http 127.0.0.1:8765 streamable HTTP at /mcp
//	demesne-mcp --http unix:PATH      the same on a socket that only its owner can reach
//	demesne-mcp call TOOL NAME=TEXT   calls one tool, and prints its text
//	demesne-mcp job ID                runs a background job; the server starts it
//	demesne-mcp run ID                the same for a run of demesne serve
//
// Only MCP messages are written to stdout. The program's own messages go to stderr, one line each. At the end
// of its input, and on INT, TERM or HUP, it answers the calls in flight and exits 0. A second INT or TERM ends
// it without waiting.
//
// It has no configuration file. [install.ServerEnvironment] describes the environment variables that it reads.
// Package agents reads the variables of agents: their credentials, and which of them are enabled.
//
// The OPEN_SANDBOX_ variables of jbeshir/demesne are accepted and ignored.
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
	"demesne/mcp/install"
	"demesne/mcp/toolbackend"
)

// Main executes the command line of the process, and exits.
func Main() {
	procself.OwnHome()
	if err := procself.Room(); err != nil {
		os.Exit(report(os.Stderr, err))
	}
	procself.OwnState(fsutil.StateVariable) // on an error, what needs a directory reports it
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code.
func run(args []string, in io.ReadCloser, out io.WriteCloser, errs io.Writer) int {
	ctx := procself.Ending()
	if len(args) == 2 && args[0] == "job" {
		return report(errs, toolbackend.Attend(ctx, args[1]))
	}
	if len(args) == 2 && args[0] == "run" {
		return report(errs, toolbackend.AttendRun(ctx, args[1]))
	}
	o := &install.ServerOptions{}
	line, serve := install.ServerCommand(o), func() error { return serve(ctx, o, in, out) }
	var err error
	if len(args) > 0 && args[0] == "call" {
		c := &calling{}
		line = c.command()
		serve, err = c.parse(ctx, line, args[1:], out)
	} else {
		err = parse(line, o, args)
	}
	switch {
	case errors.Is(err, cmdline.ErrHelp):
		io.WriteString(out, line.Help(cmdline.TerminalOf(os.Stdout, os.LookupEnv).Width()))
		return 0
	case errors.Is(err, cmdline.ErrVersion):
		io.WriteString(out, line.VersionLine())
		return 0
	case err != nil:
		report(errs, err)
		return exitUsage
	}
	return report(errs, serve())
}

// exitUsage is the exit code for a wrong command line.
const exitUsage = 2

func parse(line *cmdline.Command, o *install.ServerOptions, args []string) error {
	rest, err := line.Parse(args)
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return text.Hinted(fmt.Errorf("unexpected argument %q", rest[0]), "demesne-mcp --help lists the flags")
	case o.HTTP == "" && (o.TokenFile != "" || o.Hosts != nil):
		return errors.New("--token-file and --host: only with --http")
	}
	return nil
}

// report prints err and its hint as one line each to errs, and returns the exit code.
func report(errs io.Writer, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(errs, "demesne-mcp: %s\n", text.SafeLine(err.Error()))
	if hint := text.HintOf(err); hint != "" {
		fmt.Fprintf(errs, "hint: %s\n", text.SafeLine(hint))
	}
	return 1
}
