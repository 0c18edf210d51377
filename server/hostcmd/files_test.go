package hostcmd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

const filePolicy = "read = [\"DIR/data\"]\nwrite = [\"DIR/in\"]"

func (s *site) read(path string) (*Outcome, error) {
	return s.Do(s.Context(), model, Ask{Kind: Read, Path: path}, 0)
}

func (s *site) write(path, content string) (*Outcome, error) {
	return s.Do(s.Context(), model, Ask{Kind: Write, Path: path, Content: []byte(content)}, 0)
}

func (s *site) has(path, want string) {
	s.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		s.Errorf("%s: %q %v, want %q", path, b, err, want)
	}
}

// TestFiles checks files in the operator's directories, and elsewhere after an approval.
func TestFiles(t *testing.T) {
	s := newSite(t, filePolicy)
	a := s.file("data/a", "0123456789", 0o644)
	o, err := s.Do(t.Context(), model, Ask{Kind: Read, Path: a, Offset: 2, Limit: 3}, 0)
	if s.ran(o, err); string(o.Result.Content) != "234" || o.Result.Next != 5 || o.Result.Size != 10 {
		t.Errorf("%+v", o.Result)
	}
	o, err = s.Do(t.Context(), model, Ask{Kind: List, Path: s.dir + "/data"}, 0)
	if s.ran(o, err); len(o.Result.Entries) != 1 || o.Result.Entries[0].Name != "a" || o.Result.Entries[0].Type != "file" {
		t.Errorf("%+v", o.Result)
	}
	o, err = s.write(s.dir+"/in/new", "one")
	if s.ran(o, err); !o.Result.Created {
		t.Errorf("%+v", o.Result)
	}
	s.has(s.dir+"/in/new", "one")
	script := s.file("in/script", "old", 0o755)
	s.ran(s.write(script, "two"))
	if st, err := os.Stat(script); err != nil || st.Mode() != 0o755 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	s.has(script, "two")
	other := s.file("other", "elsewhere", 0o600)
	if o := s.yes(s.waits(s.read(other))); o.State != Done || string(o.Result.Content) != "elsewhere" {
		t.Errorf("%+v", o)
	}
	if o := s.yes(s.waits(s.write(other, "new"))); o.State != Done {
		t.Errorf("%+v", o)
	}
	s.has(other, "new")
	if names, _ := filepath.Glob(s.dir + "/in/.*"); len(names) != 0 {
		t.Errorf("left behind: %q", names)
	}
}

