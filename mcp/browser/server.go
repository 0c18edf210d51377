package browser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/lazy"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// Bounds of a call and its answer.
const (
	startTime   = 60 * time.Second // of the program; chromium starts with the first page
	callTime    = 45 * time.Second // longer than each limit of Playwright's own
	endTime     = time.Second      // until a program that ended is known to have
	maxMessage  = 16 << 20         // bytes of one message
	maxText     = 64 << 10         // bytes of an answer's text
	maxPicture  = 4 << 20          // bytes of one picture
	maxPictures = 4
	maxSaid     = 2000 // bytes of what the program wrote before it ended
)

// Picture is a picture in an answer, by the MIME type that the sandbox says.
type Picture struct {
	Data []byte
	MIME string
}

// Result is the answer of a tool. It comes from the sandbox and is untrusted.
type Result struct {
	Text     string
	Pictures []Picture
	Failed   bool
	Started  bool // this call started the browser
	Sandbox  string
	Out      string // its /out, on the host
}

// server is playwright-mcp in a sandbox.
type server struct {
	client  *sdk.ClientSession
	process session.Process
	ended   chan struct{}  // closed when the program has ended; then result and said are complete
	result  *runner.Result // nil: not known
	said    text.Last      // what it wrote to stderr
}

// program starts the server. A page can write no file of more than 1 GiB, so that one download does not fill the sandbox, which
// would end. Other settings are in the environment: a version that lacks one ignores it.
const program = `trap '' XFSZ; ulimit -f 2097152; exec playwright-mcp --snapshot-mode none`

// environment has no effect on what a page may reach: the sandbox decides that.
var environment = []string{
	"PLAYWRIGHT_MCP_CODEGEN=none", "PLAYWRIGHT_MCP_CAPS=pdf,vision", "PLAYWRIGHT_MCP_OUTPUT_DIR=/out", "PLAYWRIGHT_MCP_FILE_PATHS=absolute",
	"PLAYWRIGHT_MCP_ALLOW_UNRESTRICTED_FILE_ACCESS=true", // to the sandbox's files
	"PLAYWRIGHT_MCP_WEBMCP=false",                        // tools that a page offers
	"PLAYWRIGHT_MCP_TIMEOUT_NAVIGATION=30000",
}

var (
	errSlow = errors.New("the browser did not answer in time, and was ended; the next call starts another")
	errDied = errors.New("the browser has ended; the next call starts another")
)

// start starts the program in a sandbox, and waits until it answers.
func start(ctx context.Context, sb *session.Sandbox, argv []string) (_ *server, err error) {
	var files []*os.File
	pipe := func() (r, w *os.File) {
		r, w, perr := os.Pipe()
		files, err = append(files, r, w), errors.Join(err, perr)
		return r, w
	}
	in, requests := pipe()
	answers, out := pipe()
	errs, said := pipe()
	s := &server{ended: make(chan struct{}), said: text.Last{Most: maxSaid}}
	if err == nil {
		s.process, err = sb.Exec(ctx, runner.Command{Argv: argv, Env: environment, Dir: "/out", Stdin: in, Stdout: out, Stderr: said})
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, err
	}
	for _, f := range []*os.File{in, out, said} {
		f.Close()
	}
	go s.watch(errs)
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, errSlow)
	defer cancel()
	c := sdk.NewClient(&sdk.Implementation{Name: "demesne", Version: cmdline.Version}, &sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}})
	s.client, err = c.Connect(ctx, &sdk.IOTransport{Reader: answers, Writer: requests, MaxLineLength: maxMessage}, nil)
	if err != nil {
		requests.Close()
		answers.Close()
		err = s.explain(cmp.Or(context.Cause(ctx), err))
		s.kill()
		return nil, err
	}
	return s, nil
}

// watch waits for the end of the program, and keeps the end of what it wrote to stderr.
func (s *server) watch(errs *os.File) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(&s.said, fsutil.Rest(errs))
	}()
	s.result, _ = s.process.Wait(context.Background())
	errs.SetReadDeadline(time.Now().Add(endTime)) // a process that the program left may keep it open
	<-read
	errs.Close()
	close(s.ended)
}

// runs reports whether the program runs, also of nil.
func (s *server) runs() bool {
	if s == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// kill ends the program. Chromium ends with it, because their pipe closes.
func (s *server) kill() {
	s.process.Signal(syscall.SIGKILL)
	if s.client != nil {
		go s.client.Close() // which may wait for the program
	}
}

// explain returns why a call failed: the end of the program, if it has ended, with what it said last.
func (s *server) explain(err error) error {
	if errors.Is(err, errSlow) {
		return err
	}
	select {
	case <-s.ended:
	case <-time.After(endTime):
		return fmt.Errorf("%w: %s", errDied, text.SafeLine(text.Shorten(err.Error(), maxSaid)))
	}
	reason := ""
	if s.result != nil {
		reason = string(s.result.Reason)
	}
	if said := strings.TrimSpace(string(s.said.End(maxSaid))); said != "" {
		reason += ": " + text.SafeLine(said)
	}
	return fmt.Errorf("%w: %s", errDied, reason)
}

// call calls a tool of the program.
func (s *server) call(ctx context.Context, most time.Duration, name string, args map[string]any) (*Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, errSlow)
	defer cancel()
	r, err := s.client.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return resultOf(r), nil
}

// escapes are the control sequences of terminals, which Playwright's messages have.
var escapes = lazy.Regexp{Expr: "\x1b\\[[0-9;]*[A-Za-z]"}

// pictures are the types of pictures that clients can show.
var pictures = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

// resultOf returns the texts and pictures of an answer, within the bounds.
func resultOf(r *sdk.CallToolResult) *Result {
	all := &Result{Failed: r.IsError}
	var b strings.Builder
	for _, c := range r.Content {
		switch c := c.(type) {
		case *sdk.TextContent:
			if b.Len() <= maxText {
				fmt.Fprintln(&b, strings.TrimSpace(text.Shorten(c.Text, maxText)))
			}
		case *sdk.ImageContent:
			if !slices.Contains(pictures, c.MIMEType) || len(c.Data) > maxPicture || len(all.Pictures) == maxPictures {
				fmt.Fprintf(&b, "[a picture of %d bytes is left out]\n", len(c.Data))
				continue
			}
			all.Pictures = append(all.Pictures, Picture{c.Data, c.MIMEType})
		}
	}
	all.Text = escapes.Get().ReplaceAllString(strings.ToValidUTF8(b.String(), "\uFFFD"), "")
	if len(all.Text) > maxText {
		all.Text = text.Shorten(all.Text, maxText) + "\n[the rest is left out]"
	}
	all.Text = strings.TrimSpace(all.Text)
	return all
}
