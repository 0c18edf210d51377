package fileops

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

// do serves one request, and returns the answer with what follows it.
func do(t *testing.T, r Request, content string) (*Answer, string, error) {
	t.Helper()
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	sent := append(line, '\n')
	if r.Op == OpPut {
		sent = append(sent, chunksOf(content)...)
	}
	var out strings.Builder
	code := Serve(piped(t, sent), &out, nil)
	from := bufio.NewReader(strings.NewReader(out.String()))
	a, err := ReadAnswer(from)
	if broken := code != 0; broken != (err != nil && (r.Op == OpPut || errors.Is(err, errAnswer))) {
		t.Errorf("%+v: exit %d, %v", r, code, err)
	}
	if err != nil || r.Op != OpGet {
		return a, "", err
	}
	rest, err := io.ReadAll(Unchunked(from))
	return a, string(rest), err
}

// piped returns the reading end of a pipe, as callers have it, to which b is written.
func piped(t *testing.T, b []byte) *os.File {
	t.Helper()
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { from.Close() }) // ends the writer
	go func() {
		to.Write(b)
		to.Close()
	}()
	return from
}

func chunksOf(content string) []byte {
	var b bytes.Buffer
	w := Chunks(bufio.NewWriter(&b))
	io.WriteString(w, content)
	w.Close()
	return b.Bytes()
}

// TestServeMany checks that one process serves requests after one another, and that an error of one leaves the next alone.
func TestServeMany(t *testing.T) {
	d := t.TempDir()
	var in bytes.Buffer
	ask := func(r Request) {
		line, _ := json.Marshal(r)
		in.Write(append(line, '\n'))
	}
	long := strings.Repeat("0123456789", 20_000)
	for _, content := range []string{long, "short", ""} {
		ask(Request{Op: OpPut, Dir: d, Path: "~/f"})
		in.Write(chunksOf(content))
		ask(Request{Op: OpStat, Path: d + "/none"})
		ask(Request{Op: OpGet, Dir: d, Path: "f"})
	}
	var out bytes.Buffer
	if code := Serve(&in, &out, nil); code != 0 {
		t.Errorf("exit %d", code)
	}
	from := bufio.NewReader(&out)
	for _, want := range []string{long, "short", ""} {
		if a, err := ReadAnswer(from); err != nil || a.Infos[0].Path != d+"/f" || a.Infos[0].Size != int64(len(want)) {
			t.Fatalf("put: %+v %v", a, err)
		}
		if _, err := ReadAnswer(from); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("stat: %v", err)
		}
		_, err := ReadAnswer(from)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(Unchunked(from)); string(got) != want || err != nil {
			t.Errorf("got %d bytes, want %d: %v", len(got), len(want), err)
		}
	}
}

