package selftest

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain is the program inside where a test starts this program again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "selftest" {
		os.Args = os.Args[1:]
		Main()
		return
	}
	os.Exit(m.Run())
}

// TestProbes checks that each probe has a case of docs/security/cases.md, and a title of its own.
func TestProbes(t *testing.T) {
	page, err := os.ReadFile("../../docs/security/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range probes() {
		if !strings.Contains(string(page), "\n| "+p.id+" | ") {
			t.Errorf("%s: no such case", p.id)
		}
		if seen[p.title] {
			t.Errorf("two probes have the title %q", p.title)
		}
		seen[p.title] = true
	}
	if len(seen) < 100 {
		t.Errorf("%d probes", len(seen))
	}
}

func TestOutcome(t *testing.T) {
	p := &probe{id: "F1", title: "x"}
	for _, c := range []struct {
		err  error
		want verdict
	}{{nil, escaped}, {errors.New("no"), contained}, {absent("none"), notApplicable}} {
		if got := p.outcome(c.err).Verdict; got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

// TestJudge checks that the canaries decide, and not what a probe reported.
func TestJudge(t *testing.T) {
	s, err := newScene()
	if err != nil {
		t.Fatal(err)
	}
	defer s.end()
	const title = "make a file in a directory of the user"
	inside := []outcome{{"F3", title, escaped, ""}}
	if got := s.judge(inside); len(got) != 1 || got[0].Verdict != contained {
		t.Errorf("a file that stayed inside: %+v", got)
	}
	if err := errors.Join(os.WriteFile(s.facts.Dir+"/made", nil, 0o600), os.WriteFile(s.facts.Canary, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	got := s.judge([]outcome{{"F3", title, contained, ""}})
	if len(got) != 2 || got[0].Verdict != escaped || got[1].Verdict != escaped {
		t.Errorf("a file outside, and a changed canary: %+v", got)
	}
}

// TestTerminal checks that what is typed into the caller's terminal is seen outside, also after the sandbox read it, and that a
// terminal of the sandbox's own is not mistaken for it.
func TestTerminal(t *testing.T) {
	for _, read := range []bool{false, true} {
		made, err := newTerminal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(made.master, []byte(typed)); err != nil { // as a person types
			t.Fatal(err)
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(made.slave.Fd()), Events: unix.POLLIN}}, -1); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
		if read {
			if n, err := made.slave.Read(make([]byte, 64)); n != len(typed) {
				t.Error(n, err)
			}
		}
		if !made.end() {
			t.Errorf("read %v: not seen", read)
		}
	}
	const title = "type into the caller's terminal (TIOCSTI)"
	for _, c := range []struct {
		typed      bool
		said, want verdict
	}{{true, escaped, escaped}, {true, contained, escaped}, {false, escaped, contained}, {false, contained, contained}} {
		all := []outcome{{"P4", title, c.said, ""}}
		(&scene{typed: c.typed}).judgeTerminal(all)
		if all[0].Verdict != c.want {
			t.Errorf("%+v: %s", c, all[0].Verdict)
		}
	}
}

// TestApart checks that a bomb which began and ends its sandbox is contained, and that one which did not begin is an error.
func TestApart(t *testing.T) {
	s, err := newScene()
	if err != nil {
		t.Fatal(err)
	}
	defer s.end()
	got, err := inSandbox(t.Context(), "echo "+began+" #", s, []string{"P11"})
	if err == nil || len(got) != 0 {
		t.Errorf("other output: %+v, %v", got, err)
	}
	got, err = inSandbox(t.Context(), "printf "+began+"\\n%.0s", s, []string{"P11"})
	if err != nil || len(got) != 2 || got[0].Verdict != contained || !strings.Contains(got[0].Why, "the sandbox ended") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestOutside checks that a process outside is known even where its environment cannot be read, as under Landlock, and that
// another process with its number is not mistaken for it.
func TestOutside(t *testing.T) {
	s, err := newScene()
	if err != nil {
		t.Fatal(err)
	}
	defer s.end()
	s.facts.Secret = "an environment that is not read"
	if err := outside(&s.facts, nil); err != nil {
		t.Error(err)
	}
	s.facts.Started = "1"
	if outside(&s.facts, nil) == nil {
		t.Error("another process is taken for that outside")
	}
}

// TestPartial checks that probes which did not run are an error, and not a success.
func TestPartial(t *testing.T) {
	s, err := newScene()
	if err != nil {
		t.Fatal(err)
	}
	defer s.end()
	got, err := inSandbox(t.Context(), `printf {"case":"F6","verdict":"contained"}\n`, s, nil)
	if err == nil || len(got) != 1 || !strings.Contains(err.Error(), "1 of ") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestMissing checks that a file which this machine lacks is not reported as contained.
func TestMissing(t *testing.T) {
	f := &facts{Missing: []string{"read the machine's id"}}
	for _, p := range fileProbes() {
		if p.title == f.Missing[0] {
			if o := p.outcome(p.try(f)); o.Verdict != notApplicable {
				t.Errorf("%+v", o)
			}
		}
	}
	if len(matches([]string{"/etc/no-such-*", "/etc/passwd"})) != 1 || slices.Contains(missing(), "open PID 1's program for writing") {
		t.Errorf("missing: %q", missing())
	}
}
