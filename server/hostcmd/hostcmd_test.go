package hostcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"demesne/session/events"
)

// site is a Guard with a policy, in directories of its own.
type site struct {
	*testing.T
	*Guard
	dir, bin, work string
	mu             sync.Mutex
	log            []events.Event
}

// newSite makes one. In the policy, DIR stands for a directory, and the programs of DIR/bin are on its path.
func newSite(t *testing.T, policy string, change ...func(*Options)) *site {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DEMESNE_STATE", dir+"/state")
	s := &site{T: t, dir: dir, bin: dir + "/bin", work: dir + "/work"}
	for _, d := range []string{"/bin", "/work", "/data", "/in", "/state/server"} {
		if err := os.MkdirAll(dir+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.program("show", `printf '[%s]' "$0" "$@"`)
	s.file("policy.toml", `path = ["`+s.bin+`", "/usr/bin", "/bin"]`+"\n"+strings.ReplaceAll(policy, "DIR", dir), 0o600)
	s.open(change...)
	return s
}

func (s *site) open(change ...func(*Options)) {
	s.Helper()
	p, err := ReadPolicy(s.dir + "/policy.toml")
	if err != nil {
		s.Fatal(err)
	}
	o := Options{Policy: p, State: s.dir + "/state/host", Audit: func(_ context.Context, e events.Event) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log = append(s.log, e)
		return nil
	}}
	for _, f := range change {
		f(&o)
	}
	if s.Guard, err = Open(o); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(s.Guard.Close)
}

func (s *site) file(name, content string, mode os.FileMode) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode)); err != nil {
		s.Fatal(err)
	}
	return path
}

func (s *site) program(name, script string) string {
	return s.file("bin/"+name, "#!/bin/sh\n"+script+"\n", 0o755)
}

var model = Caller{Name: "model"}

func (s *site) exec(argv ...string) (*Outcome, error) {
	return s.Do(s.Context(), model, Ask{Kind: Exec, Argv: argv}, 0)
}

// ran checks that a request was executed at once, and returns its output.
func (s *site) ran(o *Outcome, err error) string {
	s.Helper()
	if err != nil || o.State != Done {
		s.Fatalf("%+v %v, want it executed", o, err)
	}
	return o.Result.Stdout.Text
}

// waits checks that a request waits for a person, and returns its record.
func (s *site) waits(o *Outcome, err error) *Record {
	s.Helper()
	if err != nil || o.State != Pending {
		s.Fatalf("%+v %v, want it pending", o, err)
	}
	r, err := s.Store().Get(o.ID)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// yes approves a request as a person who saw r, and returns what became of it.
func (s *site) yes(r *Record) *Outcome {
	s.Helper()
	if _, err := s.Store().Decide(Decision{ID: r.Request.ID, Digest: r.Request.Digest(), Approve: true, By: "person"}); err != nil {
		s.Fatal(err)
	}
	return s.outcome(r)
}

func (s *site) outcome(r *Record) *Outcome {
	s.Helper()
	s.CheckDecisions()
	o, err := s.Collect(s.Context(), r.Request.Caller, r.Request.ID, time.Minute)
	if err != nil {
		s.Fatal(err)
	}
	return o
}

// logged counts the entries of a type.
func (s *site) logged(t events.Type) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.log {
		if e.Type == t {
			n++
		}
	}
	return n
}

// TestSafe checks that the operator's list runs at once, and that everything else waits for a person, whose yes executes it once.
func TestSafe(t *testing.T) {
	s := newSite(t, `allow = ["show *"]`)
	if out := s.ran(s.exec("show", "web")); out != "["+s.bin+"/show][web]" {
		t.Errorf("%q", out)
	}
	s.ran(s.exec("uname", "-s"))
	r := s.waits(s.exec("show", "web", "more"))
	if o := s.yes(r); o.State != Done || !strings.HasSuffix(o.Result.Stdout.Text, "[web][more]") {
		t.Errorf("%+v", o)
	}
	if got, _ := s.Store().Get(r.Request.ID); got.State != Done || got.By != "person" || got.Exit == nil || *got.Exit != 0 {
		t.Errorf("%+v", got)
	}
	for kind, want := range map[events.Type]int{events.HostRequested: 1, events.HostApproved: 1, events.HostStarted: 3, events.HostCompleted: 3} {
		if n := s.logged(kind); n != want {
			t.Errorf("%s: %d entries, want %d", kind, n, want)
		}
	}
}