// TestHandles checks parts of open files and the single calls: what they do, what they refuse, and that an error of a Write
// leaves the stream in order.
func TestHandles(t *testing.T) {
	d := t.TempDir()
	var in bytes.Buffer
	var wants []string
	ask := func(want string, r Request, content ...string) {
		line, _ := json.Marshal(r)
		in.Write(append(line, '\n'))
		for _, c := range content {
			in.Write(chunksOf(c))
		}
		wants = append(wants, want)
	}
	mode, size := uint32(0o640), int64(4)
	ask("", Request{Op: OpOpen, Path: d + "/f", Flags: os.O_RDWR | os.O_CREATE | os.O_EXCL, Mode: 0o600})
	ask("", Request{Op: OpWrite, Handle: 1, Offset: 2}, "cdef")
	ask("", Request{Op: OpWrite, Handle: 1}, "ab")
	ask("bad file", Request{Op: OpWrite, Handle: 7}, "lost")
	ask("invalid", Request{Op: OpWrite, Handle: 1, Offset: -1}, "lost")
	ask("=cde", Request{Op: OpRead, Handle: 1, Offset: 2, Size: 3})
	ask("=f", Request{Op: OpRead, Handle: 1, Offset: 5, Size: 1 << 30})
	ask("=", Request{Op: OpRead, Handle: 1, Offset: 99, Size: -5})
	ask("exists", Request{Op: OpOpen, Path: d + "/f", Flags: os.O_CREATE | os.O_EXCL})
	ask("directory", Request{Op: OpOpen, Path: d})
	ask("invalid", Request{Op: OpOpen, Path: "/dev/null"})
	ask("", Request{Op: OpAttr, Path: d + "/f", Attr: &Attr{Mode: &mode, Size: &size, Modified: &time.Time{}}})
	ask("", Request{Op: OpLink, Path: d + "/f", To: d + "/g"})
	ask("", Request{Op: OpSymlink, Path: d + "/l", To: "../.."})
	ask("", Request{Op: OpMakeDir, Path: d + "/d", Mode: 0o700})
	ask("exists", Request{Op: OpMakeDir, Path: d + "/d"})
	ask("directory", Request{Op: OpUnlink, Path: d + "/d"})
	ask("not a directory", Request{Op: OpRmdir, Path: d + "/f"})
	ask("", Request{Op: OpRename, Path: d + "/g", To: d + "/d/h"})
	ask("not empty", Request{Op: OpRmdir, Path: d + "/d"})
	ask("", Request{Op: OpUnlink, Path: d + "/d/h"})
	ask("", Request{Op: OpRmdir, Path: d + "/d"})
	ask("invalid", Request{Op: OpAttr, Path: d})
	ask("", Request{Op: OpClose, Handle: 1})
	ask("bad file", Request{Op: OpRead, Handle: 1, Size: 1})
	var out bytes.Buffer
	if code := Serve(&in, &out, nil); code != 0 {
		t.Errorf("exit %d", code)
	}
	from := bufio.NewReader(&out)
	for i, want := range wants {
		_, err := ReadAnswer(from)
		if content, ok := strings.CutPrefix(want, "="); ok && err == nil {
			if got, err := io.ReadAll(Unchunked(from)); string(got) != content || err != nil {
				t.Errorf("%d: %q %v, want %q", i, got, err, content)
			}
			continue
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", i, err, want)
		}
	}
	st, err := os.Stat(d + "/f")
	if text, _ := os.ReadFile(d + "/f"); err != nil || string(text) != "abcd" || st.Mode().Perm() != 0o640 {
		t.Errorf("%q %v %v", text, st, err)
	}
	if to, _ := os.Readlink(d + "/l"); to != "../.." {
		t.Errorf("link to %q", to)
	}
}

// TestChunks checks that a stream that breaks off, or is not one, ends with an error.
func TestChunks(t *testing.T) {
	whole := string(chunksOf(strings.Repeat("x", chunkMost+5)))
	for name, text := range map[string]string{
		"nothing": "", "half a length": whole[:2], "no bytes": whole[:4], "half": whole[:1000], "no end": whole[:len(whole)-4], "too long": "\xff\xff\xff\xff",
	} {
		if b, err := io.ReadAll(Unchunked(bufio.NewReader(strings.NewReader(text)))); err == nil {
			t.Errorf("%s: %d bytes", name, len(b))
		}
	}
	// A broken small upload does not touch the file.
	path := t.TempDir() + "/f"
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if code := Serve(strings.NewReader(`{"op":"put","path":"`+path+"\"}\n"+whole[:1000]), &out, nil); code == 0 {
		t.Errorf("exit 0: %s", out.String())
	}
	if text, err := os.ReadFile(path); string(text) != "old" || err != nil {
		t.Errorf("%q %v", text, err)
	}
}

// TestChunksReadFrom checks that a copy gives the chunks that writes give, and which errors it returns.
func TestChunksReadFrom(t *testing.T) {
	for _, size := range []int{0, 1, 1000, 4096, 70_000, 300_000} {
		content := strings.Repeat("0123456789", size/10+1)[:size]
		for name, from := range map[string]io.Reader{"whole": strings.NewReader(content), "byte by byte": iotest.OneByteReader(strings.NewReader(content)), "end with data": iotest.DataErrReader(strings.NewReader(content))} {
			var b bytes.Buffer
			w := bufio.NewWriter(&b)
			to := Chunks(w)
			n, err := io.Copy(to, struct{ io.Reader }{from})
			if err != nil || n != int64(size) || to.Close() != nil {
				t.Fatalf("%d, %s: %d %v", size, name, n, err)
			}
			if got, err := io.ReadAll(Unchunked(bufio.NewReader(&b))); string(got) != content || err != nil {
				t.Errorf("%d, %s: %d bytes, %v", size, name, len(got), err)
			}
		}
	}
	broken := errors.New("broken")
	if _, err := io.Copy(Chunks(bufio.NewWriter(io.Discard)), iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("a broken source: %v", err)
	}
	r, w := io.Pipe()
	r.CloseWithError(broken)
	if _, err := io.Copy(Chunks(bufio.NewWriter(w)), struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 10_000))}); !errors.Is(err, broken) {
		t.Errorf("a broken target: %v", err)
	}
}

