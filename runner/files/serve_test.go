package files

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tree makes files below a new directory: name → content, links as "→ target".
func tree(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(path, []byte(text), 0o644)
		if to, ok := strings.CutPrefix(text, "→ "); ok {
			os.Remove(path)
			err = os.Symlink(to, path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// do sends a request as a caller does, through JSON.
func do(t *testing.T, r Request) (*Answer, error) {
	t.Helper()
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := Serve(bytes.NewReader(raw), &out); code != 0 {
		t.Fatalf("exit %d", code)
	}
	return ReadAnswer(&out)
}

func TestRead(t *testing.T) {
	dir := tree(t, map[string]string{
		"three": "one\ntwo\r\nthree", "empty": "", "binary": "a\x00b", "latin": "caf\xe9\n",
		"wide": strings.Repeat("é", lineMax) + "\nnext\n", "long": strings.Repeat("x\n", 3000), "big": strings.Repeat(strings.Repeat("y", 999)+"\n", 1000),
		"link": "→ three", "sub/f": "",
	})
	syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600)
	for _, c := range []struct {
		name string
		read Read
		want Content
		err  string
	}{
		{"all", Read{Path: "three"}, Content{Text: "     1\tone\n     2\ttwo\n     3\tthree\n", Size: 14}, ""},
		{"through a link", Read{Path: "link", Offset: 3}, Content{Text: "     3\tthree\n", Size: 14}, ""},
		{"some", Read{Path: "three", Offset: 2, Limit: 1}, Content{Text: "     2\ttwo\n", Size: 14, Cut: true, Next: 3}, ""},
		{"beyond", Read{Path: "three", Offset: 9}, Content{Size: 14}, ""},
		{"empty", Read{Path: "empty"}, Content{}, ""},
		{"binary", Read{Path: "binary"}, Content{Size: 3, Binary: true}, ""},
		{"bytes", Read{Path: "binary", Bytes: true, Offset: 2}, Content{Size: 3, Bytes: []byte("\x00b")}, ""},
		{"some bytes", Read{Path: "binary", Bytes: true, Limit: 1}, Content{Size: 3, Bytes: []byte("a"), Cut: true, Next: 2}, ""},
		{"not UTF-8", Read{Path: "latin"}, Content{Text: "     1\tcaf\uFFFD\n", Size: 5}, ""},
		{"a directory", Read{Path: "sub"}, Content{}, "sub: is a directory"},
		{"a FIFO", Read{Path: "fifo"}, Content{}, "fifo: is not a regular file"},
		{"nothing", Read{Path: "none"}, Content{}, "none: no such file or directory"},
	} {
		c.read.Path = filepath.Join(dir, c.read.Path)
		a, err := do(t, Request{Read: &c.read})
		switch {
		case c.err != "":
			if err == nil || err.Error() != filepath.Join(dir, c.err) {
				t.Errorf("%s: error %v, want %s", c.name, err, c.err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !reflect.DeepEqual(*a.Content, c.want):
			t.Errorf("%s: %+v, want %+v", c.name, *a.Content, c.want)
		}
	}
	for name, want := range map[string]struct {
		next  int64
		bytes int
	}{"long": {2001, 2000 * 9}, "wide": {0, 7 + lineMax + 1 + 7 + 5}, "big": {1 + readMax/1007, 260000}} {
		a, err := do(t, Request{Read: &Read{Path: filepath.Join(dir, name)}})
		if err != nil || !a.Content.Cut || a.Content.Next != want.next || len(a.Content.Text) > readMax || len(a.Content.Text) < want.bytes {
			t.Errorf("%s: %v, next %d, %d bytes, want %+v", name, err, a.Content.Next, len(a.Content.Text), want)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := tree(t, map[string]string{"f": "old", "link": "→ f", "dangling": "→ none", "d/x": ""})
	os.Chmod(filepath.Join(dir, "f"), 0o700)
	for _, c := range []struct {
		path    string
		created bool
		err     string
	}{
		{"f", false, ""}, {"new/deep/g", true, ""}, {"link", false, ""},
		{"dangling", false, "is a link to a file that does not exist"}, {"d", false, "is not a regular file"}, {"f/x", false, "not a directory"},
	} {
		path := filepath.Join(dir, c.path)
		a, err := do(t, Request{Write: &Write{Path: path, Content: []byte("new " + c.path)}})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", c.path, err, c.err)
			}
			continue
		}
		got, _ := os.ReadFile(path)
		if err != nil || a.Written.Created != c.created || string(got) != "new "+c.path || a.Written.Bytes != int64(len(got)) {
			t.Errorf("%s: %+v %v, %q", c.path, a, err, got)
		}
	}
	st, _ := os.Stat(filepath.Join(dir, "f"))
	if got, _ := os.ReadFile(filepath.Join(dir, "f")); string(got) != "new link" || st.Mode().Perm() != 0o700 {
		t.Errorf("through a link: %q, mode %v", got, st.Mode())
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".demesne*"))
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestEdit(t *testing.T) {
	dir := tree(t, map[string]string{"f": "a\nb\n"})
	path := filepath.Join(dir, "f")
	a, err := do(t, Request{Edit: &Edit{Path: path, Old: "b", New: "c"}})
	got, _ := os.ReadFile(path)
	if err != nil || *a.Edited != (Edited{Replaced: 1, Line: 2}) || string(got) != "a\nc\n" {
		t.Errorf("%+v %v: %q", a, err, got)
	}
	if _, err := do(t, Request{Edit: &Edit{Path: path, Old: "b", New: "c"}}); err == nil || err.Error() != path+": old_string is not in the file" {
		t.Errorf("again: %v", err)
	}
	if err := os.Truncate(path, editMax+1); err != nil {
		t.Fatal(err)
	}
	if _, err := do(t, Request{Edit: &Edit{Path: path, Old: "a", New: "c"}}); err == nil || !strings.Contains(err.Error(), "too large to edit") {
		t.Errorf("too large: %v", err)
	}
}

func TestSubstitute(t *testing.T) {
	for _, c := range []struct {
		name, text, old, fresh string
		all                    bool
		want, ignored, err     string
	}{
		{"once", "a b c", "b", "x", false, "a x c", "", ""},
		{"twice", "a a", "a", "x", false, "", "", "2 times (lines 1, 1)"},
		{"all", "a a", "a", "x", true, "x x", "", ""},
		{"none", "a", "b", "x", false, "", "", "not in the file"},
		{"empty", "a", "", "x", false, "", "", "empty"},
		{"same", "a", "a", "a", false, "", "", "the same"},
		{"removed", "a\nb\n", "b\n", "", false, "a\n", "", ""},
		{"line ends", "a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\n", false, "x\r\ny\r\nc\r\n", "line ends", ""},
		{"spaces at the end", "if x: \n  y\n", "if x:\n", "if z:\n", false, "if z:\n  y\n", "spaces at line ends", ""},
		{"indentation", "\tif x {\n\t\ty()\n\t}\n", "if x {\n  y()\n}", "\tz()", false, "\tz()\n", "indentation", ""},
		{"number of spaces", "a  =  1\nb\n", "a = 1", "a = 2", false, "a = 2\nb\n", "the number of spaces", ""},
		{"as it stands first", " a\n  b\n", "a\n", "x\n", false, " x\n  b\n", "", ""},
		{"blank finds no blank lines", "a\n\n\nb\n", "  ", "x", false, "", "", "not in the file"},
		{"twice without indentation", " a\n  a\n", "\ta\n", "x\n", false, "", "", "2 times (lines 1, 2)"},
		{"overlap", "aaa", "aa", "b", true, "ba", "", ""},
		{"last line without end", "a\n  b", "b\n", "c\n", false, "a\nc\n", "indentation", ""},
	} {
		got, did, err := substitute(c.text, Edit{Old: c.old, New: c.fresh, All: c.all})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", c.name, err, c.err)
			}
			continue
		}
		if err != nil || got != c.want || did.Ignored != c.ignored {
			t.Errorf("%s: %q %+v %v, want %q", c.name, got, did, err, c.want)
		}
	}
}

func TestListAndGlob(t *testing.T) {
	dir := tree(t, map[string]string{
		"a.go": "", "b.txt": "xy", "sub/c.go": "", "sub/deep/d.go": "", "link": "→ /etc", ".hidden.go": "", ".git/e.go": "",
	})
	for i, name := range []string{"sub/c.go", "a.go", "sub/deep/d.go", ".hidden.go"} { // the newest last
		at := time.Unix(int64(1000+i), 0)
		os.Chtimes(filepath.Join(dir, name), at, at)
	}
	rel := func(a *Answer) (names []string) {
		for _, e := range a.Entries.Entries {
			names = append(names, e.Type[:1]+" "+strings.TrimPrefix(e.Path, dir+"/")+strings.TrimPrefix(" → "+e.Target, " → "))
		}
		return names
	}
	for _, c := range []struct {
		r    Request
		want string
	}{
		{Request{List: &List{Path: dir}}, "[d .git f .hidden.go f a.go f b.txt l link/etc d sub]"},
		{Request{List: &List{Path: dir + "/sub", Depth: 2}}, "[f sub/c.go d sub/deep f sub/deep/d.go]"},
		{Request{Glob: &Glob{Path: dir, Pattern: "*.go"}}, "[f .hidden.go f sub/deep/d.go f a.go f sub/c.go]"},
		{Request{Glob: &Glob{Path: dir, Pattern: "sub/*.go"}}, "[f sub/c.go]"},
		{Request{Glob: &Glob{Path: dir, Pattern: "sub/**/*.go"}}, "[f sub/deep/d.go f sub/c.go]"},
		{Request{Glob: &Glob{Path: dir, Pattern: "*.py"}}, "[]"},
	} {
		a, err := do(t, c.r)
		if err != nil {
			t.Errorf("%s: %v", c.want, err)
		} else if got := fmt.Sprint(rel(a)); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	for _, r := range []Request{{List: &List{Path: dir + "/a.go"}}, {Glob: &Glob{Path: dir + "/none", Pattern: "*"}}, {Glob: &Glob{Path: dir, Pattern: "{a"}}} {
		if a, err := do(t, r); err == nil {
			t.Errorf("%+v", a)
		}
	}
}

func TestGrep(t *testing.T) {
	many := map[string]string{}
	for i := range 150 {
		many[fmt.Sprintf("f%03d", i)] = "hit\n"
	}
	full := tree(t, many)
	dir := tree(t, map[string]string{
		"a.txt": "one\ntwo\nthree\nTWO\n", "b.md": "two\ntwo\n", "bin": "two\x00", ".git/x": "two\n", "wide": strings.Repeat("z", 5000) + "two\n", "link": "→ a.txt",
	})
	for _, c := range []struct {
		g    Grep
		want string
	}{
		{Grep{Pattern: "^two$"}, "a.txt:2:two b.md:1:two b.md:2:two total 3 binary 1"},
		{Grep{Pattern: "^two$", IgnoreCase: true, Glob: "*.txt"}, "a.txt:2:two a.txt:4:TWO total 2"},
		{Grep{Pattern: "three", Context: 1}, "a.txt-2-two a.txt:3:three a.txt-4-TWO total 1 binary 1"},
		{Grep{Pattern: "two", Glob: "*.md", Context: 3}, "b.md:1:two b.md:2:two total 2"},
		{Grep{Pattern: "^two$", Mode: Names}, "a.txt 0 b.md 0 total 2 binary 1"},
		{Grep{Pattern: "^two$", Mode: Counts}, "a.txt 1 b.md 2 total 3 binary 1"},
		{Grep{Pattern: "one", Path: "link"}, "link:1:one total 1"},
		{Grep{Pattern: "none"}, "total 0 binary 1"},
	} {
		c.g.Path = filepath.Join(dir, c.g.Path)
		a, err := do(t, Request{Grep: &c.g})
		if err != nil {
			t.Errorf("%s: %v", c.want, err)
			continue
		}
		var got []string
		for _, l := range a.Matches.Lines {
			mark := ":"
			if l.Context {
				mark = "-"
			}
			got = append(got, fmt.Sprint(filepath.Base(l.Path), mark, l.Line, mark, l.Text))
		}
		for _, f := range a.Matches.Files {
			got = append(got, fmt.Sprint(filepath.Base(f.Path), " ", f.Count))
		}
		got = append(got, fmt.Sprint("total ", a.Matches.Total))
		if n := a.Matches.Binary; n > 0 {
			got = append(got, fmt.Sprint("binary ", n))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%+v: %s, want %s", c.g, s, c.want)
		}
	}
	a, err := do(t, Request{Grep: &Grep{Path: dir, Pattern: "two", Glob: "wide"}})
	if err != nil || len(a.Matches.Lines) != 1 || len(a.Matches.Lines[0].Text) != shownMax {
		t.Errorf("a wide line: %+v %v", a, err)
	}
	for _, mode := range Modes() {
		a, err := do(t, Request{Grep: &Grep{Path: full, Pattern: "hit", Mode: mode}})
		if err != nil || a.Matches.Total != matchesMax || !a.Matches.Cut {
			t.Errorf("%s, too many: %+v %v", mode, a, err)
		}
	}
	for _, g := range []Grep{{Pattern: "("}, {Pattern: "x", Mode: "other"}, {Pattern: "x", Glob: "{"}, {Pattern: "x", Path: "/none"}} {
		if a, err := do(t, Request{Grep: &g}); err == nil {
			t.Errorf("%+v: %+v", g, a)
		}
	}
}

// TestGrepBounded: an answer with any amount of context remains readable.
func TestGrepBounded(t *testing.T) {
	dir := tree(t, map[string]string{"f": strings.Repeat(strings.Repeat("x", 3000)+"\n", 5000)})
	a, err := do(t, Request{Grep: &Grep{Path: dir, Pattern: "x", Context: 1000}})
	if err != nil || !a.Matches.Cut {
		t.Errorf("%v", err)
	}
}

func TestMatcher(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"*.go", []string{"a.go", "x/y/a.go"}, []string{"a.gox", "go"}},
		{"x/*", []string{"x/a"}, []string{"x/a/b", "a"}},
		{"**/*.go", []string{"a.go", "x/y/a.go"}, []string{"a.c"}},
		{"/x/**", []string{"x/a", "x/a/b"}, []string{"y"}},
		{"a?c", []string{"abc"}, []string{"ac", "abbc"}},
		{"[a-c!].[!x]", []string{"a.y", "!.y"}, []string{"d.y", "a.x"}},
		{"[]]", []string{"]"}, []string{"["}},
		{"[a", []string{"[a"}, []string{"a"}},
		{"*.{go,md}", []string{"a.go", "a.md"}, []string{"a.c"}},
		{`\*`, []string{"*"}, []string{"a"}},
		{"a+(b)|.c", []string{"a+(b)|.c"}, []string{"aab"}},
	} {
		match, err := matcher(c.pattern)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		for _, s := range c.yes {
			if !match(s) {
				t.Errorf("%q does not match %q", c.pattern, s)
			}
		}
		for _, s := range c.no {
			if match(s) {
				t.Errorf("%q matches %q", c.pattern, s)
			}
		}
	}
}

// FuzzMatcher: a quoted name matches itself.
func FuzzMatcher(f *testing.F) {
	f.Add("a[b]", "*.{x")
	f.Fuzz(func(t *testing.T, name, pattern string) {
		if match, err := matcher(pattern); err == nil {
			match(name)
		}
		var quoted strings.Builder
		for i := range len(name) {
			quoted.WriteString(`\` + name[i:i+1])
		}
		match, err := matcher(quoted.String())
		if err != nil || strings.Contains(name, "/") {
			return
		}
		if !match(name) && name != "" && strings.ToValidUTF8(name, "") == name {
			t.Errorf("%q does not match itself", name)
		}
	})
}

// FuzzSubstitute: the replaced text existed, and the rest is unchanged.
func FuzzSubstitute(f *testing.F) {
	f.Add("a\n b\r\nc", "b\n", "x", true)
	f.Add(" a\n\ta\n", "a", "", false)
	f.Fuzz(func(t *testing.T, text, old, fresh string, all bool) {
		got, did, err := substitute(text, Edit{Old: old, New: fresh, All: all})
		if err != nil {
			return
		}
		if did.Replaced < 1 || did.Replaced > 1 && !all || did.Line < 1 {
			t.Errorf("%+v", did)
		}
		if did.Ignored == "" && !all && !strings.Contains(text, "\r") && len(got) != len(text)-len(old)+len(fresh) {
			t.Errorf("%q", got)
		}
	})
}

func TestCollect(t *testing.T) {
	dir := tree(t, map[string]string{
		"one/a/conf": "1", "one/b/conf": "2", "two/a/conf": "3", "two/large/conf": strings.Repeat("x", collectedEach+1), "link/conf": "→ ../one/a/conf",
		"bin/prog": "", "loop": "→ loop",
	})
	os.Chmod(filepath.Join(dir, "bin/prog"), 0o755)
	os.Chmod(filepath.Join(dir, "one/b/conf"), 0)
	syscall.Mkfifo(filepath.Join(dir, "two/a/fifo"), 0o600)
	t.Setenv("DIRS", dir+"/two:relative::"+dir+"/one")
	a, err := do(t, Request{Collect: &Collect{Patterns: []string{"$DIRS/*/conf", dir + "/*/conf", dir + "/bin/*", dir + "/one/*/conf", "$NONE/conf", dir + "/two/a/fifo", dir + "/loop"}}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range a.Collected.Files {
		got = append(got, fmt.Sprintf("%s %d %v %.10s", strings.TrimPrefix(f.Path, dir), f.Size, f.Executable, f.Content))
	}
	unread := "" // root reads everything
	if os.Getuid() == 0 {
		unread = "2"
	}
	want := []string{"/two/a/conf 1 false 3", "/two/large/conf 65537 false ", "/one/a/conf 1 false 1", "/one/b/conf 1 false " + unread, "/link/conf 1 false 1", "/bin/prog 0 true "}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := do(t, Request{Collect: &Collect{Patterns: []string{dir + "/["}}}); err == nil {
		t.Error("a bad pattern is accepted")
	}
	if _, err := do(t, Request{Collect: &Collect{}}); err == nil {
		t.Error("no pattern is accepted")
	}
}

func TestCollectBounds(t *testing.T) {
	content := map[string]string{}
	for n := range collectedMax + 1 {
		content[fmt.Sprintf("f%03d", n)] = strings.Repeat("x", 4<<10)
	}
	a, err := do(t, Request{Collect: &Collect{Patterns: []string{tree(t, content) + "/*"}}})
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, f := range a.Collected.Files {
		all += len(f.Content)
	}
	if len(a.Collected.Files) != collectedMax || !a.Collected.Cut || all != collectedAll {
		t.Errorf("%d files, cut %v, %d bytes", len(a.Collected.Files), a.Collected.Cut, all)
	}
}

func TestWritePrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir/f")
	if _, err := do(t, Request{Write: &Write{Path: path, Content: []byte("x"), Private: true}}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