// TestAgain approves a command for a time: the same words run again without a question, and nothing else does, until a person ends
// that. A command whose words a pattern would read otherwise, or outside the listed directories, is approved once.
func TestAgain(t *testing.T) {
	s := newSite(t, "")
	r := s.waits(s.exec("show", "x"))
	if _, err := s.Store().Decide(Decision{ID: r.Request.ID, Digest: r.Request.Digest(), Approve: true, For: time.Minute, By: "person"}); err != nil {
		t.Fatal(err)
	}
	if o := s.outcome(r); o.State != Done {
		t.Errorf("%+v", o)
	}
	s.ran(s.exec("show", "x"))
	s.waits(s.exec("show", "y"))
	s.waits(s.exec("show", "x", "y"))
	if o, err := s.Do(s.Context(), Caller{Name: "other", Namespace: "ci"}, Ask{Kind: Exec, Argv: []string{"show", "x"}}, 0); err == nil && o.State == Done {
		t.Errorf("another namespace has the grant: %+v", o)
	}
	all, err := s.Store().List()
	if err != nil {
		t.Fatal(err)
	}
	grant := all[slices.IndexFunc(all, func(r *Record) bool { return r.State == Granted })]
	if grant.By != "person" || time.Until(grant.Until) > time.Minute || grant.Request.Kind != Access {
		t.Errorf("%+v", grant)
	}
	if _, err := s.Store().Decide(Decision{ID: grant.Request.ID, By: "person"}); err != nil {
		t.Fatal(err)
	}
	s.applyDecisions()
	s.waits(s.exec("show", "x"))
	for _, a := range []Ask{{Argv: []string{"show", "x*"}}, {Argv: []string{"show", "z"}, Dir: s.bin}} {
		a.Kind = Exec
		r := s.waits(s.Do(s.Context(), model, a, 0))
		if _, err := s.Store().Decide(Decision{ID: r.Request.ID, Digest: r.Request.Digest(), Approve: true, For: time.Minute}); !errors.Is(err, ErrOnce) {
			t.Errorf("%q: %v", a.Argv, err)
		}
	}
}

// TestNo checks a refusal, and that the same request is not asked again.
func TestNo(t *testing.T) {
	s := newSite(t, "")
	r := s.waits(s.exec("show", "x"))
	if _, err := s.Store().Decide(Decision{ID: r.Request.ID, By: "person"}); err != nil {
		t.Fatal(err)
	}
	if o, err := s.exec("show", "x"); !errors.Is(err, errAgain) { // at once
		t.Errorf("asked again: %+v %v", o, err)
	}
	if o := s.outcome(r); o.State != Refused {
		t.Errorf("%+v", o)
	}
	if _, err := s.Store().Decide(Decision{ID: r.Request.ID, Digest: r.Request.Digest(), Approve: true}); !errors.Is(err, ErrDecided) {
		t.Errorf("approved after the refusal: %v", err)
	}
}