// TestAttackLinks checks that no link leads out of the operator's directories, neither at once nor later.
func TestAttackLinks(t *testing.T) {
	s := newSite(t, filePolicy)
	secret := s.file("secret", "hidden", 0o600)
	link := func(to, name string) string {
		t.Helper()
		path := s.dir + "/" + name
		os.Remove(path)
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s.waits(s.read(link(secret, "data/link")))
	s.waits(s.read(link(s.dir, "data/up") + "/secret"))
	s.waits(s.read(s.dir + "/data/../secret"))
	s.waits(s.write(link(secret, "in/link"), "evil"))
	s.waits(s.write(link(s.dir, "in/up")+"/made", "evil"))
	if err := os.Link(secret, s.dir+"/data/hard"); err != nil {
		t.Fatal(err)
	}
	s.waits(s.read(s.dir + "/data/hard"))
	s.has(secret, "hidden")

	s = newSite(t, filePolicy)
	secret = s.file("secret", "hidden", 0o600)
	shown := s.file("shown", "shown", 0o600)
	r := s.waits(s.read(shown))
	os.Remove(shown)
	link(secret, "shown")
	if o := s.yes(r); o.State != Failed {
		t.Errorf("a link since: %+v", o.Result)
	}
	os.Remove(shown)
	s.file("shown", "shown", 0o600)
	r = s.waits(s.read(shown))
	if err := os.Rename(secret, shown); err != nil {
		t.Fatal(err)
	}
	if o := s.yes(r); o.State != Failed || !strings.Contains(o.Why, errChanged.Error()) {
		t.Errorf("another file since: %+v", o)
	}
	s.file("place/file", "x", 0o600)
	r = s.waits(s.read(s.dir + "/place/file"))
	if err := os.Rename(s.dir+"/place", s.dir+"/place2"); err != nil {
		t.Fatal(err)
	}
	link(s.dir+"/place2", "place")
	if o := s.yes(r); o.State != Failed {
		t.Errorf("a link above since: %+v", o.Result)
	}
}

// TestAttackWrite checks that an approved write does not hit another file than the one that the person saw.
func TestAttackWrite(t *testing.T) {
	s := newSite(t, filePolicy)
	other := s.file("other", "keep", 0o600)
	r := s.waits(s.write(s.dir+"/new", "x"))
	if err := os.Symlink(other, s.dir+"/new"); err != nil {
		t.Fatal(err)
	}
	if o := s.yes(r); o.State != Failed {
		t.Errorf("link: %+v", o)
	}
	s.has(other, "keep")
	r = s.waits(s.write(s.dir+"/new2", "x"))
	s.file("new2", "mine", 0o600)
	if o := s.yes(r); o.State != Failed {
		t.Errorf("exists now: %+v", o)
	}
	s.has(s.dir+"/new2", "mine")
	old := s.file("old", "before", 0o600)
	r = s.waits(s.write(old, "x"))
	time.Sleep(20 * time.Millisecond) // a ctime is as coarse as the kernel's tick
	s.file("old", "edited", 0o600)
	if o := s.yes(r); o.State != Failed {
		t.Errorf("edited since: %+v", o)
	}
	s.has(old, "edited")
	s.file("place/x", "", 0o600)
	r = s.waits(s.write(s.dir+"/place/y", "x"))
	if err := errors.Join(os.Rename(s.dir+"/place", s.dir+"/place2"), os.Mkdir(s.dir+"/place", 0o755)); err != nil {
		t.Fatal(err)
	}
	if o := s.yes(r); o.State != Failed {
		t.Errorf("another directory: %+v", o)
	}
	root := s.file("in/setuid", "", 0o755)
	if err := os.Chmod(root, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	s.ran(s.write(root, "evil"))
	if st, _ := os.Stat(root); st.Mode() != 0o755 {
		t.Errorf("%v", st.Mode())
	}
	for _, name := range []string{"in/.bashrc", "in/.git/hooks/pre-commit", "in/a/.envrc"} { // which programs obey
		if err := os.MkdirAll(filepath.Dir(s.dir+"/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		s.waits(s.write(s.dir+"/"+name, "evil"))
	}
	if _, err := s.write(s.dir+"/in/big", strings.Repeat("x", maxContent+1)); err == nil {
		t.Error("too much content")
	}
}

// TestAttackPrivate checks that demesne's own files, the policy and the kernel's files are never used, whatever a person says.
func TestAttackPrivate(t *testing.T) {
	s := newSite(t, "read = [\"/\"]\nwrite = [\"DIR/in\"]", func(o *Options) { o.Private = []string{filepath.Dir(filepath.Dir(o.State)) + "/tokens/t"} })
	token := s.file("state/server/token", "t0k3n", 0o600)
	s.file("tokens/t", "t0k3n", 0o600)
	if err := os.Symlink(s.dir+"/state", s.dir+"/data/state"); err != nil {
		t.Fatal(err)
	}
	asks := []Ask{{Kind: Copy, Path: s.dir, Sandbox: "x", Dst: "/x"}, {Kind: List, Path: s.dir + "/state/host"}, {Kind: List, Path: "/proc/self"}}
	for _, path := range []string{token, s.dir + "/data/state/server/token", s.dir + "/tokens/t", s.dir + "/policy.toml", "/proc/self/environ", "/proc/self/root" + token, "/sys/kernel/notes", "/dev/null"} {
		asks = append(asks, Ask{Kind: Read, Path: path}, Ask{Kind: Write, Path: path})
	}
	for _, a := range asks {
		s.policy.own.ask = true
		g := s.Guard
		g.mu.Lock()
		clear(g.entries)
		clear(g.filed)
		g.mu.Unlock()
		o, err := s.Do(t.Context(), model, a, 0)
		r := s.waits(o, err)
		if _, err := s.Store().Decide(Decision{ID: r.Request.ID, Digest: r.Request.Digest(), Approve: true}); err == nil || r.Request.Problem == "" {
			t.Errorf("%s %s can be approved: %+v", a.Kind, a.Path, r)
		}
	}
	for _, policy := range []string{`write = ["DIR/state"]`, `write = ["DIR"]`, `write = ["DIR/bin"]`} {
		s.file("policy.toml", "path = [\""+s.bin+"\"]\n"+strings.ReplaceAll(policy, "DIR", s.dir), 0o600)
		p, err := ReadPolicy(s.dir + "/policy.toml")
		if err == nil {
			_, err = Open(Options{Policy: p, State: s.dir + "/state/host"})
		}
		if err == nil {
			t.Errorf("%s is accepted", policy)
		}
	}
}

// TestAttackOracle checks that a caller does not learn which files exist: each question outside of the operator's directories gets
// the same answer.
func TestAttackOracle(t *testing.T) {
	s := newSite(t, filePolicy)
	s.file("private/there", "", 0o600)
	s.file("private/dir/x", "", 0o600)
	for _, path := range []string{"private/there", "private/absent", "private/absent/below", "private/dir", "private/there/below"} {
		o, err := s.read(s.dir + "/" + path)
		s.waits(o, err)
		if *o != (Outcome{ID: o.ID, State: Pending, Expires: o.Expires}) {
			t.Errorf("%s: %+v", path, o)
		}
	}
	s.waits(s.exec(s.dir+"/private/there", "x"))
	s.waits(s.exec(s.dir+"/private/absent", "x"))
	for _, r := range s.Access(model).Requests {
		if strings.Contains(r.What, "link") || r.State != Pending {
			t.Errorf("%+v", r)
		}
	}
	id := s.Access(model).Requests[0].ID
	s.Store().Decide(Decision{ID: id})
	s.CheckDecisions()
	if o, err := s.Collect(s.Context(), model, id, 5*time.Second); err != nil || o.State != Refused {
		t.Errorf("%+v %v", o, err)
	}
	s.waits(s.Do(t.Context(), model, Ask{Kind: Exec, Argv: []string{"show"}, Dir: s.dir + "/private/absent"}, 0))
}

// TestAttackSpecial checks that no fifo or device holds a request up.
func TestAttackSpecial(t *testing.T) {
	s := newSite(t, filePolicy)
	if err := unix.Mkfifo(s.dir+"/data/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.waits(s.read(s.dir + "/data/fifo"))
	if r.Request.Problem == "" {
		t.Error("a fifo can be approved")
	}
	path := s.file("shown", "x", 0o600)
	r = s.waits(s.read(path))
	if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	if o := s.yes(r); o.State != Failed {
		t.Errorf("%+v", o)
	}
}

// TestAttackCredentials checks that places with credentials need a line of the policy.
func TestAttackCredentials(t *testing.T) {
	var dir string
	s := newSite(t, filePolicy, func(o *Options) {
		dir = filepath.Dir(filepath.Dir(o.State))
		o.Credential = func(path string, listed []string) (string, bool) {
			place := dir + "/data/.ssh"
			return place, fsutil.Within(path, place) || fsutil.Within(place, path) && path != dir+"/data" && len(listed) > 0
		}
	})
	key := s.file("data/.ssh/id", "key", 0o600)
	if r := s.waits(s.read(key)); !strings.Contains(r.Request.Problem, "holds credentials") {
		t.Errorf("%+v", r)
	}
	s.ran(s.Do(t.Context(), model, Ask{Kind: List, Path: s.dir + "/data"}, 0))
	if r := s.waits(s.Do(t.Context(), model, Ask{Kind: List, Path: s.dir + "/data/.ssh"}, 0)); r.Request.Problem == "" {
		t.Errorf("%+v", r)
	}
}

// TestAttackCopy checks that a copy has only regular files of the approved directory.
func TestAttackCopy(t *testing.T) {
	var got string
	s := newSite(t, filePolicy, func(o *Options) {
		o.Copy = func(_ context.Context, by Caller, path, sandbox, dst string) error {
			if by != model || sandbox != "box" || dst != "/workspace/data" {
				t.Errorf("%+v %s %s", by, sandbox, dst)
			}
			return filepath.WalkDir(path, func(p string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					b, rerr := os.ReadFile(p)
					got, err = got+strings.TrimPrefix(p, path)+"="+string(b)+" ", rerr
				}
				return err
			})
		}
	})
	secret := s.file("secret", "hidden", 0o600)
	s.file("data/a", "1", 0o644)
	s.file("data/sub/b", "2", 0o644)
	if err := errors.Join(os.Symlink(secret, s.dir+"/data/link"), os.Symlink(s.dir, s.dir+"/data/up"), unix.Mkfifo(s.dir+"/data/fifo", 0o600)); err != nil {
		t.Fatal(err)
	}
	copied := func(path string) (*Outcome, error) {
		return s.Do(t.Context(), model, Ask{Kind: Copy, Path: path, Sandbox: "box", Dst: "/workspace/data"}, 0)
	}
	o, err := copied(s.dir + "/data")
	if s.ran(o, err); got != "/a=1 /sub/b=2 " || o.Result.Skipped != 3 {
		t.Errorf("%q %+v", got, o.Result)
	}
	got = ""
	s.ran(copied(s.dir + "/data/a"))
	if got != "=1 " {
		t.Errorf("%q", got)
	}
	s.file("dir/x", "x", 0o600)
	r := s.waits(copied(s.dir + "/dir"))
	if err := errors.Join(os.Rename(s.dir+"/dir", s.dir+"/dir2"), os.Symlink(filepath.Dir(secret), s.dir+"/dir")); err != nil {
		t.Fatal(err)
	}
	if o := s.yes(r); o.State != Failed {
		t.Errorf("%+v", o)
	}
	if names, _ := filepath.Glob(s.dir + "/state/host/copy-*"); len(names) != 0 {
		t.Errorf("left behind: %q", names)
	}
	for _, a := range []Ask{{Kind: Copy, Path: s.dir + "/data"}, {Kind: Copy, Path: s.dir + "/data", Sandbox: "box", Dst: "rel"}} {
		if o, err := s.Do(t.Context(), model, a, 0); err == nil {
			t.Errorf("%+v", o)
		}
	}
}

// TestStorePrivate checks that other users cannot reach the requests.
func TestStorePrivate(t *testing.T) {
	s := newSite(t, "")
	r := s.waits(s.exec("show", "x"))
	for path, want := range map[string]os.FileMode{s.Store().dir: os.ModeDir | 0o700, filepath.Join(s.Store().records().Dir, r.Request.ID+".json"): 0o600} {
		if st, err := os.Lstat(path); err != nil || st.Mode() != want {
			t.Errorf("%s: %v %v", path, st.Mode(), err)
		}
	}
	if err := os.Chmod(s.Store().dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(s.Store().dir); err == nil {
		t.Error("others can read it")
	}
}
