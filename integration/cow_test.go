package integration

import (
	"os"
	"strings"
	"testing"
)

// edited runs a script on a copy of a directory with a text of 30 lines, a link and a binary file.
func (b *box) edited(script string) (dir string) {
	b.Helper()
	var text strings.Builder
	for i := range 30 {
		text.WriteString("line " + string(rune('A'+i)) + "\n")
	}
	b.file("p/text", text.String(), 0o644)
	b.file("p/old", "gone\n", 0o644)
	b.file("p/.git/HEAD", "ref: refs/heads/main\n", 0o644)
	b.mkdir("p/.git/hooks")
	b.mkdir("p/.git/objects")
	dir = b.dir + "/p"
	b.Cleanup(func() { b.in(dir, "discard") })
	if r := b.in(dir, "run", "--here=cow", "-c", script); r.code != 0 {
		b.Fatalf("run: %+v", r)
	}
	return dir
}

// editScript changes the first and the last line of the text, and makes other files.
const editScript = `set -e; sed -i '1s/.*/FIRST/; 30s/.*/LAST/' text; rm old; printf 'a\0b' > bin; printf 'x\033[2Jy\n' > esc; chmod +x esc
mkdir -p new/deep; echo one > new/deep/file; mkdir empty; ln -s /etc/hostname out; echo evil > .git/hooks/post-commit`

// TestCowPatch checks what diff --patch shows: contents, modes, links and deletions, no control sequence and no binary file;
// and that diff, apply and discard need no id while there is one sandbox with changes.
func TestCowPatch(t *testing.T) {
	b := newBox(t)
	p := b.edited(editScript)
	r := b.in(p, "diff", "--patch")
	want := `A P/.git/hooks/post-commit  (executed by git; apply it by its path)
--- /dev/null
+++ P/.git/hooks/post-commit
@@ -0,0 +1,1 @@
+evil
A P/bin
the content is not shown: binary
A P/empty
A P/esc
mode 100755
--- /dev/null
+++ P/esc
@@ -0,0 +1,1 @@
+x^[[2Jy
A P/new
A P/new/deep
A P/new/deep/file
--- /dev/null
+++ P/new/deep/file
@@ -0,0 +1,1 @@
+one
D P/old
--- P/old
+++ /dev/null
@@ -1,1 +0,0 @@
-gone
A P/out  (leads out of the directory, to /etc/hostname)
mode 120777
--- /dev/null
+++ P/out
@@ -0,0 +1,1 @@
+/etc/hostname
\ No newline at end of file
M P/text
--- P/text
+++ P/text
@@ -1,4 +1,4 @@
-line A
+FIRST
 line B
 line C
 line D
@@ -27,4 +27,4 @@
 line [
 line \
 line ]
-line ^
+LAST
`
	if got := strings.ReplaceAll(r.stdout, p, "P"); r.code != 0 || got != want || r.stderr != "" {
		t.Errorf("diff --patch: %d %s%s, want %s", r.code, r.stderr, got, want)
	}
	if r := b.in(p, "diff", "--patch", "new", "old"); !strings.Contains(r.stdout, "+one") || !strings.Contains(r.stdout, "-gone") || strings.Contains(r.stdout, "FIRST") {
		t.Errorf("diff --patch of paths: %+v", r)
	}
	if r := b.in(p, "diff"); !strings.HasPrefix(r.stdout, "A "+p+"/.git/hooks/post-commit  (") {
		t.Errorf("diff: %+v", r)
	}
	if r := b.in(p, "apply", "text"); r.code != 0 || !strings.HasPrefix(r.stdout, "1 applied, ") || !strings.HasPrefix(read(p+"/text"), "FIRST\n") {
		t.Errorf("apply without an id: %+v", r)
	}
	for _, row := range []struct {
		args []string
		says string
	}{
		{[]string{"diff", "--patch", "nosuch"}, "nothing changed there"},
		{[]string{"diff", "--patch", "--json"}, "cannot be combined with --json"},
		{[]string{"apply", "01234567"}, `changes "01234567": no such changes`},
		{[]string{"apply", "--interactive", "--force"}, "cannot be combined with --force"},
	} {
		if r := b.in(p, row.args...); r.code == 0 || !strings.Contains(r.stderr, row.says) {
			t.Errorf("%q: %+v", row.args, r)
		}
	}
	b.in(p, "run", "--here=cow", "-c", "echo > other")
	for _, args := range [][]string{{"apply"}, {"discard"}, {"diff", "--patch"}, {"apply", "text"}} {
		if r := b.in(p, args...); r.code != 125 || !strings.Contains(r.stderr, "hint: demesne diff lists all") {
			t.Errorf("%q with two: %+v", args, r)
		}
	}
	if r := b.in(p, "diff"); strings.Count(r.stdout, "  "+p+"\n") != 2 {
		t.Errorf("diff with two: %+v", r)
	}
	b.in(p, "discard", b.changes())
	if r := b.in(p, "discard"); r.code != 0 || b.changes() != "" {
		t.Errorf("discard without an id: %+v", r)
	}
	if r := b.in(p, "discard"); r.code != 125 || !strings.Contains(r.stderr, "no changes are kept apart") {
		t.Errorf("discard with none: %+v", r)
	}
}

