package upper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// overTest is a directory and an upper over it, made without overlayfs.
type overTest struct {
	*testing.T
	up, dir string
	over    *Over
}

func newOver(t *testing.T) *overTest {
	return &overTest{T: t, up: t.TempDir(), dir: t.TempDir()}
}

// write makes files: "NAME=TEXT", "NAME/", "NAME->TARGET".
func (o *overTest) write(root string, files ...string) {
	o.Helper()
	for _, f := range files {
		var err error
		if name, text, ok := strings.Cut(f, "="); ok {
			os.MkdirAll(filepath.Dir(root+"/"+name), 0o755)
			err = os.WriteFile(root+"/"+name, []byte(text), 0o644)
		} else if name, target, ok := strings.Cut(f, "->"); ok {
			err = os.Symlink(target, root+"/"+name)
		} else {
			err = os.MkdirAll(root+"/"+f, 0o755)
		}
		if err != nil {
			o.Fatal(err)
		}
	}
}

func (o *overTest) whiteout(name string) {
	o.Helper()
	os.MkdirAll(filepath.Dir(o.up+"/"+name), 0o755)
	if err := unix.Mknod(o.up+"/"+name, unix.S_IFCHR, 0); err != nil {
		o.Fatal(err)
	}
}

// open ends the preparation: later changes of the directory are the caller's.
func (o *overTest) open() {
	o.Helper()
	up, err1 := os.Open(o.up)
	dir, err2 := os.Open(o.dir)
	if err := errors.Join(err1, err2); err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() { up.Close(); dir.Close() })
	time.Sleep(20 * time.Millisecond) // a ctime is as coarse as the kernel's tick
	o.over = &Over{Up: up, Dir: dir, Since: time.Now()}
	time.Sleep(20 * time.Millisecond)
}

func (o *overTest) edits() []Edit {
	o.Helper()
	edits, all, err := o.over.Edits()
	if err != nil || !all {
		o.Fatal(all, err)
	}
	return edits
}

func (o *overTest) words() (words []string) {
	o.Helper()
	for _, e := range o.edits() {
		w := fmt.Sprintf("%c %s", e.Kind, e.Path)
		if e.By != "" {
			w += " by " + e.By
		}
		if e.Guarded {
			w += " guarded"
		}
		if e.Changed {
			w += " changed"
		}
		if e.Special {
			w += " special"
		}
		if e.Leads != "" {
			w += " leads to " + e.Leads
		}
		words = append(words, w)
	}
	return words
}

