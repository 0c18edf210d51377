package hostcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/session/events"
)

// TestAttackShell checks that arguments with a shell's operators reach the program as they are.
func TestAttackShell(t *testing.T) {
	operators := []string{"x; touch " + "pwned", "$(touch pwned)", "`touch pwned`", "a|b", "a&&b", "a>b"}
	policy := `allow = ["show *"`
	for _, arg := range operators { // no wildcard matches them
		text, err := json.Marshal([]string{"show", arg})
		if err != nil {
			t.Fatal(err)
		}
		policy += ", " + string(text)
	}
	s := newSite(t, policy+"]")
	for _, arg := range append(operators, "*", "a b", "'", `"`) {
		if out := s.ran(s.exec("show", arg)); out != "["+s.bin+"/show]["+arg+"]" {
			t.Errorf("%q: %q", arg, out)
		}
	}
	if names, _ := filepath.Glob(s.dir + "/*/pwned"); names != nil {
		t.Error(names)
	}
}

// TestAttackSwappedProgram checks that a program that changed after the approval does not run, however it changed.
func TestAttackSwappedProgram(t *testing.T) {
	for name, change := range map[string]func(s *site, path string) error{
		"renamed": func(s *site, path string) error {
			return os.Rename(s.file("other", "#!/bin/sh\necho evil\n", 0o755), path)
		},
		"edited": func(_ *site, path string) error { return os.WriteFile(path, []byte("#!/bin/sh\necho evil #"), 0o755) },
		"edited with the old size and time": func(_ *site, path string) error {
			st, err := os.Stat(path)
			if err != nil {
				return err
			}
			text := []byte("#!/bin/sh\necho evil" + strings.Repeat("\n", int(st.Size())-19))
			return errors.Join(os.WriteFile(path, text, 0o755), os.Chtimes(path, st.ModTime(), st.ModTime()))
		},
		"a link": func(s *site, path string) error {
			return errors.Join(os.Remove(path), os.Symlink(s.file("other", "#!/bin/sh\necho evil\n", 0o755), path))
		},
		"edited within the same tick of the clock": func(_ *site, path string) error {
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil {
				return err
			}
			return os.WriteFile(path, []byte("#!/bin/sh\necho evil"+strings.Repeat("\n", int(st.Size)-19)), 0o755)
		},
		"gone": func(_ *site, path string) error { return os.Remove(path) },
	} {
		s := newSite(t, "")
		r := s.waits(s.exec("show", "x"))
		if err := change(s, s.bin+"/show"); err != nil {
			t.Fatal(err)
		}
		if o := s.yes(r); o.State != Failed || o.Result != nil {
			t.Errorf("%s: %+v %+v", name, o, o.Result)
		}
	}
}

// TestAttackSwappedDirectory checks that a command starts in the directory that was approved, or not at all.
func TestAttackSwappedDirectory(t *testing.T) {
	s := newSite(t, "")
	s.file("evil/x", "", 0o600)
	ask := func() *Record {
		return s.waits(s.Do(s.Context(), model, Ask{Kind: Exec, Argv: []string{"pwd"}, Dir: s.work}, 0))
	}
	if o := s.yes(ask()); o.State != Done || o.Result.Stdout.Text != s.work+"\n" {
		t.Errorf("%+v", o)
	}
	r := ask()
	if err := errors.Join(os.Rename(s.work, s.work+"2"), os.Symlink(s.dir+"/evil", s.work)); err != nil {
		t.Fatal(err)
	}
	if o := s.yes(r); o.State != Failed {
		t.Errorf("link: %+v", o.Result)
	}
	r = s.waits(s.Do(s.Context(), model, Ask{Kind: Exec, Argv: []string{"pwd"}, Dir: s.dir + "/data"}, 0))
	if err := errors.Join(os.Rename(s.dir+"/data", s.dir+"/data2"), os.Mkdir(s.dir+"/data", 0o755)); err != nil {
		t.Fatal(err)
	}
	if o := s.yes(r); o.State != Failed {
		t.Errorf("another directory: %+v", o.Result)
	}
}

