package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// in runs demesne in a directory.
func (b *box) in(dir string, args ...string) result {
	b.Helper()
	cmd := b.command("demesne", args...)
	cmd.Dir = dir
	return b.finish(cmd)
}

// TestMountsHere checks --here and --mount: paths agree inside and outside, and what the host would execute is protected.
func TestMountsHere(t *testing.T) {
	b := newBox(t)
	b.file("p/.git/hooks/pre-commit", "host\n", 0o755)
	b.file("p/.git/HEAD", "ref: refs/heads/main\n", 0o644)
	b.file("p/sub/f", "host\n", 0o644)
	b.file("other/g", "other\n", 0o644)
	p, other := b.dir+"/p", b.dir+"/other"
	r := b.in(p+"/sub", "run", "--here", "--mount", other, "--mount", other+"/g:/x/y", "--", "sh", "-c",
		`pwd; cat f `+other+`/g /x/y; echo mine > new; (echo x > `+other+`/n) 2>/dev/null || echo read-only; ls ..`)
	if r.code != 0 || r.stdout != p+"/sub\nhost\nother\nother\nread-only\nsub\n" {
		t.Errorf("--here: %+v", r)
	}
	r = b.in(p, "run", "--here", "--", "sh", "-c", `(echo evil > .git/hooks/pre-commit) 2>/dev/null && echo wrote; (mv .git x) 2>/dev/null && echo moved; echo evil > .envrc; cat sub/new`)
	if r.stdout != "mine\n" || !strings.Contains(r.stderr, "run: review before use: "+p+"/.envrc (new), which direnv would execute\n") {
		t.Errorf("protected files: %+v", r)
	}
	if read(p+"/.git/hooks/pre-commit") != "host\n" {
		t.Error("a hook was changed")
	}
	r = b.in(p, "run", "--here=ro", "--workdir", "/", "--", "sh", "-c", `pwd; (echo x > `+p+`/x) 2>/dev/null || echo read-only`)
	if r.stdout != "/\nread-only\n" {
		t.Errorf("--here=ro: %+v", r)
	}
	// A mount below another one stays visible, whatever their order.
	r = b.in(b.dir, "run", "--mount", other+":"+p+"/sub:rw", "--mount", p+":rw", "--", "ls", p+"/sub")
	if r.stdout != "g\n" {
		t.Errorf("nested mounts: %+v", r)
	}
	b.in(b.dir, "rm", strings.TrimSpace(b.in(b.dir, "create").stdout)) // makes the directory of sandboxes
	for flag, want := range map[string]string{b.dir + "/k:rw": "overlaps the files of other sandboxes", b.run: "run directory", p + ":/proc/x": "belongs to demesne", p + ":rx": "neither an absolute path nor a mode"} {
		if r := b.in(b.dir, "run", "--mount", flag, "--", "true"); r.code != 125 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", flag, r)
		}
	}
	// A persistent sandbox starts there, too.
	id := strings.TrimSpace(b.in(p, "create", "--here").stdout)
	if r := b.in(b.dir, "exec", id, "--", "pwd"); r.stdout != p+"\n" {
		t.Errorf("exec: %+v", r)
	}
	b.in(b.dir, "rm", id)
}

// TestMountsReview checks that files which agents, editors and debuggers obey cannot be changed, that no number of new files
// hides one that matters, and that apply names such files and links that lead out.
func TestMountsReview(t *testing.T) {
	b := newBox(t)
	files := []string{".gemini/settings.json", "opencode.json", ".opencode/plugin/x.js", ".cursor/hooks.json", ".vscode/mcp.json", ".zed/tasks.json", ".devcontainer.json", ".claude/commands/x.md", ".gdbinit", ".Rprofile"}
	for _, f := range files {
		b.file("p/"+f, "host\n", 0o644)
	}
	p := b.dir + "/p"
	r := b.in(p, "run", "--here", "--", "sh", "-c", `for f in `+strings.Join(files, " ")+`; do (echo evil > $f; rm -f $f; mv ${f%/*} moved) 2>/dev/null && echo "$f"; done
		i=0; while [ $i -lt 25 ]; do mkdir -p a$i node_modules/$i; echo x | tee a$i/package.json node_modules/$i/package.json > /dev/null; i=$((i+1)); done; mkdir -p x/y; echo evil > x/y/.envrc`)
	for _, f := range files {
		if read(p+"/"+f) != "host\n" {
			t.Errorf("%s was changed", f)
		}
	}
	want := "run: review before use: " + p + "/x/y/.envrc (new), which direnv would execute\ndemesne: run: review before use: 25 files that builds would execute: " + p + "/a0/package.json (new), "
	if r.stdout != "" || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, " and 22 more\n") {
		t.Errorf("--here: %+v", r)
	}
	q := b.mkdir("q")
	b.in(q, "run", "--here=cow", "-c", "ln -s /etc out; ln -s f in; mkdir .gemini; echo x > .gemini/settings.json; echo x > Makefile")
	id := b.changes()
	if r := b.in(q, "diff", id); !strings.Contains(r.stdout, "A "+q+"/out  (leads out of the directory, to /etc)\n") {
		t.Errorf("diff: %+v", r)
	}
	r = b.in(q, "apply", id)
	for _, want := range []string{q + "/Makefile (new), which make would execute\n", "left out " + q + "/.gemini/settings.json, which Gemini CLI", q + "/out, a link that leads out of the directory: to /etc\n"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("apply: %q is not in %+v", want, r)
		}
	}
	if strings.Contains(r.stderr, q+"/in") {
		t.Errorf("apply: %+v", r)
	}
	b.in(q, "discard", id)
}