// applyAll applies edits as a caller does, and returns the paths that were refused.
func (o *overTest) applyAll(force bool) (refused []string) {
	o.Helper()
	edits := o.edits()
	slices.SortStableFunc(edits, func(a, b Edit) int { return b2i(a.Kind == 'D') - b2i(b.Kind == 'D') })
	for _, e := range edits {
		if err := o.over.Apply(e, force); err != nil {
			refused = append(refused, e.Path+": "+err.Error())
		}
	}
	if err := o.over.Finish(); err != nil {
		o.Error(err)
	}
	return refused
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (o *overTest) want(got []string, want ...string) {
	o.Helper()
	if !slices.Equal(got, want) {
		o.Errorf("got %q, want %q", got, want)
	}
}

// list returns the names below the directory, with their content.
func (o *overTest) list() (names []string) {
	o.Helper()
	filepath.WalkDir(o.dir, func(p string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(o.dir, p)
		switch {
		case err != nil || name == ".":
			return err
		case d.IsDir():
			names = append(names, name+"/")
		case d.Type() == os.ModeSymlink:
			to, _ := os.Readlink(p)
			names = append(names, name+"->"+to)
		default:
			b, _ := os.ReadFile(p)
			names = append(names, name+"="+string(b))
		}
		return nil
	})
	return names
}

// TestOverEdits checks each kind of edit, and that Apply makes the directory what the sandbox saw.
func TestOverEdits(t *testing.T) {
	o := newOver(t)
	o.write(o.dir, "same=1", "mod=1", "gone=1", "d/in=1", "d/deep/x=1", "opaque/old=1", "opaque/kept=1", "opaque/sub/y=1", "file=1", "dir/z=1", "link->a", "samelink->a", "mode/")
	o.write(o.up, "new=2", "mod=22", "newdir/a=2", "newdir/b/c=3", "opaque/kept=22", "opaque/sub/n=4", "file/now/dir=5", "dir=6", "link->b", "samelink->a", "mode/")
	o.whiteout("gone")
	o.whiteout("d")
	o.whiteout("never")
	st, _ := os.Stat(o.dir + "/same")
	o.write(o.up, "same=1")
	old := time.Unix(1e9, 12345)
	err := errors.Join(os.Chtimes(o.up+"/same", st.ModTime(), st.ModTime()), os.Chmod(o.up+"/mode", 0o700),
		unix.Setxattr(o.up+"/opaque", "user.overlay.opaque", []byte("y"), 0),
		os.Chmod(o.up+"/new", 0o4751), os.Chtimes(o.up+"/new", old, old), os.Link(o.up+"/new", o.up+"/newdir/hard"), os.Chtimes(o.up+"/newdir", old, old))
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(o.up+"/new", 0o751|os.ModeSetuid)
	o.open()
	o.want(o.words(), "D d", "M dir", "M file", "A file/now", "A file/now/dir", "D gone", "M link", "M mod", "M mode", "A new", "A newdir", "A newdir/a", "A newdir/b",
		"A newdir/b/c", "A newdir/hard", "M opaque/kept", "D opaque/old", "A opaque/sub/n", "D opaque/sub/y")
	o.want(o.applyAll(false))
	o.want(o.list(), "dir=6", "file/", "file/now/", "file/now/dir=5", "link->b", "mod=22", "mode/", "new=2", "newdir/", "newdir/a=2", "newdir/b/", "newdir/b/c=3",
		"newdir/hard=2", "opaque/", "opaque/kept=22", "opaque/sub/", "opaque/sub/n=4", "same=1", "samelink->a")
	o.want(o.words())
	n, _ := os.Stat(o.dir + "/new")
	h, _ := os.Stat(o.dir + "/newdir/hard")
	d, _ := os.Stat(o.dir + "/newdir")
	m, _ := os.Stat(o.dir + "/mode")
	if !os.SameFile(n, h) || n.Mode() != 0o751 || !n.ModTime().Equal(old) || !d.ModTime().Equal(old) || m.Mode().Perm() != 0o700 {
		t.Errorf("new %v %v, hard link %v, directory %v, mode %v", n.Mode(), n.ModTime(), os.SameFile(n, h), d.ModTime(), m.Mode())
	}
}

// TestOverChanged checks that Apply leaves what the caller changed meanwhile, before and after the edits were found.
func TestOverChanged(t *testing.T) {
	o := newOver(t)
	o.write(o.dir, "early=1", "late=1", "gone=1", "tree/a=1", "tree2/a=1", "ok=1")
	o.write(o.up, "early=2", "late=22", "new=2", "new2=2", "gone=22", "ok=22")
	o.whiteout("tree")
	o.whiteout("tree2")
	o.open()
	o.write(o.dir, "early=mine", "new=mine", "tree/a=mine")
	o.want(o.words(), "M early changed", "M gone", "M late", "M new changed", "A new2", "M ok", "D tree", "D tree2")
	o.write(o.dir, "late=mine", "new2=mine")
	os.Remove(o.dir + "/gone")
	o.want(o.applyAll(false), "early: changed meanwhile", "gone: changed meanwhile", "late: changed meanwhile", "new: changed meanwhile", "new2: changed meanwhile", "tree: changed meanwhile")
	o.want(o.list(), "early=mine", "late=mine", "new=mine", "new2=mine", "ok=22", "tree/", "tree/a=mine")
	o.want(o.applyAll(true))
	o.want(o.list(), "early=2", "gone=22", "late=22", "new=2", "new2=2", "ok=22")
}

// TestOverLinks checks that a link which leads out of the directory is named, however it does.
func TestOverLinks(t *testing.T) {
	o := newOver(t)
	o.write(o.dir, "d/e/f=1", "top/", "mine->/etc")
	o.write(o.up, ".claude/", "abs->/etc/passwd", "self->"+o.dir+"/d/e", "near->"+o.dir+"x/d", "up->..", "dot->.", "in->d/e/f", "gone->none/x", "d/", "d/up->../top", "d/out->../../x", "d/e/", "d/e/a->../../top",
		"d/e/b->a/../../x", "mine2->mine/passwd", "abs2->"+o.dir+"/mine/x", "abs3->"+o.dir+"/../x", ".vscode->/tmp/evil", ".claude/commands->../x")
	o.open()
	o.want(o.words(), "A .claude", "A .claude/commands by Claude Code guarded", "A .vscode by VS Code guarded leads to /tmp/evil", "A abs leads to /etc/passwd", "A abs2 leads to "+o.dir+"/mine/x",
		"A abs3 leads to "+o.dir+"/../x", "A d/e/a", "A d/e/b leads to a/../../x", "A d/out leads to ../../x", "A d/up", "A dot", "A gone", "A in", "A mine2 leads to mine/passwd", "A near leads to "+o.dir+"x/d",
		"A self", "A up leads to ..")
}

// TestOverHostile checks what a sandbox may leave: special files, files that the host executes, links on the way.
func TestOverHostile(t *testing.T) {
	o := newOver(t)
	o.write(o.dir, ".git/config=[core]\n\thooksPath = tools/hooks\n", ".git/HEAD=x", ".git/hooks/", "tools/hooks/pre-commit=1", "out/a=1")
	outside := t.TempDir()
	o.write(o.up, ".git/config=evil", ".git/hooks/post-commit=evil", "tools/hooks/pre-commit=evil", "tools/hooks/commit-msg=evil", "sub/", "sub/.git->../x", ".gemini/extensions/x/y.json=evil", "opencode.json={}", ".devcontainer/x/devcontainer.json=evil", "AGENTS.md=evil", "node_modules/p/package.json={}", ".opencode/node_modules/x.js=evil", ".envrc=evil", "Makefile=all:", "b/HEAD=x", "b/objects/",
		"b/config=evil", "b/hooks/x=evil", ".vscode->x", "out/a=2222")
	if err := unix.Mkfifo(o.up+"/fifo", 0o666); err != nil {
		t.Fatal(err)
	}
	o.open()
	o.want(o.words(), "A .devcontainer", "A .devcontainer/x", "A .devcontainer/x/devcontainer.json by VS Code guarded", "A .envrc by direnv guarded", "A .gemini", "A .gemini/extensions", "A .gemini/extensions/x", "A .gemini/extensions/x/y.json by Gemini CLI guarded", "M .git/config by git guarded", "A .git/hooks/post-commit by git guarded", "A .opencode", "A .opencode/node_modules", "A .opencode/node_modules/x.js by opencode guarded", "A .vscode by VS Code guarded", "A AGENTS.md by agents", "A Makefile by make", "A b", "A b/HEAD",
		"A b/config by git guarded", "A b/hooks", "A b/hooks/x by git guarded", "A b/objects", "A fifo special", "A node_modules", "A node_modules/p", "A node_modules/p/package.json", "A opencode.json by opencode guarded", "M out/a", "A sub", "A sub/.git by git guarded",
		"A tools/hooks/commit-msg by git guarded", "M tools/hooks/pre-commit by git guarded")
	edits := o.edits()
	// Another sandbox replaces a directory by a link meanwhile.
	os.Rename(o.dir+"/out", o.dir+"/moved")
	os.Symlink(outside, o.dir+"/out")
	for _, e := range edits {
		if e.Path == "out/a" || e.Special {
			if err := o.over.Apply(e, true); err == nil {
				t.Errorf("%s was applied", e.Path)
			}
		}
	}
	if names, _ := os.ReadDir(outside); len(names) > 0 {
		t.Errorf("applied outside: %v", names)
	}
}

// TestOverTexts checks what Texts reads, and that it follows no link and reads neither large nor binary files.
func TestOverTexts(t *testing.T) {
	o := newOver(t)
	o.write(o.dir, "mod=old\n", "bin=a\x00b", "gone=old\n", "link->a", "kind=text\n")
	o.write(o.up, "mod=new\n", "bin=text", "new=n\n", "link->b", "kind->/etc/shadow", "huge=", "dir/")
	os.Truncate(o.up+"/huge", textMost+1)
	o.whiteout("gone")
	o.open()
	var got []string
	for _, e := range o.edits() {
		x, err := o.over.Texts(e)
		got = append(got, fmt.Sprintf("%s %q %q %o %o %s %v", e.Path, x.Old, x.New, x.OldMode, x.NewMode, x.Unshown, err))
	}
	o.want(got,
		`bin "" "text" 100644 100644 binary <nil>`, `dir "" "" 0 40755  <nil>`, `gone "old\n" "" 100644 0  <nil>`,
		`huge "" "" 0 100644 larger than 1024 KiB <nil>`, `kind "text\n" "/etc/shadow" 100644 120777  <nil>`,
		`link "a" "b" 120777 120777  <nil>`, `mod "old\n" "new\n" 100644 100644  <nil>`, `new "" "n\n" 0 100644  <nil>`)
}

// TestOverSeen checks that ApplySeen replaces the file that the caller saw and no later one, and that an edit which was
// made in part remains.
func TestOverSeen(t *testing.T) {
	o := newOver(t)
	o.write(o.dir, "mine=1\n", "part=a\nb\n", "race=1\n")
	o.write(o.up, "mine=22\n", "part=A\nB\n", "race=22\n")
	o.open()
	o.write(o.dir, "mine=changed\n")
	for _, e := range o.edits() {
		x, err := o.over.Texts(e)
		if err != nil {
			t.Fatal(err)
		}
		switch e.Path {
		case "part":
			err = o.over.ApplySeen(e, x.State, []byte("A\nb\n"))
		case "race":
			o.write(o.dir, "race=later\n")
			if err = o.over.ApplySeen(e, x.State, nil); err == ErrChanged {
				err = nil
			}
		default:
			err = o.over.ApplySeen(e, x.State, nil)
		}
		if err != nil {
			t.Errorf("%s: %v", e.Path, err)
		}
	}
	o.want(o.list(), "mine=22\n", "part=A\nb\n", "race=later\n")
	o.want(o.words(), "M part", "M race changed")
	o.want(o.applyAll(false), "race: changed meanwhile")
	o.want(o.list(), "mine=22\n", "part=A\nB\n", "race=later\n")
}

// TestOverCaches checks that files of caches are no conflicts, and that others of similar names are.
func TestOverCaches(t *testing.T) {
	o := newOver(t)
	o.write(o.dir, "p/__pycache__/a=1", "node_modules/.cache/x/y=1", ".mypy_cache/c=1", "cache/z=1", "__pycache__x/b=1")
	o.write(o.up, "p/__pycache__/a=22", "p/__pycache__/new=22", "node_modules/.cache/x/y=22", "cache/z=22", "__pycache__x/b=22")
	o.whiteout(".mypy_cache")
	o.open()
	o.write(o.dir, "p/__pycache__/a=mine", "p/__pycache__/new=mine", "node_modules/.cache/x/y=mine", ".mypy_cache/c=mine", "cache/z=mine", "__pycache__x/b=mine")
	o.want(o.words(), "D .mypy_cache", "M __pycache__x/b changed", "M cache/z changed", "M node_modules/.cache/x/y", "M p/__pycache__/a", "M p/__pycache__/new")
	o.want(o.applyAll(false), "__pycache__x/b: changed meanwhile", "cache/z: changed meanwhile")
	o.want(o.list(), "__pycache__x/", "__pycache__x/b=mine", "cache/", "cache/z=mine", "node_modules/", "node_modules/.cache/", "node_modules/.cache/x/", "node_modules/.cache/x/y=22",
		"p/", "p/__pycache__/", "p/__pycache__/a=22", "p/__pycache__/new=22")
}