// TestCowPaged checks that diff --patch on a terminal has colours and goes through the pager that the user chose.
func TestCowPaged(t *testing.T) {
	b := newBox(t)
	p := b.edited("echo new > file")
	for pager, want := range map[string]string{"sed s/^/paged:/": "paged:\x1b[32m+new\x1b[0m", "cat": "\x1b[32m+new\x1b[0m", "demesne-nosuch 2>/dev/null": "\x1b[32m+new\x1b[0m"} {
		cmd := b.command("demesne", "diff", "--patch")
		cmd.Dir, cmd.Env = p, append(b.environ(), "TERM=xterm", "PAGER="+pager)
		term := b.terminalOf(cmd)
		if code := term.wait(); code != 0 || !strings.Contains(term.screen(), want) || pager == "cat" && strings.Contains(term.screen(), "paged:") {
			t.Errorf("%s: exit %d: %q", pager, code, term.screen())
		}
	}
}

// TestCowInteractive checks that apply --interactive makes what the user agrees to: by file, by place of a text, and all
// that follow except for files that this machine would execute and links that lead out.
func TestCowInteractive(t *testing.T) {
	b := newBox(t)
	p := b.edited(editScript)
	apply := func(code int, says string, args []string, answers ...string) {
		t.Helper()
		cmd := b.command("demesne", append([]string{"apply", "--interactive"}, args...)...)
		cmd.Dir = p
		term := b.terminalOf(cmd)
		for _, a := range answers {
			what, key, _ := strings.Cut(a, "=")
			term.expect(what)
			term.expect("[q]uit: ")
			term.typ(key + "\n")
		}
		if got := term.wait(); got != code || !strings.Contains(term.screen(), says) {
			t.Errorf("%q: exit %d: %s", answers, got, term.screen())
		}
	}
	apply(0, "1 applied, ", []string{"text"}, "+FIRST=what", "(1 of 2)=n", "(2 of 2)=y")
	if got := read(p + "/text"); !strings.HasPrefix(got, "line A\n") || !strings.HasSuffix(got, "line ]\nLAST\n") {
		t.Errorf("one place: %q", got)
	}
	if r := b.in(p, "diff", "--patch", "text"); !strings.Contains(r.stdout, "+FIRST") || strings.Contains(r.stdout, "+LAST") {
		t.Errorf("the other place remains: %+v", r)
	}
	b.file("p/text", strings.ReplaceAll(read(p+"/text"), "line C", "mine"), 0o644)
	apply(0, "0 applied, ", []string{"new"}, "+one=q")
	if _, err := os.Stat(p + "/new"); err == nil {
		t.Error("an answer of q made a directory")
	}
	// The text is one that the user changed, the link leads out, and git would execute the hook: each is asked about.
	apply(0, "review before use: "+p+"/.git/hooks/post-commit (new), which git would execute", nil,
		"+evil=y", "binary=a", "leads out of the directory=n", "changed here meanwhile=y")
	if got := listing(p); got != ".git/ .git/HEAD .git/hooks/ .git/hooks/post-commit .git/objects/ bin empty/ esc new/ new/deep/ new/deep/file text" {
		t.Errorf("after all: %s", got)
	}
	if got := read(p + "/text"); !strings.HasPrefix(got, "FIRST\nline B\nline C\n") {
		t.Errorf("the user agreed to replace it: %q", got)
	}
	cmd := b.command("demesne", "apply", "--interactive")
	cmd.SysProcAttr.Setsid, cmd.Dir = true, p
	if r := b.finish(cmd); r.code != 125 || !strings.Contains(r.stderr, "there is no terminal to ask on") || !strings.Contains(r.stderr, "hint: demesne diff --patch") {
		t.Errorf("without a terminal: %+v", r)
	}
}

// TestCowReview checks that a run names the files of its changes that this machine would execute, and how apply treats files
// of caches that the user's programs wrote meanwhile.
func TestCowReview(t *testing.T) {
	b := newBox(t)
	b.file("p/m.py", "old\n", 0o644)
	b.file("p/__pycache__/m.pyc", "old\n", 0o644)
	p := b.dir + "/p"
	b.Cleanup(func() { b.in(p, "discard") })
	r := b.in(p, "run", "--here=cow", "-c", "echo new > m.py; echo newer > __pycache__/m.pyc; echo x > .envrc; echo 'all:' > Makefile; ln -s /etc e")
	for _, want := range []string{p + "/.envrc (new), which direnv would execute\n", p + "/Makefile (new), which make would execute\n", p + "/e, a link that leads out of the directory: to /etc\n"} {
		if !strings.Contains(r.stderr, "demesne: run: review before use: "+want) {
			t.Errorf("no %q in %s", want, r.stderr)
		}
	}
	b.file("p/__pycache__/m.pyc", "mine\n", 0o644)
	r = b.in(p, "apply", "m.py", "__pycache__")
	if r.code != 0 || r.stdout != "2 applied, 3 left\n" || read(p+"/__pycache__/m.pyc") != "newer\n" {
		t.Errorf("apply: %+v", r)
	}
}