// TestCall checks the errors of a Put: the source's errors come back, and a process that ends says why.
func TestCall(t *testing.T) {
	path, broken := t.TempDir()+"/f", errors.New("broken")
	if err := os.WriteFile(path, nil, 0o600); err != nil { // no directory, so that path/x is refused
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path   string
		source error
		want   error
	}{"good": {path, nil, io.EOF}, "broken source": {path, broken, broken}, "refused": {path + "/x", nil, syscall.ENOTDIR}} {
		in, asks, err1 := os.Pipe()
		answers, out, err2 := os.Pipe()
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		defer answers.Close()
		go func() {
			Serve(in, out, nil)
			in.Close()
			out.Close()
		}()
		put := func(to io.Writer) error {
			_, err := io.Copy(to, io.MultiReader(strings.NewReader(strings.Repeat("x", 200_000)), iotest.ErrReader(cmp.Or(c.source, io.EOF))))
			return err
		}
		_, again, err := Call(bufio.NewWriter(asks), bufio.NewReader(answers), nil, Request{Op: OpPut, Path: c.path}, put, nil)
		if !errors.Is(cmp.Or(err, io.EOF), c.want) || again != (err == nil) {
			t.Errorf("%s: %v, again %v", name, err, again)
		}
		asks.Close()
	}
}