// TestMountsCache checks that a cache is shared by the sandboxes that name it, and by no other.
func TestMountsCache(t *testing.T) {
	b := newBox(t)
	first := b.in(b.dir, "run", "--cache", "npm", "--cache", "go", "--", "sh", "-c", `echo $npm_config_cache $GOMODCACHE $GOCACHE; echo data > $npm_config_cache/x`)
	if first.stdout != "/var/cache/demesne/npm /var/cache/demesne/go/mod /var/cache/demesne/go/build\n" {
		t.Errorf("variables: %+v", first)
	}
	if got := b.in(b.dir, "run", "--cache", "npm", "--", "cat", "/var/cache/demesne/npm/x"); got.stdout != "data\n" {
		t.Errorf("second sandbox: %+v", got)
	}
	if got := b.in(b.dir, "run", "--", "ls", "/var/cache"); got.stdout != "" {
		t.Errorf("without the flag: %+v", got)
	}
	if read(b.home+"/.demesne/cache/npm/x") != "data\n" {
		t.Error("the cache is not in ~/.demesne/cache")
	}
	if r := b.in(b.dir, "run", "--cache", "nmp", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "npm") {
		t.Errorf("unknown cache: %+v", r)
	}
}

// TestMountsGitIdentity checks when git in a sandbox has the caller's name.
func TestMountsGitIdentity(t *testing.T) {
	b := newBox(t)
	program(t, "git")
	b.extra = append(b.extra, "XDG_CONFIG_HOME="+b.dir+"/x")
	b.file("x/git/config", "[user]\n\tname = A  Person\n\temail = a@example.com\n", 0o644)
	p := b.mkdir("p")
	const show = `echo "$GIT_AUTHOR_NAME <$GIT_COMMITTER_EMAIL>"`
	for _, row := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--here"}, "A  Person <a@example.com>\n"},
		{[]string{"--workspace", "."}, "A  Person <a@example.com>\n"},
		{[]string{"--git-identity"}, "A  Person <a@example.com>\n"},
		{[]string{"--here", "--git-identity=no"}, " <>\n"},
		{[]string{"--here", "--env", "GIT_AUTHOR_NAME=me"}, "me <a@example.com>\n"},
		{nil, " <>\n"},
	} {
		if r := b.in(p, slices.Concat([]string{"run"}, row.flags, []string{"-c", show})...); r.stdout != row.want {
			t.Errorf("%q: %+v", row.flags, r)
		}
	}
}

// id returns the id of the only changes that are kept apart, or "".
func (b *box) changes() string {
	b.Helper()
	var all []struct{ ID string }
	if err := json.Unmarshal([]byte(b.in(b.dir, "diff", "--json").stdout), &all); err != nil || len(all) == 0 {
		return ""
	}
	return all[0].ID
}

// cowScript changes a tree in each way that an overlay knows.
const cowScript = `set -e; echo changed >> mod; rm gone; rm -r dir; mkdir dir; echo new > dir/new; mv moved moved2; ln -s mod link; echo h > h1; ln h1 h2
	chmod 700 mode; touch -d @1000000000 h1; chmod u+s h1 2>/dev/null || true; rm file; mkdir file; mkfifo fifo; echo evil > .git/hooks/post-commit; cat same`

