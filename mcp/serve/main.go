// Package serve is demesne's MCP server, over stdio or HTTP: the frontend mcp of demesne-frontend, and its link demesne-mcp.
//
//	demesne-mcp                       stdio, as clients start it
//	demesne-mcp --http 127.0.0.1:8765 streamable HTTP at /mcp
//	demesne-mcp --http unix:PATH      the same on a socket that only its owner can reach
//	demesne-mcp job ID                runs a background job; the server starts it
//	demesne-mcp run ID                likewise a run of demesne serve
//
// Only MCP messages are written to stdout. The program's own messages go to stderr, one line each. At the end
// of its input, and on INT, TERM or HUP, it answers the calls in flight and exits 0. A second INT or TERM ends
// it without waiting.
//
// It has no configuration file. It reads these environment variables; the default follows the semicolon:
//
//	DEMESNE_ALLOWED_PATHS    directories that may be mounted, separated by colons; the working
//	                         directory, unless it is a home directory or a parent of one
//	DEMESNE_ALLOWED_DOMAINS  rules that models may use; for other names the client's user is asked
//	DEMESNE_DENIED_COMMANDS  expressions for commands that are refused, as a courtesy to models; none
//	DEMESNE_SECRETS          namespace of the stored secrets that models may use; none
//	DEMESNE_MAX_MEMORY, _DISK, _PIDS, _CPUS, _TIMEOUT
//	                         the most that models may ask for; the machine's capacity, 48h
//	DEMESNE_MAX_COST_USD     the most that one agent may cost, with its children; no bound
//	DEMESNE_MAX_TOKENS       the most tokens that one agent may use, with its children; no bound
//	DEMESNE_OUTPUT_ROOT      where outputs go; ~/.demesne/out. Outputs of MCP calls may always be mounted
//	DEMESNE_DEFAULT_IMAGE    the image of a call that names none; host
//	DEMESNE_ALLOWED_IMAGES   images besides the catalogue's: references, ghcr.io/org/*, or local/* for the store's
//	DEMESNE_MAX_JOBS        how many background jobs run at once; 64
//	DEMESNE_MAX_SANDBOXES    how many persistent sandboxes may exist; 64
//	DEMESNE_MAX_COPY_BYTES   how many bytes one upload or download may have, such as 512m; 64g
//	DEMESNE_MAX_COPY_FILES   how many files and directories it may have; 1048576
//	DEMESNE_MAX_OUTPUTS      how many output directories are kept, the newest; 1000
//	DEMESNE_MAX_SESSIONS, _SESSIONS_PER_CALLER, DEMESNE_SESSION_IDLE, _SESSION_AGE
//	                         bounds of code sessions; none
//	DEMESNE_PREPARED_SESSIONS how many code sessions are started in advance; 2
//	DEMESNE_MCP_TOKEN        the bearer token that HTTP clients must send
//	DEMESNE_TOOLS            tool sets besides the default tools: files, sandboxes, code, host
//	DEMESNE_HOST_POLICY      policy of the tool set host; ~/.config/demesne/host.toml
//
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
	line := install.ServerCommand(o)
	err := parse(line, o, args)
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
	return report(errs, serve(ctx, o, in, out))
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