// TestAccounts checks that a server sees a change of the accounts, at the latest in its next request.
func TestAccounts(t *testing.T) {
	file := t.TempDir() + "/passwd"
	a := accounts{file: file}
	for i, c := range []struct {
		text, want string
		age        time.Duration
	}{{"", "7", 0}, {"one:x:7:7::/:/bin/sh\n", "one", 0}, {"two:x:7:7::/:/bin/sh\n", "two", time.Hour}, {"six:x:7:7::/:/bin/sh\n", "six", time.Minute}, {"long:x:7:7::/:/bin/sh\n", "long", time.Minute}} {
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			then := time.Now().Add(-c.age)
			os.Chtimes(file, then, then)
		}
		a.sure = false
		if got := a.name(7); got != c.want || a.name(8) != "8" {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
	before := a.from
	a.sure = false
	if a.name(7); before == nil || a.from != before {
		t.Error("an unchanged file was read again")
	}
}

// TestServe checks each operation, and the kernel's error of each that fails.
func TestServe(t *testing.T) {
	d := t.TempDir()
	for link, to := range map[string]string{"link": "file", "to-a": "x/../a"} {
		if err := os.Symlink(to, d+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(d+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		r       Request
		content string
		fails   error
		paths   string // of the answer
		rest    string
	}{
		{Request{Op: OpPut, Path: d + "/deep/file"}, "content", nil, "/deep/file", ""},
		{Request{Op: OpGet, Path: d + "/deep/file"}, "", nil, "/deep/file", "content"},
		{Request{Op: OpPut, Path: d + "/deep/file"}, "", nil, "/deep/file", ""},
		{Request{Op: OpGet, Path: d + "/deep/file"}, "", nil, "/deep/file", ""},
		{Request{Op: OpGet, Path: d + "/none"}, "", fs.ErrNotExist, "", ""},
		{Request{Op: OpGet, Path: d}, "", syscall.EISDIR, "", ""},
		{Request{Op: OpPut, Path: d}, "", syscall.EISDIR, "", ""},
		{Request{Op: OpGet, Path: d + "/fifo"}, "", syscall.EINVAL, "", ""},
		{Request{Op: OpPut, Path: d + "/fifo"}, "", syscall.EINVAL, "", ""},
		{Request{Op: OpStat, Path: d + "/link"}, "", nil, "/link", ""},
		{Request{Op: OpStat, Path: d + "/none"}, "", fs.ErrNotExist, "", ""},
		{Request{Op: OpStat, Path: ""}, "", syscall.EINVAL, "", ""},
		{Request{Op: OpStat, Path: "a\x00b"}, "", syscall.EINVAL, "", ""},
		{Request{Op: OpMkdir, Path: d + "/a/b"}, "", nil, "/a/b", ""},
		{Request{Op: OpMkdir, Path: d + "/a/b"}, "", fs.ErrExist, "", ""},
		{Request{Op: OpMkdir, Path: d + "/deep/file"}, "", syscall.ENOTDIR, "", ""},
		{Request{Op: OpList, Path: d + "/a"}, "", nil, "/a/b", ""},
		{Request{Op: OpList, Path: d + "/deep/file"}, "", syscall.ENOTDIR, "", ""},
		{Request{Op: OpMove, Path: d + "/deep/file", To: d + "/x/y"}, "", nil, "/x/y", ""},
		{Request{Op: OpMove, Path: d + "/none", To: d + "/z"}, "", fs.ErrNotExist, "", ""},
		{Request{Op: OpMove, Path: d + "/x"}, "", syscall.EINVAL, "", ""},
		{Request{Op: OpList, Path: d, Depth: 2}, "", nil, "/a /a/b /deep /fifo /link /to-a /x /x/y", ""},
		{Request{Op: OpRemove, Path: d + "/x"}, "", nil, "", ""},
		{Request{Op: OpRemove, Path: d + "/x"}, "", nil, "", ""},
		{Request{Op: "other", Path: d}, "", syscall.EINVAL, "", ""},
		{Request{Op: OpHome, Path: "root"}, "", nil, "", ""},
		{Request{Op: OpHome, Path: "no-such-account"}, "", syscall.ESRCH, "", ""},
		{Request{Op: OpWatch, Path: d + "/none"}, "", fs.ErrNotExist, "", ""},
		{Request{Op: OpSpace, Path: d}, "", nil, "", ""},
	} {
		a, rest, err := do(t, c.r, c.content)
		if c.fails != nil || err != nil {
			if !errors.Is(err, c.fails) || c.fails == nil {
				t.Errorf("%+v: %v, want %v", c.r, err, c.fails)
			}
			continue
		}
		var paths []string
		for _, i := range a.Infos {
			paths = append(paths, strings.TrimPrefix(i.Path, d))
		}
		if got := strings.Join(paths, " "); got != c.paths || rest != c.rest {
			t.Errorf("%+v: %q %q", c.r, got, rest)
		}
	}
}

// TestPutCut checks that an upload whose stream breaks off changes nothing, and that a whole one keeps a file's owner, mode and
// other names.
func TestPutCut(t *testing.T) {
	d := t.TempDir()
	large := strings.Repeat("new ", 50_000) // several times what is in hand before the file is opened
	for _, name := range []string{"old", "missing", "dangling"} {
		path := d + "/" + name
		switch name {
		case "old":
			if err := errors.Join(os.WriteFile(path, []byte(strings.Repeat("old", 100_000)), 0o600), os.Chmod(path, 0o750), os.Link(path, d+"/other")); err != nil {
				t.Fatal(err)
			}
		case "dangling":
			if err := os.Symlink("target", path); err != nil {
				t.Fatal(err)
			}
		}
		before, _ := os.ReadFile(path)
		line, err := json.Marshal(Request{Op: OpPut, Path: path})
		if err != nil {
			t.Fatal(err)
		}
		whole := append(append(line, '\n'), chunksOf(large)...)
		for _, cut := range []int{len(line) + 1, len(line) + 100, len(line) + 1 + smallMost, len(whole) / 2, len(whole) - 1} {
			for _, in := range []io.Reader{bytes.NewReader(whole[:cut]), piped(t, whole[:cut])} {
				if code := Serve(in, io.Discard, nil); code == 0 {
					t.Errorf("%s, cut at %d: success", name, cut)
				}
			}
			after, err := os.ReadFile(path)
			if !bytes.Equal(before, after) || (err == nil) != (name == "old") {
				t.Errorf("%s, cut at %d: %d bytes, %v", name, cut, len(after), err)
			}
		}
		if a, _, err := do(t, Request{Op: OpPut, Path: path}, large); err != nil || a.Infos[0].Size != int64(len(large)) {
			t.Errorf("%s, whole: %+v, %v", name, a, err)
		}
		if got, err := os.ReadFile(path); string(got) != large {
			t.Errorf("%s, whole: %d bytes, %v", name, len(got), err)
		}
		mode := fs.FileMode(0o644)
		if name == "old" {
			mode = 0o750
		}
		if st, err := os.Stat(path); err != nil || st.Mode() != mode {
			t.Errorf("%s, whole: %v, %v", name, st.Mode(), err)
		}
	}
	if got, err := os.ReadFile(d + "/other"); string(got) != large {
		t.Errorf("the other name: %d bytes, %v", len(got), err)
	}
	entries, err := os.ReadDir(d)
	if len(entries) != 5 { // dangling missing old other target
		t.Errorf("left: %v, %v", entries, err)
	}
}

// TestLinks checks that a link is described with the file that it leads to, if that exists.
func TestLinks(t *testing.T) {
	d := t.TempDir()
	if err := os.WriteFile(d+"/file", nil, 0o640); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		to   string
		want *Real
	}{
		{"file", &Real{d + "/file", "file", 0o640}},
		{"../" + filepath.Base(d) + "/dir", &Real{d + "/dir", "directory", 0o700}},
		{"none", nil},
		{"link", nil},
	} {
		os.Mkdir(d+"/dir", 0o700)
		os.Remove(d + "/link")
		if err := os.Symlink(c.to, d+"/link"); err != nil {
			t.Fatal(err)
		}
		a, _, err := do(t, Request{Op: OpStat, Path: d + "/link"}, "")
		if err != nil {
			t.Fatal(err)
		}
		if i := a.Infos[0]; i.Type != "link" || i.Target != c.to || !reflect.DeepEqual(i.Real, c.want) {
			t.Errorf("%s: %+v, %+v", c.to, i, i.Real)
		}
	}
}

// TestMeta checks that an upload replaces the metadata, where the file system has extended attributes.
func TestMeta(t *testing.T) {
	path := t.TempDir() + "/f"
	a, _, err := do(t, Request{Op: OpPut, Path: path, Meta: map[string]string{"a": "1", "b": "2"}}, "")
	if errors.Is(err, syscall.ENOTSUP) {
		if _, _, err := do(t, Request{Op: OpPut, Path: path}, ""); err != nil {
			t.Errorf("without metadata: %v", err)
		}
		return
	}
	if err != nil || len(a.Infos) != 1 || len(a.Infos[0].Meta) != 2 {
		t.Fatalf("%+v %v", a, err)
	}
	if a, _, err = do(t, Request{Op: OpPut, Path: path, Meta: map[string]string{"b": "3"}}, ""); err != nil || len(a.Infos[0].Meta) != 1 || a.Infos[0].Meta["b"] != "3" {
		t.Errorf("%+v %v", a, err)
	}
}

// TestReadAnswer checks that nothing else than an answer is accepted, and that a line is bounded.
func TestReadAnswer(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`{"error":"`), zeros{})
	for name, r := range map[string]io.Reader{
		"nothing": strings.NewReader(""), "half": strings.NewReader(`{"error":"x"`), "text": strings.NewReader("text\n"), "another type": strings.NewReader("[]\n"), "endless": endless,
	} {
		if a, err := ReadAnswer(bufio.NewReader(r)); err == nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
	_, err := ReadAnswer(bufio.NewReader(strings.NewReader(`{"error":"first\nsecond","errno":2}` + "\n")))
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != "first" {
		t.Errorf("%v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}

// TestOwner checks who owns what root makes for a user. Only root can give files away.
func TestOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	d := t.TempDir()
	var in bytes.Buffer
	ask := func(r Request) {
		r.Owner = &Owner{UID: 12345, GID: 12346}
		line, _ := json.Marshal(r)
		in.Write(append(line, '\n'))
	}
	for _, dir := range []string{"own", "kept"} {
		if err := os.Mkdir(d+"/"+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(d+"/kept", 1, 1); err != nil {
		t.Fatal(err)
	}
	ask(Request{Op: OpMkdir, Path: d + "/a/b"})
	ask(Request{Op: OpPut, Path: d + "/c/small"})
	in.Write(chunksOf("x"))
	ask(Request{Op: OpPut, Path: d + "/c/large"})
	in.Write(chunksOf(strings.Repeat("x", 200_000)))
	ask(Request{Op: OpMove, Path: d + "/c/small", To: d + "/e/small"})
	ask(Request{Op: OpOwn, Path: d + "/own"})
	ask(Request{Op: OpOwn, Path: d + "/kept"})
	ask(Request{Op: OpOwn, Path: d + "/none"})
	var out bytes.Buffer
	if code := Serve(&in, &out, nil); code != 0 {
		t.Fatalf("exit %d: %s", code, out.String())
	}
	want := map[string]uint32{"": 0, "/a": 12345, "/a/b": 12345, "/c": 12345, "/c/large": 12345, "/e": 12345, "/e/small": 12345, "/own": 12345, "/kept": 1}
	for name, uid := range want {
		st, err := os.Stat(d + name)
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Sys().(*syscall.Stat_t).Uid; got != uid {
			t.Errorf("%q: user %d, want %d", name, got, uid)
		}
	}
}