const cowDiff = `A .git/hooks/post-commit  (executed by git; apply it by its path)
D dir/old
A dir/new
A fifo  (not a file: never applied)
M file
D gone
A h1
A h2
A link
M mod
M mode
D moved
A moved2
A moved2/x
`

// cowTree makes the tree of cowScript.
func (b *box) cowTree() (dir string) {
	for _, name := range []string{"mod", "gone", "dir/old", "moved/x", "same", "file", ".git/hooks/x.sample"} {
		b.file("p/"+name, name+"\n", 0o644)
	}
	b.mkdir("p/mode")
	if b.uid >= 0 {
		filepath.Walk(b.dir+"/p", func(p string, _ os.FileInfo, _ error) error { return os.Chown(p, b.uid, b.uid) })
	}
	return b.dir + "/p"
}

// applied runs cowScript with flags and applies what it did.
func (b *box) applied(dir string, flags ...string) {
	b.Helper()
	before := listing(dir)
	r := b.in(dir, slices.Concat([]string{"run"}, flags, []string{"-c", cowScript})...)
	if r.code != 0 || r.stdout != "same\n" || !strings.Contains(r.stderr, "run: kept apart from "+dir+": 8 added, 3 modified, 3 deleted\n") {
		b.Errorf("run: %+v", r)
	}
	if now := listing(dir); now != before {
		b.Errorf("the directory changed from %q to %q", before, now)
	}
	id := b.changes()
	want := strings.Split(cowDiff, "\n")
	got := strings.Split(strings.ReplaceAll(b.in(dir, "diff", id).stdout, dir+"/", ""), "\n")
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		b.Errorf("diff: %q", got)
	}
	r = b.in(dir, "apply", id, "mod")
	if r.code != 0 || r.stdout != "1 applied, 13 left\n" || read(dir+"/mod") != "mod\nchanged\n" {
		b.Errorf("apply one: %+v", r)
	}
	r = b.in(dir, "apply", id)
	if r.code != 1 || r.stdout != "11 applied, 2 left\n" || !strings.Contains(r.stderr, "left out "+dir+"/.git/hooks/post-commit, which git would execute") {
		b.Errorf("apply: %+v", r)
	}
	if got := listing(dir); got != ".git/ .git/hooks/ .git/hooks/x.sample dir/ dir/new file/ h1 h2 link mod mode/ moved2/ moved2/x same" {
		b.Errorf("after apply: %s", got)
	}
	h1, err := os.Stat(dir + "/h1")
	h2, _ := os.Stat(dir + "/h2")
	mode, _ := os.Stat(dir + "/mode")
	if err != nil || !os.SameFile(h1, h2) || h1.Mode() != 0o644 || !h1.ModTime().Equal(time.Unix(1e9, 0)) || mode.Mode().Perm() != 0o700 {
		b.Errorf("attributes: %v %v %v", h1, h2, mode)
	}
	uid := b.uid
	if uid < 0 {
		uid = os.Getuid()
	}
	if st := h1.Sys().(*syscall.Stat_t); int(st.Uid) != uid {
		b.Errorf("owner: %d", st.Uid)
	}
	if r := b.in(dir, "discard", id); r.code != 0 || b.changes() != "" || len(names(b.home+"/.demesne/changes")) > 0 {
		b.Errorf("discard: %+v", r)
	}
}

// listing returns the names below a directory.
func listing(dir string) string {
	var all []string
	filepath.WalkDir(dir, func(p string, d os.DirEntry, _ error) error {
		name, _ := filepath.Rel(dir, p)
		if d.IsDir() {
			name += "/"
		}
		all = append(all, name)
		return nil
	})
	return strings.Join(all[1:], " ")
}

// TestCowApply checks that a directory with mode cow stays as it is until its changes are applied: on the host's files and
// on an image, at its own path and as workspace, and without subordinate ids.
func TestCowApply(t *testing.T) {
	t.Run("here", func(t *testing.T) {
		b := newBox(t)
		b.applied(b.cowTree(), "--here=cow")
	})
	t.Run("workspace", func(t *testing.T) {
		b := newBox(t)
		b.applied(b.cowTree(), "--workspace", b.dir+"/p:cow")
	})
	t.Run("image", func(t *testing.T) {
		g := newGallery(t)
		g.push("cow:1", v1.Config{WorkingDir: "/elsewhere"}, g.busybox())
		g.box.applied(g.box.cowTree(), "--workspace", g.dir+"/p:cow", "--image", g.reg.Ref("cow:1"))
	})
	if os.Getuid() != 0 {
		return // root alone can become a user without subordinate ids
	}
	t.Run("without subordinate ids", func(t *testing.T) {
		b := newBox(t).as(54321)
		b.applied(b.cowTree(), "--here=cow")
	})
}