// TestPolicyRefused checks the policies that are errors.
func TestPolicyRefused(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		`allow = ["*"]`: "matches any command", `allow = ["**"]`: "matches any command", `allow = ["* restart"]`: "matches any command",
		`allow = ["/usr/bin/*"]`: "matches any command", `allow = ["sh *"]`: "matches any command", `allow = ["sh -c *"]`: "matches any command",
		`allow = ["sudo **"]`: "matches any command", `allow = ["/usr/bin/env *"]`: "matches any command", `allow = ["python3 -m *"]`: "matches any command",
		`allow = ["docker ps | grep x"]`: "no shell", `allow = ["docker ps; reboot"]`: "no shell", `allow = ["echo $HOME"]`: "no shell",
		`allow = ["a ** b"]`: "last word", `allow = ["a *x*"]`: "more than one *", `allow = ["./run *"]`: "neither a name", `allow = ["-x"]`: "minus",
		`allow = [""]`: "empty", `allow = [[]]`: "empty", `allow = [3]`: "neither a text", `allow = ["bin/x"]`: "neither a name", `allow = ["/usr/bin/../x"]`: "neither a name",
		`alow = ["x"]`: "unknown key", `timeout = "2h"`: "not a time", `pending = "0s"`: "not a time", `[namespace.a]` + "\nread = [\"rel\"]": "not absolute",
		`write = ["/"]`: "contains", `write = ["/usr"]`: "contains", `write = ["` + dir + `"]`: "contains", `path = ["bin"]`: "not absolute",
	} {
		path := dir + "/policy.toml"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadPolicy(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	path := dir + "/open.toml"
	if err := errors.Join(os.WriteFile(path, nil, 0o666), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPolicy(path); err == nil || !strings.Contains(err.Error(), "other users can write it") {
		t.Errorf("%v", err)
	}
	if _, err := ReadPolicy(dir); err == nil {
		t.Error("a directory is a policy")
	}
}

// TestPattern checks which words a pattern matches.
func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern string
		argv    []string
		want    bool
	}{
		{"docker restart *", []string{"docker", "restart", "web"}, true},
		{"docker restart *", []string{"docker", "restart", "web; reboot"}, false},
		{"docker restart *", []string{"docker", "restart", "web $(reboot)"}, false},
		{"docker restart *", []string{"docker", "restart", "web's \"two\""}, true}, // one word, which is data
		{"tool *", []string{"tool", "a=b"}, false}, {"tool *", []string{"tool", "$a"}, false}, {"tool *", []string{"tool", "a(b"}, false}, {"tool *", []string{"tool", "a)"}, false},
		{"tool *", []string{"tool", "a;b"}, false}, {"tool *", []string{"tool", "a|b"}, false}, {"tool *", []string{"tool", "a&b"}, false}, {"tool *", []string{"tool", "a\nb"}, false},
		{"tool *", []string{"tool", "a>b"}, false}, {"tool *", []string{"tool", "a<b"}, false}, {"tool *", []string{"tool", "`a`"}, false}, {"tool **", []string{"tool", "a", "b=c"}, false},
		{"tool x=*", []string{"tool", "x=a=b"}, true}, {"tool x=*", []string{"tool", "x=$a"}, false}, {"tool x=* *", []string{"tool", "x=1", "y=2"}, false}, {"tool --a=*", []string{"tool", "--a=b"}, true},
		{"docker restart *", []string{"docker", "restart"}, false},
		{"docker restart *", []string{"docker", "restart", ""}, false},
		{"docker restart *", []string{"docker", "restart", "a", "b"}, false},
		{"docker restart *", []string{"docker", "restart", "--host=tcp://evil"}, false},
		{"docker restart *", []string{"docker", "restart", "-t"}, false},
		{"docker restart *", []string{"docker", "restart", "../x"}, false},
		{"docker restart *", []string{"docker", "restart", "a/b"}, false},
		{"docker restart *", []string{"docker", "restart", ".."}, false},
		{"docker restart *", []string{"docker", "restart", "a\nb"}, false},
		{"docker restart *", []string{"docker", "restart", "a\x1b[2Jb"}, false},
		{"docker restart *", []string{"docker", "restart", "\u202egnp.exe"}, false},
		{"docker restart *", []string{"docker", "--config=/tmp/x", "restart", "web"}, false},
		{"docker restart *", []string{"/tmp/docker", "restart", "web"}, false},
		{"docker restart *", []string{"/usr/bin/docker", "restart", "web"}, false},
		{"docker restart *", []string{"Docker", "restart", "web"}, false},
		{"docker restart **", []string{"docker", "restart"}, true},
		{"docker restart **", []string{"docker", "restart", "a", "b"}, true},
		{"docker restart **", []string{"docker", "restart", "a", "--time=0"}, false},
		{"cat /srv/logs/*", []string{"cat", "/srv/logs/a.log"}, true},
		{"cat /srv/logs/*", []string{"cat", "/srv/logs/../../etc/shadow"}, false},
		{"cat /srv/logs/*", []string{"cat", "/srv/logs/.."}, false},
		{"cat /srv/logs/*", []string{"cat", "/srv/logs/.key"}, false},
		{"cat /srv/logs/*", []string{"cat", "/srv/logs/"}, false},
		{"cat /srv/logs/*.log", []string{"cat", "/srv/logs/a.log"}, true},
		{"cat /srv/logs/*.log", []string{"cat", "/srv/logs/a.log.gz"}, false},
		{"journalctl --unit=web-*", []string{"journalctl", "--unit=web-1"}, true},
		{"journalctl --unit=*", []string{"journalctl", "--unit=-x"}, false},
		{"tool app*", []string{"tool", "app.conf"}, true},
		{"tool app*", []string{"tool", "app"}, true},
		{"uptime", []string{"uptime"}, true},
		{"uptime", []string{"uptime", "-p"}, false},
	} {
		words, err := splitPattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		p, err := ParsePattern(words)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Match(c.argv); got != c.want {
			t.Errorf("%s: %q: %t", c.pattern, c.argv, got)
		}
	}
}