// TestAttackDirectoryOfAllowed checks that an allowed command runs at once only in the operator's directories: many programs
// obey files of their working directory.
func TestAttackDirectoryOfAllowed(t *testing.T) {
	s := newSite(t, `allow = ["pwd"]`+"\ndirectories = [\"DIR/work\"]")
	if out := s.ran(s.exec("pwd")); out != s.work+"\n" {
		t.Errorf("%q", out)
	}
	s.waits(s.Do(s.Context(), model, Ask{Kind: Exec, Argv: []string{"pwd"}, Dir: s.dir}, 0))
	if err := os.Symlink(s.dir+"/data", s.work+"/link"); err != nil {
		t.Fatal(err)
	}
	s.waits(s.Do(s.Context(), model, Ask{Kind: Exec, Argv: []string{"pwd"}, Dir: s.work + "/link"}, 0))
}

// TestAttackEnvironment checks that a command gets few variables, and none that the caller or a later change of the server's
// environment chose.
func TestAttackEnvironment(t *testing.T) {
	t.Setenv("SECRET_TOKEN", "hidden")
	t.Setenv("LD_PRELOAD", "")
	t.Setenv("WANTED", "before")
	s := newSite(t, `environment = ["WANTED"]`)
	r := s.waits(s.exec("env"))
	t.Setenv("WANTED", "after")
	t.Setenv("PATH", "/evil:"+os.Getenv("PATH"))
	o := s.yes(r)
	out := o.Result.Stdout.Text
	if strings.Contains(out, "hidden") || strings.Contains(out, "LD_PRELOAD") || strings.Contains(out, "/evil") || !strings.Contains(out, "WANTED=before\n") || !strings.Contains(out, "PATH="+s.bin+":/usr/bin:/bin\n") {
		t.Errorf("%s", out)
	}
}

// TestAttackPath checks that programs come only from the operator's path, and not from directories that other users write.
func TestAttackPath(t *testing.T) {
	s := newSite(t, `allow = ["evil", "open"]`)
	t.Setenv("PATH", s.file("own/evil", "#!/bin/sh\n", 0o755)[:len(s.dir)+4]+":"+os.Getenv("PATH"))
	if o, err := s.exec("evil"); err == nil {
		t.Errorf("%+v", o)
	}
	s.program("open", "echo ran")
	if err := os.Chmod(s.bin+"/open", 0o777); err != nil {
		t.Fatal(err)
	}
	if o, err := s.exec("open"); err == nil {
		t.Errorf("every user can write it: %+v", o)
	}
	for _, name := range []string{"./show", "../bin/show", "bin/show", "", ".", "-x"} {
		if o, err := s.exec(name); err == nil {
			t.Errorf("%q: %+v", name, o)
		}
	}
}

// TestAttackRecord checks that nothing in the state directory changes what is executed: not other words in a record, not another
// digest, not an old approval.
func TestAttackRecord(t *testing.T) {
	edit := func(s *site, r *Record, f func(*Record)) {
		f(r)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.Store().records().Dir, r.Request.ID+".json"), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newSite(t, "")
	r := s.waits(s.exec("show", "one"))
	edit(s, r, func(r *Record) { r.Request.Argv = []string{"show", "harmless"} })
	if o := s.yes(r); o.State != Refused { // the person saw "harmless"
		t.Errorf("shown words differ: %+v", o)
	}
	r = s.waits(s.exec("show", "two"))
	edit(s, r, func(r *Record) { r.State, r.Digest = Approved, "" })
	if o := s.outcome(r); o.State != Refused {
		t.Errorf("no digest: %+v", o)
	}
	r = s.waits(s.exec("show", "three"))
	if o := s.yes(r); o.State != Done {
		t.Fatalf("%+v", o)
	}
	edit(s, r, func(r *Record) { r.State, r.Digest = Approved, r.Request.Digest() })
	if o := s.yes(s.waits(s.exec("show", "next"))); o.State != Done { // each look at decisions covers all requests
		t.Fatalf("%+v", o)
	}
	if o := s.outcome(r); o.State != Done { // a repeated call gets the same result
		t.Errorf("%+v", o)
	}
	if n := s.logged(events.HostStarted); n != 2 {
		t.Errorf("executed %d times with the next one", n)
	}
	r = s.waits(s.exec("show", "four"))
	if err := os.Remove(filepath.Join(s.Store().records().Dir, r.Request.ID+".json")); err != nil {
		t.Fatal(err)
	}
	if o := s.outcome(r); o.State != Refused {
		t.Errorf("its record is gone: %+v", o)
	}
}

