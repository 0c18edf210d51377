// Keep the Go runtime from opening and watching the cgroup's CPU limit: this program is not CPU-bound.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-mcp is demesne's MCP server, over stdio or HTTP.
//
//	demesne-mcp                       stdio, as clients start it
//	demesne-mcp --http 127.0.0.1:8765 streamable HTTP at /mcp
//	demesne-mcp --http unix:PATH      the same on a socket that only its owner can reach
//	demesne-mcp job ID                runs a background job; the server starts it
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
//	DEMESNE_MAX_MEMORY, _DISK, _PIDS, _CPUS, _TIMEOUT
//	                         the most that models may ask for; the machine's capacity, 48h
//	DEMESNE_OUTPUT_ROOT      where outputs go; ~/.demesne/out. Outputs of MCP calls may always be mounted
//	DEMESNE_DEFAULT_IMAGE    the image of a call that names none; host
//	DEMESNE_ALLOWED_IMAGES   images besides the catalogue's: references, or ghcr.io/org/*
//	DEMESNE_MAX_JOBS        how many background jobs run at once; 64
//	DEMESNE_MAX_SANDBOXES    how many persistent sandboxes may exist; 64
//	DEMESNE_MAX_COPY_BYTES   how many bytes one upload or download may have, such as 512m; 64g
//	DEMESNE_MAX_COPY_FILES   how many files and directories it may have; 1048576
//	DEMESNE_MAX_OUTPUTS      how many output directories are kept, the newest; 1000
//	DEMESNE_MCP_TOKEN        the bearer token that HTTP clients must send
//	DEMESNE_TOOLS            tool sets besides the default tools: files
//
// The OPEN_SANDBOX_ variables of jbeshir/demesne are accepted and ignored.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"demesne/cmd/internal/version"
	"demesne/internal/procself"
	"demesne/internal/termsafe"
)

func main() {
	procself.OwnHome()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

const usage = `usage: demesne-mcp [--tools SET] [--http ADDR|unix:PATH [--token-file FILE] [--host NAME]…]

Serves MCP tools that run commands in sandboxes: over stdin and stdout, or over
HTTP at /mcp. An address that others can reach wants a bearer token, from
$DEMESNE_MCP_TOKEN or --token-file.

  --tools SET        tool set besides the usual tools: files; or $DEMESNE_TOOLS
  --http ADDR        host:port, or unix:PATH
  --token-file FILE  the token is the first line of FILE
  --host NAME        a name, besides localhost, that this server is called by
  --version          print the version
`

// options holds the parsed command line.
type options struct {
	http, tokenFile string
	tools           string
	hosts           []string
	version         bool
}

// run executes one command line and returns the exit code.
func run(args []string, in io.ReadCloser, out io.WriteCloser, errs io.Writer) int {
	ctx := signals()
	if len(args) == 2 && args[0] == "job" {
		return report(errs, attend(ctx, args[1]))
	}
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		io.WriteString(out, usage)
		return 0
	case err == nil && o.version:
		fmt.Fprintln(out, "demesne", version.Version)
		return 0
	case err == nil:
		err = serve(ctx, o, in, out)
	}
	return report(errs, err)
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("demesne-mcp", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.http, "http", "", "")
	f.StringVar(&o.tools, "tools", "", "")
	f.StringVar(&o.tokenFile, "token-file", "", "")
	f.BoolVar(&o.version, "version", false, "")
	f.Func("host", "", func(s string) error { o.hosts = append(o.hosts, s); return nil })
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q (demesne-mcp --help shows what is)", f.Arg(0))
	}
	if o.http == "" && (o.tokenFile != "" || o.hosts != nil) {
		return o, errors.New("--token-file and --host: only with --http")
	}
	return o, nil
}

// report prints err as one line to errs and returns the exit code.
func report(errs io.Writer, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(errs, "demesne-mcp: %s\n", termsafe.Line(err.Error()))
	return 1
}

// signals returns a context that is canceled by the first INT, TERM or HUP. A second INT or TERM exits the
// program at once; the sandboxes of its calls end with it.
func signals() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	ch := make(chan os.Signal, 4)
	// SIGPIPE from a disconnected client must not end the program before the teardown of its calls.
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	go func() {
		asked := 0
		for sig := range ch {
			if sig == syscall.SIGPIPE {
				continue
			}
			if asked++; asked > 1 && sig != syscall.SIGHUP {
				os.Exit(128 + int(sig.(syscall.Signal)))
			}
			cancel(fmt.Errorf("%v", sig))
		}
	}()
	return ctx
}