// TestSplit checks that a text is split as a shell does, or refused.
func TestSplit(t *testing.T) {
	for line, want := range map[string]string{
		`docker restart web`: `docker restart web`, `a 'b c' "d e" f\ g`: `a "b c" "d e" "f g"`, `a ''`: `a ""`, `a "x\"y"`: `a "x\"y"`, `a x''y`: `a xy`, ``: ``,
		`a 'x|y' '$HOME'`: `a "x|y" "$HOME"`,
	} {
		words, err := Split(line)
		if err != nil || Line(words) != want {
			t.Errorf("%s: %s %v, want %s", line, Line(words), err, want)
		}
	}
	for _, line := range []string{
		"a; b", "a && b", "a | b", "a > /etc/passwd", "a < b", "$(a)", "a `b`", "a $B", `a "$B"`, "a\nb", "a &", "a *", "a ?", "a [b]", "a {b,c}", "~/x", "# a", "X=1 a", `a "\$B"`, `a 'b`, `a \`, "! a",
	} {
		if words, err := Split(line); err == nil {
			t.Errorf("%q: %q", line, words)
		}
	}
}

// FuzzMatches checks what no wildcard may match.
func FuzzMatches(f *testing.F) {
	for _, s := range []string{"web", "-x", "../a", "a/b", "", ".", "a\x00b"} {
		f.Add("*", s)
		f.Add("/srv/*", "/srv/"+s)
		f.Add("--x=*.y", "--x="+s+".y")
	}
	f.Fuzz(func(t *testing.T, pattern, word string) {
		if strings.Count(pattern, "*") != 1 || !matches(pattern, word) {
			return
		}
		before, after, _ := strings.Cut(pattern, "*")
		middle := word[len(before) : len(word)-len(after)]
		if strings.ContainsAny(middle, "/\x00\n\x1b") || before+middle+after != word {
			t.Errorf("%q matches %q", pattern, word)
		}
		for _, r := range special {
			if strings.ContainsRune(middle, r) && !strings.ContainsRune(before+after, r) {
				t.Errorf("%q matches %q", pattern, word)
			}
		}
		if before == "" && (middle == "" || strings.HasPrefix(word, "-") || word == ".." || word == ".") {
			t.Errorf("%q matches %q", pattern, word)
		}
	})
}

// FuzzSplit checks that what Split returns is what a shell would pass on: quoting its words again gives the same words.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"a b", `a "b\"c"`, `'a'\ b`, "a;b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, err := Split(line)
		if err != nil {
			return
		}
		var quoted []string
		for _, w := range words {
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		again, err := Split(strings.Join(quoted, " "))
		if fmt.Sprintf("%q", again) != fmt.Sprintf("%q", words) && (len(words) == 0 || !strings.Contains(words[0], "=")) {
			t.Errorf("%q: %q, then %q %v", line, words, again, err)
		}
	})
}

// redactor blanks one value, as package proxy/redact does.
func redactor(secret string) func(io.Writer) io.WriteCloser {
	return func(w io.Writer) io.WriteCloser { return &blanker{w: w, secret: secret} }
}

type blanker struct {
	w      io.Writer
	b      []byte
	secret string
}

func (b *blanker) Write(p []byte) (int, error) { b.b = append(b.b, p...); return len(p), nil }

func (b *blanker) Close() error {
	_, err := io.WriteString(b.w, strings.ReplaceAll(string(b.b), b.secret, strings.Repeat("*", len(b.secret))))
	return err
}

// TestOwn checks that a store that another process tidies leaves a new owner its file.
func TestOwn(t *testing.T) {
	s, err := OpenStore(t.TempDir() + "/host")
	if err != nil {
		t.Fatal(err)
	}
	over, tidied := make(chan bool), make(chan bool)
	go func() {
		defer close(tidied)
		for {
			select {
			case <-over:
				return
			default:
				s.tidy()
			}
		}
	}()
	for range 500 {
		name, alive, err := s.own()
		if err != nil {
			t.Errorf("own: %v", err)
			break
		}
		if !s.alive(name) {
			t.Errorf("%s was removed", name)
			break
		}
		alive.Close()
	}
	close(over)
	<-tidied
}