// TestAttackDigest checks that an approval of something else than the request counts for nothing.
func TestAttackDigest(t *testing.T) {
	s := newSite(t, "")
	r, other := s.waits(s.exec("show", "1")), s.waits(s.exec("show", "2"))
	for _, digest := range []string{"", other.Request.Digest(), strings.ToUpper(r.Request.Digest())} {
		if _, err := s.Store().Decide(Decision{ID: r.Request.ID, Digest: digest, Approve: true}); !errors.Is(err, ErrDigest) {
			t.Errorf("%q: %v", digest, err)
		}
	}
	for _, id := range []string{"", "../lock", "..", "aaaaaaaaaaaaaaaa", strings.ToUpper(r.Request.ID), r.Request.ID + "\x00"} {
		if _, err := s.Store().Decide(Decision{ID: id, Digest: r.Request.Digest(), Approve: true}); !errors.Is(err, ErrNone) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestAttackLate checks that a request ends with its time: an approval afterwards is refused.
func TestAttackLate(t *testing.T) {
	s := newSite(t, `pending = "1s"`)
	r := s.waits(s.exec("show", "x"))
	if o := s.outcome(r); o.State != Expired {
		t.Fatalf("%+v", o)
	}
	if _, err := s.Store().Decide(Decision{ID: r.Request.ID, Digest: r.Request.Digest(), Approve: true}); !errors.Is(err, ErrDecided) {
		t.Errorf("%v", err)
	}
	if _, err := s.exec("show", "x"); !errors.Is(err, errAgain) {
		t.Errorf("asked again: %v", err)
	}
}

// TestAttackRestart checks that requests end with their server: neither a pending nor an approved one is executed by the next.
func TestAttackRestart(t *testing.T) {
	s := newSite(t, "")
	r := s.waits(s.exec("show", "x"))
	first := s.Guard
	first.Close()
	s.open()
	if _, err := s.Store().Decide(Decision{ID: r.Request.ID, Digest: r.Request.Digest(), Approve: true}); !errors.Is(err, ErrDecided) {
		t.Errorf("%v", err)
	}
	if _, err := s.Collect(t.Context(), model, r.Request.ID, 0); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
	// A killed server writes nothing.
	r = s.waits(s.exec("show", "y"))
	s.Guard.lives.Close()
	if got, err := s.Store().Get(r.Request.ID); err != nil || got.State != Lost {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := s.Store().Decide(Decision{ID: r.Request.ID, Digest: r.Request.Digest(), Approve: true}); !errors.Is(err, ErrDecided) {
		t.Errorf("%v", err)
	}
	if n := s.logged(events.HostStarted); n != 0 {
		t.Errorf("executed %d", n)
	}
}

// TestAttackFlood checks that a caller cannot fill the queue for others, nor the person's day.
func TestAttackFlood(t *testing.T) {
	s := newSite(t, "[namespace.a]\n[namespace.b]\nask = true")
	a, b := Caller{Namespace: "a"}, Caller{Namespace: "b"}
	ask := func(by Caller, n int) (*Outcome, error) {
		return s.Do(t.Context(), by, Ask{Kind: Exec, Argv: []string{"show", fmt.Sprint(n)}}, 0)
	}
	first := s.waits(ask(a, 0))
	if again := s.waits(ask(a, 0)); again.Request.ID != first.Request.ID {
		t.Error("the same request waits twice")
	}
	for n := 1; n < maxOfCaller; n++ {
		s.waits(ask(a, n))
	}
	if _, err := ask(a, 100); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
	s.waits(ask(b, 0))
	for n := 200; n < 200+maxFiled; n++ {
		all, _ := s.Store().List()
		for _, r := range all {
			if r.State == Pending && r.Request.Caller.Namespace == "a" {
				s.Store().Decide(Decision{ID: r.Request.ID})
				s.CheckDecisions()
				s.Collect(t.Context(), a, r.Request.ID, time.Second)
			}
		}
		if _, err := ask(a, n); err != nil {
			if n < 200+maxFiled-maxOfCaller-1 || !errors.Is(err, errFull) {
				t.Errorf("%d: %v", n, err)
			}
			return
		}
	}
	t.Error("asked without end")
}

// TestAttackNamespaces checks that a caller sees, collects and uses nothing of another namespace.
func TestAttackNamespaces(t *testing.T) {
	s := newSite(t, "allow = [\"show *\"]\n[namespace.a]")
	a, other := Caller{Name: "a", Namespace: "a"}, Caller{Name: "operator", Namespace: "b"}
	if o, err := s.Do(t.Context(), other, Ask{Kind: Exec, Argv: []string{"uname", "-s"}}, 0); !errors.Is(err, errOff) {
		t.Errorf("a namespace without a table: %+v %v", o, err)
	}
	s.waits(s.Do(t.Context(), a, Ask{Kind: Exec, Argv: []string{"show", "x"}}, 0)) // the rule is not a's
	r := s.waits(s.exec("show", "x", "y"))
	if _, err := s.Collect(t.Context(), a, r.Request.ID, 0); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
	if all := s.Access(a); len(all.Requests) != 1 || all.Requests[0].What != "show x" {
		t.Errorf("%+v", all)
	}
	if all := s.Access(other); all.On || all.Requests != nil || all.Allow != nil {
		t.Errorf("%+v", all)
	}
}

// TestAttackApprove checks that no command of a caller decides.
func TestAttackApprove(t *testing.T) {
	s := newSite(t, `allow = ["demesne **"]`)
	s.program("demesne", "echo ran")
	for _, argv := range [][]string{{"demesne", "approve", "x"}, {"demesne", "deny", "x"}, {"demesne-frontend", "serve", "deny", "x"}, {s.bin + "/demesne", "approve"}, {"demesne", "--x", "approve"}, {"demesne-frontend", "serve", "approve"}} {
		if o, err := s.exec(argv...); !errors.Is(err, errRefused) {
			t.Errorf("%q: %+v %v", argv, o, err)
		}
	}
	s.ran(s.exec("demesne", "ls"))
	r := s.waits(s.exec("sh", "-c", "tty < /dev/tty; echo $"+RequestVariable+"; read -r _ _ _ _ _ session rest < /proc/$$/stat; [ $session = $$ ] && echo own"))
	if o := s.yes(r); o.Result.Stdout.Text != r.Request.ID+"\nown\n" || o.Result.Stderr.Text == "" {
		t.Errorf("a command has a terminal: %+v", o.Result)
	}
}

// TestAttackAudit checks that nothing runs, waits or begins without its entry in the audit log.
func TestAttackAudit(t *testing.T) {
	full := errors.New("disk full")
	s := newSite(t, `allow = ["show *"]`, func(o *Options) {
		o.Audit = func(context.Context, events.Event) error { return full }
	})
	for _, argv := range [][]string{{"show", "x"}, {"show", "x", "y"}} {
		if o, err := s.exec(argv...); !errors.Is(err, full) {
			t.Errorf("%q: %+v %v", argv, o, err)
		}
	}
	if all, _ := s.Store().List(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	var done bool
	s = newSite(t, "", func(o *Options) {
		o.Audit = func(_ context.Context, e events.Event) error {
			if done = done || e.Type == events.HostRequested; e.Type != events.HostRequested {
				return full
			}
			return nil
		}
	})
	if o := s.yes(s.waits(s.exec("show", "x"))); o.State != Failed || !done {
		t.Errorf("%+v", o)
	}
}

// TestAttackRedaction checks that no part of a secret reaches a caller: not at the edge of an output that was cut, and not by
// reading a file in small parts.
func TestAttackRedaction(t *testing.T) {
	const secret = "s3cr3t-value-0123456789"
	s := newSite(t, "allow = [\"leak\"]\nread = [\"DIR/data\"]", func(o *Options) { o.Redact = redactor(secret) })
	s.program("leak", "printf '%s' x"+secret+"; printf '%s' "+secret+" >&2")
	for keep := 1; keep < len(secret)+2; keep += 5 {
		o, err := s.Do(t.Context(), model, Ask{Kind: Exec, Argv: []string{"leak"}, Output: keep}, 0)
		s.ran(o, err)
		if out := o.Result; out.Stdout.Text+out.Stderr.Text != strings.Repeat("*", 2*min(keep, len(secret))) && keep <= len(secret) || !out.Stdout.Cut() && keep <= len(secret) {
			t.Errorf("%d: %q %q", keep, out.Stdout.Text, out.Stderr.Text)
		}
	}
	path := s.file("data/config", "token="+secret+"\n", 0o600)
	var all string
	for at := int64(0); at < int64(len(secret)+7); at += 3 {
		o, err := s.Do(t.Context(), model, Ask{Kind: Read, Path: path, Offset: at, Limit: 3}, 0)
		s.ran(o, err)
		all += string(o.Result.Content)
	}
	if want := "token=" + strings.Repeat("*", len(secret)) + "\n"; all != want {
		t.Errorf("%q", all)
	}
	s.waits(s.exec("show", "with", secret))
	for _, e := range s.log {
		if text := fmt.Sprint(e.Detail); strings.Contains(text, secret) {
			t.Errorf("in the audit log: %s", text)
		}
	}
}

// TestAttackOutput checks that neither an endless output nor an endless command holds anything up, and that a command's
// children end with it.
func TestAttackOutput(t *testing.T) {
	s := newSite(t, "allow = [\"flood\", \"linger\"]\ntimeout = \"1s\"")
	s.program("flood", "while :; do echo 0123456789012345678901234567890123456789; done")
	o, err := s.exec("flood")
	s.ran(o, err)
	if !o.Result.TimedOut || len(o.Result.Stdout.Text) != someOutput || !o.Result.Stdout.Cut() {
		t.Errorf("%t %d", o.Result.TimedOut, len(o.Result.Stdout.Text))
	}
	s.program("linger", "trap '' TERM; sleep 300 & echo $!; wait; sleep 300")
	o, err = s.exec("linger")
	out := strings.TrimSpace(s.ran(o, err))
	if !o.Result.TimedOut || o.Result.Exit != 128+int(syscall.SIGKILL) {
		t.Errorf("%+v", o.Result)
	}
	for end := time.Now().Add(time.Minute); alive(out); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %s lives on", out)
		}
	}
}

// alive reports whether a process exists and is not a zombie.
func alive(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// TestAttackText checks that no word or reason of a caller imitates or hides anything on the person's terminal.
func TestAttackText(t *testing.T) {
	s := newSite(t, "")
	o, err := s.Do(t.Context(), model, Ask{
		Kind: Exec, Argv: []string{"show", "\x1b[2K\rdate", "a\nprogram    /usr/bin/date", "\u202egnp", "web\u00a0x", "-c"}, Reason: "ok\n\x1b[1A\x1b[2Kit cannot harm" + strings.Repeat("!", 4000),
	}, 0)
	text := s.waits(o, err).Request.Describe(time.Now())
	for _, r := range text {
		if r != '\n' && (r < ' ' || r > '~') && r != '…' {
			t.Fatalf("%q has %q", text, r)
		}
	}
	if strings.Count(text, "\nprogram ") != 1 || strings.Count(text, "\nit says ") != 1 || len(text) > 2000 || !strings.Contains(text, `"a\nprogram    /usr/bin/date"`) {
		t.Errorf("%s", text)
	}
	if _, err := s.exec("show", strings.Repeat("x", maxShown)); err == nil || !strings.Contains(err.Error(), "too long for a person") {
		t.Errorf("%v", err)
	}
	if _, err := s.exec("show", "\xff"); err == nil {
		t.Error("a word that is not UTF-8")
	}
	if _, err := s.exec(strings.Split(strings.Repeat("x ", maxWords+1), " ")...); err == nil {
		t.Error("too many words")
	}
}

// TestAttackGrant checks the bounds of a pattern that a person approved: words, time, namespace, program, revocation.
func TestAttackGrant(t *testing.T) {
	s := newSite(t, "grant = \"1m\"\n[namespace.a]")
	ask := func(words ...string) (*Outcome, error) {
		return s.Do(t.Context(), model, Ask{Kind: Access, Argv: words, Reason: "for the deployment"}, 0)
	}
	for _, words := range [][]string{{"*"}, {"sh", "*"}, {"**"}, {}, {"demesne", "approve", "**"}, {"demesne", "**"}, {"demesne", "*"}} {
		if o, err := ask(words...); err == nil {
			t.Errorf("%q: %+v", words, o)
		}
	}
	r := s.waits(ask("show", "*"))
	if o := s.yes(r); o.State != Granted || time.Until(o.Until) > time.Minute {
		t.Fatalf("%+v", o)
	}
	s.ran(s.exec("show", "web"))
	s.waits(s.exec("show", "web", "db"))
	s.waits(s.Do(t.Context(), Caller{Namespace: "a"}, Ask{Kind: Exec, Argv: []string{"show", "web"}}, 0))
	s.waits(s.Do(t.Context(), model, Ask{Kind: Exec, Argv: []string{"show", "web"}, Dir: s.work}, 0))
	time.Sleep(20 * time.Millisecond) // a ctime is as coarse as the kernel's tick
	s.program("show", "echo evil")
	s.waits(s.exec("show", "again"))
	s.program("other", "echo ran")
	r = s.waits(ask("other"))
	s.yes(r)
	s.ran(s.exec("other"))
	if _, err := s.Store().Decide(Decision{ID: r.Request.ID, By: "person"}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		o, err := s.exec("other")
		if err == nil && o.State == Pending {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a revoked grant counts: %+v %v", o, err)
		}
	}
}
