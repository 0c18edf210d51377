package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata/mcp")

// TestMCPConversations compares server output with the conversations in testdata/mcp. Each file
// has a client, and one server or several in sequence, in sections:
//
//	env            a line NAME=value for the environment of every server
//	file NAME      a file in the server's working directory
//	ask            the client's input, verbatim; each request in it must be answered
//	answer         the answers, in the order of the requests
//	end            like ask, but the input ends after the answers; the server must exit 0, and the next
//	               ask starts another
//
// $DIR is the working directory, $OUT the output root, $BOX the last sandbox, $SESSION the last code session, $JOB the
// last job, and $RUN the last run. Other parts that differ from run to run are replaced by N.
func TestMCPConversations(t *testing.T) {
	archives, err := filepath.Glob("testdata/mcp/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			c := &conversation{box: newBox(t), known: map[string]string{}}
			c.keepsJobs()
			c.hold(a)
			if *update {
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// conversation is the state of a conversation in progress.
type conversation struct {
	*box
	cmd     *exec.Cmd
	in      io.WriteCloser
	lines   chan []byte // messages of the server; closed when it exits
	answers string      // answers to the last ask
	known   map[string]string
}

func (c *conversation) hold(a *txtar.Archive) {
	c.Helper()
	for i := range a.Files {
		f := &a.Files[i]
		kind, name, _ := strings.Cut(f.Name, " ")
		switch kind {
		case "env":
			c.extra = append(c.extra, strings.Fields(c.expand(string(f.Data)))...)
		case "file":
			c.file(name, string(f.Data), 0o644)
		case "ask":
			c.ask(string(f.Data))
		case "end":
			c.ask(string(f.Data))
			c.end()
		case "answer":
			if *update {
				f.Data = []byte(c.answers)
			}
			if want := string(f.Data); c.answers != want {
				c.Errorf("section %d: answered\n%s\nwant\n%s", i+1, c.answers, want)
			}
		default:
			c.Fatalf("section %q", f.Name)
		}
	}
	if c.cmd != nil {
		c.end()
	}
}

// ask writes text and waits for an answer to each request in it, at most five minutes.
func (c *conversation) ask(text string) {
	c.Helper()
	if c.cmd == nil {
		c.start()
	}
	text = c.expand(text)
	var ids []string
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var m struct{ ID json.RawMessage }
		if err := d.Decode(&m); err == io.EOF {
			break
		} else if err != nil {
			c.Fatalf("%s: %v", text, err)
		}
		if m.ID != nil {
			ids = append(ids, string(m.ID))
		}
	}
	if _, err := io.WriteString(c.in, text); err != nil {
		c.Fatal(err)
	}
	got := map[string]string{}
	timeout := time.After(5 * time.Minute)
	for len(got) < len(ids) {
		select {
		case line, ok := <-c.lines:
			if !ok {
				c.Fatalf("the server ended; asked %v, answered %v", ids, got)
			}
			if id, answer := c.readable(line); slices.Contains(ids, id) {
				got[id] = answer
			}
		case <-timeout:
			c.Fatalf("not answered within five minutes: asked %v, answered %v", ids, got)
		}
	}
	var all strings.Builder
	for _, id := range ids {
		all.WriteString(got[id] + "\n")
	}
	c.answers = all.String()
}

func (c *conversation) start() {
	c.Helper()
	c.cmd = c.command("demesne-mcp")
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		c.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		c.Fatal(err)
	}
	c.lines = make(chan []byte, 100)
	go func(to chan<- []byte) {
		defer close(to)
		for s := bufio.NewScanner(out); s.Scan(); {
			to <- bytes.Clone(s.Bytes())
		}
	}(c.lines)
}

func (c *conversation) end() {
	c.Helper()
	c.in.Close()
	for range c.lines { // read to the end
	}
	if err := c.cmd.Wait(); err != nil {
		c.Errorf("the server: %v", err)
	}
	c.cmd = nil
}

func (c *conversation) expand(text string) string {
	return os.Expand(text, func(name string) string {
		switch name {
		case "DIR":
			return c.dir
		case "OUT":
			return c.out
		}
		if v, ok := c.known[name]; ok {
			return v
		}
		return "$" + name
	})
}

// changing lists the parts of an answer that differ from run to run and have no name.
var changing = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`expires: [0-9TZ:-]+`), "expires: N"},
	{regexp.MustCompile(`elapsed_seconds: [0-9.]+`), "elapsed_seconds: N"},
	{regexp.MustCompile(`"(elapsed_seconds|expires)":("[^"]*"|[0-9.]+)`), `"$1":"N"`},
	{regexp.MustCompile(`"version":"[^"]*"`), `"version":"N"`},
	{regexp.MustCompile(`python [0-9.]+ \(demesne\)`), `python N (demesne)`},
	{regexp.MustCompile(`("traceback":"|---traceback---)(?:[^"\\]|\\.)*"`), `${1}N"`},
}

// readable returns an answer's id, and the answer with its keys sorted and its changing parts replaced. A receipt
// becomes $RECEIPT, and what a command used $USAGE, because they depend on the machine.
func (c *conversation) readable(line []byte) (id, answer string) {
	c.Helper()
	var m map[string]any
	if err := json.Unmarshal(line, &m); err != nil {
		c.Errorf("on stdout, and no message: %q", line)
		return "", ""
	}
	raw, _ := json.Marshal(m["id"])
	if m["method"] != nil { // a notification, or a request from the server
		return "", ""
	}
	if result, ok := m["result"].(map[string]any); ok {
		fields, _ := result["structuredContent"].(map[string]any)
		c.learn(fields)
		meta, _ := result["_meta"].(map[string]any)
		for _, name := range []string{"receipt", "usage"} {
			if meta["demesne/"+name] != nil {
				meta["demesne/"+name] = "$" + strings.ToUpper(name)
			}
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.Encode(m)
	text := strings.TrimSpace(out.String())
	for _, name := range []string{"JOB", "RUN", "BOX", "SESSION"} {
		if v := c.known[name]; v != "" {
			text = strings.ReplaceAll(text, v, "$"+name)
		}
	}
	text = strings.NewReplacer(c.out, "$OUT", c.dir, "$DIR").Replace(text)
	for _, r := range changing {
		text = r.what.ReplaceAllString(text, r.with)
	}
	return string(raw), text
}

// learn records the names that an answer gives to things.
func (c *conversation) learn(fields map[string]any) {
	set := func(name, field string) {
		if v, ok := fields[field].(string); ok && v != "" {
			c.known[name] = v
		}
	}
	set("BOX", "sandbox_id")
	set("SESSION", "session_id")
	for _, field := range []string{"output_dir", "output_path"} {
		if dir, ok := fields[field].(string); ok {
			c.known["RUN"] = filepath.Base(dir)
		}
	}
	if id := fmt.Sprint(fields["job_id"]); strings.HasPrefix(id, "job-") {
		c.known["JOB"] = id
	}
}