// TestCowMeanwhile checks that apply leaves what the caller changed after the start.
func TestCowMeanwhile(t *testing.T) {
	b := newBox(t)
	f := b.file("p/f", "old\n", 0o644)
	g := b.file("p/g", "old\n", 0o644)
	p := b.dir + "/p"
	b.in(p, "run", "--here=cow", "-c", "echo sandbox > f; echo sandbox > g; echo sandbox > n")
	b.file("p/f", "mine\n", 0o644)
	b.file("p/n", "mine\n", 0o644)
	id := b.changes()
	if r := b.in(p, "diff", id); !strings.Contains(r.stdout, "M "+f+"  (changed here meanwhile)\n") {
		t.Errorf("diff: %+v", r)
	}
	r := b.in(p, "apply", id)
	if r.code != 1 || r.stdout != "1 applied, 2 left\n" || !strings.Contains(r.stderr, f+": changed meanwhile") || read(f)+read(g)+read(p+"/n") != "mine\nsandbox\nmine\n" {
		t.Errorf("apply: %+v", r)
	}
	r = b.in(p, "apply", "--force", id, "f", "n")
	if r.code != 0 || r.stdout != "2 applied, 0 left\n" || read(f)+read(p+"/n") != "sandbox\nsandbox\n" || b.changes() != "" {
		t.Errorf("apply --force: %+v", r)
	}
	for _, args := range [][]string{{"apply"}, {"apply", "01234567"}, {"discard", "nosuch"}, {"apply", id, "x"}} {
		if r := b.in(p, args...); r.code != 125 || !strings.Contains(r.stderr, "hint: demesne diff") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// TestCowUnchanged checks that a run which changed nothing leaves nothing.
func TestCowUnchanged(t *testing.T) {
	b := newBox(t)
	b.file("p/f", "old\n", 0o644)
	r := b.in(b.dir+"/p", "run", "--here=cow", "-c", "cat f; : >> f; echo x > new; rm new")
	if r.code != 0 || r.stdout != "old\n" || r.stderr != "" || len(names(b.home+"/.demesne/changes")) > 0 {
		t.Errorf("unchanged: %+v, left %q", r, names(b.home+"/.demesne/changes"))
	}
	r = b.in(b.dir+"/p", "run", "--here=cow", "--memory", "1k", "--", "true")
	if r.code != 125 || len(names(b.home+"/.demesne/changes")) > 0 {
		t.Errorf("refused: %+v, left %q", r, names(b.home+"/.demesne/changes"))
	}
}

// TestCowPersistent checks that a persistent sandbox keeps its changes apart over commands and restarts, and that they can
// be applied once it is stopped.
func TestCowPersistent(t *testing.T) {
	b := newBox(t)
	b.file("p/f", "old\n", 0o644)
	p := b.dir + "/p"
	r := b.in(p, "create", "--name", "box", "--here=cow")
	id := b.changes()
	if r.code != 0 || !strings.Contains(r.stderr, "create: changes to "+p+" are kept apart, as "+id) {
		t.Fatalf("create: %+v", r)
	}
	b.in(p, "exec", "box", "-c", "echo one > f; echo two > g")
	if r := b.in(p, "apply", id); r.code != 125 || !strings.Contains(r.stderr, "a sandbox is using them") {
		t.Errorf("apply while it runs: %+v", r)
	}
	if r := b.in(p, "fork", "box"); r.code != 125 || !strings.Contains(r.stderr, "are kept apart") {
		t.Errorf("fork: %+v", r)
	}
	if r := b.in(p, "diff", "box"); r.code != 0 || !strings.Contains(r.stderr, "hint: demesne diff "+id+" lists the changes to directories with mode cow\n") {
		t.Errorf("diff of the sandbox: %+v", r)
	}
	b.in(p, "stop", "box")
	if r := b.in(p, "apply", "box", "f"); r.code != 0 || read(p+"/f") != "one\n" {
		t.Errorf("apply: %+v", r)
	}
	if r := b.in(p, "exec", "box", "-c", "cat f g; rm f"); r.stdout != "one\ntwo\n" {
		t.Errorf("restarted: %+v", r)
	}
	b.in(p, "stop", "box")
	if r := b.in(p, "apply", "box"); r.code != 0 || read(p+"/g") != "two\n" || listing(p) != "g" {
		t.Errorf("apply again: %+v, %s", r, listing(p))
	}
	if r := b.in(p, "exec", "box", "-c", "ls"); r.stdout != "g\n" {
		t.Errorf("after all was applied: %+v", r)
	}
	if r := b.in(p, "rm", "box"); r.code != 0 || b.changes() != "" {
		t.Errorf("rm: %+v, left %q", r, b.changes())
	}
}

// TestWorkspaceOverWorkdir checks that a workspace wins over the image's working directory, and --workdir over both.
func TestWorkspaceOverWorkdir(t *testing.T) {
	g := newGallery(t)
	g.push("wd:1", v1.Config{WorkingDir: "/made/for/it"}, g.busybox())
	ref, dir := g.reg.Ref("wd:1"), g.mkdir("p")
	for want, flags := range map[string][]string{
		"/made/for/it\n": nil, "/workspace\n": {"--workspace", dir}, "/tmp\n": {"--workspace", dir, "--workdir", "/tmp"}, dir + "\n": {"--mount", dir, "--workdir", dir},
	} {
		if r := g.do(slices.Concat([]string{"run", "--image", ref}, flags, []string{"--", "pwd"})...); r.stdout != want {
			t.Errorf("%q: %+v", flags, r)
		}
	}
}

// TestCowAsk checks that --cow ask lists, applies, keeps or discards changes as the user answers, and that it needs a
// terminal.
func TestCowAsk(t *testing.T) {
	b := newBox(t)
	f := b.file("p/f", "old\n", 0o644)
	p := b.dir + "/p"
	ask := func(text string, keys ...string) {
		t.Helper()
		cmd := b.command("demesne", "run", "--here=cow", "--cow", "ask", "-c", "echo "+text+" > f")
		cmd.Dir = p
		term := b.terminalOf(cmd)
		for i, key := range keys {
			eventually(t, "the question", func() bool { return strings.Count(term.screen(), "[p]atch: ") > i })
			term.typ(key + "\n")
			if key == "l" {
				term.expect("M " + f)
			}
			if key == "p" {
				term.expect("+" + text)
			}
		}
		if code := term.wait(); code != 0 {
			t.Errorf("%q: exit %d: %s", keys, code, term.screen())
		}
	}
	ask("one", "l", "p", "y")
	if read(f) != "one\n" || b.changes() != "" {
		t.Errorf("yes: %q, left %q", read(f), b.changes())
	}
	ask("two", "what", "d")
	if read(f) != "one\n" || b.changes() != "" {
		t.Errorf("discard: %q, left %q", read(f), b.changes())
	}
	ask("three", "n")
	if id := b.changes(); read(f) != "one\n" || id == "" {
		t.Errorf("no: %q, left %q", read(f), id)
	} else if r := b.in(p, "apply", id); r.code != 0 || read(f) != "three\n" {
		t.Errorf("apply: %+v", r)
	}
	cmd := b.command("demesne", "run", "--here=cow", "--cow", "ask", "--", "true")
	cmd.SysProcAttr.Setsid = true
	if r := b.finish(cmd); r.code != 125 || !strings.Contains(r.stderr, "there is no terminal to ask on") {
		t.Errorf("without a terminal: %+v", r)
	}
	if r := b.in(p, "run", "--cow", "ask", "--here", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "no directory has mode cow") {
		t.Errorf("without cow: %+v", r)
	}
}

// TestCowKilled checks that the changes of a sandbox whose runner was killed are the caller's, and can be applied.
func TestCowKilled(t *testing.T) {
	b := newBox(t)
	b.mkdir("p")
	cmd := b.command("demesne", "run", "--mount", b.dir+"/p:cow", "-c", "echo x > "+b.dir+"/p/f; echo ready; sleep 60")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 6))
	for _, p := range descendants() {
		if p.name == "demesne-runner" {
			syscall.Kill(p.pid, syscall.SIGKILL)
			break
		}
	}
	cmd.Wait()
	eventually(t, "the changes to be free", func() bool {
		r := b.in(b.dir, "apply", b.changes())
		return r.code == 0 && r.stdout == "1 applied, 0 left\n"
	})
	if read(b.dir+"/p/f") != "x\n" {
		t.Error("not applied")
	}
}
