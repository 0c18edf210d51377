package tarball

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func rooted(t *testing.T) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, dir
}

func write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func TestRoundTrip(t *testing.T) {
	from, src := rooted(t)
	write(t, src+"/d/a", "one", 0o755)
	write(t, src+"/d/sub/b", strings.Repeat("x", 1<<20), 0o640)
	write(t, src+"/d/suid", "s", 0o755|fs.ModeSetuid)
	if err := errors.Join(os.Symlink("/etc/passwd", src+"/d/link"), syscall.Mkfifo(src+"/d/pipe", 0o600)); err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	packed, err := Pack(&stream, from, "d", "D", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if packed.Files != 3 || packed.LeftAll != 1 || packed.Left[0] != (LeftOut{"D/pipe", aPipe}) {
		t.Errorf("packed: %+v", packed)
	}
	to, dst := rooted(t)
	did, err := Unpack(&stream, to, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if did.Files != 3 || did.LeftAll != 2 || !slices.Contains(did.Left, LeftOut{"D/link", aLink}) || !slices.Contains(did.Left, LeftOut{"D/pipe", aPipe}) {
		t.Errorf("report: %+v", did)
	}
	for name, mode := range map[string]fs.FileMode{"D/a": 0o755, "D/sub/b": 0o640, "D/suid": 0o755} {
		if st, err := os.Lstat(filepath.Join(dst, name)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	if _, err := os.Lstat(dst + "/D/pipe"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a pipe came out: %v", err)
	}
}

// TestUnpackHostile: streams that Pack never writes.
// TestTimes checks that files and directories keep their times through a relay, to the nanosecond.
func TestTimes(t *testing.T) {
	from, src := rooted(t)
	write(t, src+"/d/sub/f", "text", 0o600)
	at := time.Unix(1_600_000_000, 987_654_321)
	names := []string{"/d/sub/f", "/d/sub", "/d"}
	for _, name := range names {
		if err := os.Chtimes(src+name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	var stream, relayed bytes.Buffer
	if _, err := Pack(&stream, from, "d", "d", Limits{}); err != nil {
		t.Fatal(err)
	}
	y, err := NewRelay(&stream, Limits{})
	if err == nil {
		_, err = y.Pass(&relayed)
	}
	root, dir := rooted(t)
	if err == nil {
		_, err = Unpack(&relayed, root, Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if st, err := os.Stat(dir + name); err != nil || !st.ModTime().Equal(at) {
			t.Errorf("%s: %v, %v, want %v", name, st.ModTime(), err, at)
		}
	}
}

func TestUnpackHostile(t *testing.T) {
	type entry = tar.Header
	for _, c := range []struct {
		name    string
		links   bool
		entries []entry
		want    error
	}{
		{"parent", false, []entry{{Name: "../x", Typeflag: tar.TypeReg}}, errBadName},
		{"parent later", false, []entry{{Name: "a/../../x", Typeflag: tar.TypeReg}}, errBadName},
		{"absolute", false, []entry{{Name: "/x", Typeflag: tar.TypeReg}}, errBadName},
		{"deep", false, []entry{{Name: strings.Repeat("a/", 300) + "x", Typeflag: tar.TypeReg}}, errBadName},
		{"many", false, []entry{{Name: "1"}, {Name: "2"}, {Name: "3"}, {Name: "4"}, {Name: "5"}}, errTooLarge},
		{"large", false, []entry{{Name: "x", Size: 2000, Typeflag: tar.TypeReg}}, errTooLarge},
		{"file for a directory", false, []entry{{Name: "x", Typeflag: tar.TypeReg}, {Name: "x/y", Typeflag: tar.TypeReg}}, syscall.EEXIST},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, h := range c.entries {
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
				w.Write(make([]byte, h.Size))
			}
			root, _ := rooted(t)
			if _, err := Unpack(&b, root, Options{Links: c.links, Limits: Limits{Bytes: 1000, Entries: 4}}); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// TestUnpackThroughLinks: Unpack replaces a link at a file's name instead of writing through it. It creates no
// directory through a link that leads out of the root.
func TestUnpackThroughLinks(t *testing.T) {
	_, outside := rooted(t)
	write(t, outside+"/victim", "safe", 0o600)
	root, dir := rooted(t)
	if err := errors.Join(os.Symlink(outside+"/victim", dir+"/file"), os.Symlink(outside, dir+"/way")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	w.WriteHeader(&tar.Header{Name: "file", Size: 4, Mode: 0o644, Typeflag: tar.TypeReg})
	w.Write([]byte("evil"))
	w.WriteHeader(&tar.Header{Name: "way/planted", Typeflag: tar.TypeReg})
	w.Close()
	if _, err := Unpack(&b, root, Options{Links: true}); err == nil {
		t.Error("wrote through a link that leads out")
	}
	if got, _ := os.ReadFile(outside + "/victim"); string(got) != "safe" {
		t.Errorf("the file behind the link now holds %q", got)
	}
	if _, err := os.Lstat(outside + "/planted"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a file was planted outside")
	}
}

// looker inspects a directory in the middle of a stream.
type looker struct {
	io.Reader
	look func()
}

func (l looker) Read(b []byte) (int, error) {
	l.look()
	return l.Reader.Read(b[:min(len(b), 1<<10)])
}

// TestUnpackWhole: at any moment a name refers to a complete file, no other name exists, and existing files may be
// replaced.
func TestUnpackWhole(t *testing.T) {
	from, src := rooted(t)
	write(t, src+"/d/a", strings.Repeat("x", 100<<10), 0o640)
	write(t, src+"/d/b", strings.Repeat("x", 100<<10), 0o640)
	var stream bytes.Buffer
	if _, err := Pack(&stream, from, "d", "d", Limits{}); err != nil {
		t.Fatal(err)
	}
	root, dir := rooted(t)
	write(t, dir+"/d/b", "old", 0o600)
	looks := 0
	read := looker{&stream, func() {
		looks++
		list, _ := os.ReadDir(dir + "/d")
		for _, e := range list {
			if st, err := e.Info(); err != nil || st.Size() != 100<<10 && (e.Name() != "b" || st.Size() != 3) {
				t.Errorf("%s is there: %v", e.Name(), err)
			}
		}
	}}
	if did, err := Unpack(read, root, Options{}); err != nil || did.Files != 2 || looks < 200 {
		t.Errorf("%+v, %v, looked %d times", did, err, looks)
	}
	if st, err := os.Stat(dir + "/d/b"); err != nil || st.Size() != 100<<10 || st.Mode() != 0o640 {
		t.Errorf("%v, %v", st, err)
	}
}

// TestUnpackThroughLinkInside: files may be created through a link to a directory inside the root. An error names
// only the file that could not be created.
func TestUnpackThroughLinkInside(t *testing.T) {
	from, src := rooted(t)
	write(t, src+"/d/way/f", "x", 0o600)
	var stream bytes.Buffer
	if _, err := Pack(&stream, from, "d", "d", Limits{}); err != nil {
		t.Fatal(err)
	}
	text := stream.Bytes()
	root, dir := rooted(t)
	if err := errors.Join(os.MkdirAll(dir+"/d/real", 0o755), os.Symlink("real", dir+"/d/way")); err != nil {
		t.Fatal(err)
	}
	if _, err := Unpack(bytes.NewReader(text), root, Options{}); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(dir + "/d/real/f"); string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.RemoveAll(dir); err != nil { // nothing can be created in a removed directory
		t.Fatal(err)
	}
	u := &unpacker{root: root}
	if err := u.file("f", meta{mode: 0o600}, whole(0), strings.NewReader("")); err == nil || strings.Contains(err.Error(), ".demesne") {
		t.Error(err)
	}
}

// TestUnpackOverDirectory: a file does not replace a directory, and leaves nothing behind.
func TestUnpackOverDirectory(t *testing.T) {
	from, src := rooted(t)
	write(t, src+"/f", "x", 0o600)
	var stream bytes.Buffer
	if _, err := Pack(&stream, from, "f", "f", Limits{}); err != nil {
		t.Fatal(err)
	}
	root, dir := rooted(t)
	write(t, dir+"/f/g", "", 0o600)
	if _, err := Unpack(&stream, root, Options{}); err == nil {
		t.Error("it did")
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("left %v", list)
	}
}

// TestBeside: beside writes by rename, for file systems without O_TMPFILE.
func TestBeside(t *testing.T) {
	root, dir := rooted(t)
	u := &unpacker{root: root}
	for _, text := range []string{"one", "two"} {
		if err := u.beside("d/f", meta{mode: 0o640}, whole(3), strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(dir + "/d/f"); string(got) != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	if err := u.beside("d/g", meta{mode: 0o640}, whole(4), strings.NewReader("cut")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if list, _ := os.ReadDir(dir + "/d"); len(list) != 1 {
		t.Errorf("left %v", list)
	}
}

func TestInside(t *testing.T) {
	_, dir := rooted(t)
	write(t, dir+"/a/f", "v", 0o600)
	if err := os.Symlink("a", dir+"/l"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ get, verb, put, want string }{
		{"/l", Merge, "/new/place", "/new/place/f"},
		{"/a", Merge, "/new/place", "/new/place/f"},
		{"/a", Put, "/new/place", "/new/place/a/f"},
		{"/a/f", Put, "/new/g", "/new/g"},
		{"/a/f", Put, "/new/place/", "/new/place/f"},
		{"/a/f", Put, "/new/other/", "/new/other/f"},
	} {
		var stream, errs bytes.Buffer
		if code := Inside([]string{Get, dir + c.get}, nil, &stream, &errs); code != 0 {
			t.Fatal(errs.String())
		}
		if code := Inside([]string{c.verb, dir + c.put}, &stream, nil, &errs); code != 0 {
			t.Fatal(errs.String())
		}
		if got, err := os.ReadFile(dir + c.want); string(got) != "v" {
			t.Errorf("%s %s %s: %q, %v", c.get, c.verb, c.put, got, err)
		}
	}
	for _, args := range [][]string{{Get, dir + "/none"}, {"take", dir}} {
		var errs bytes.Buffer
		if code := Inside(args, nil, &errs, &errs); code != 1 || errs.Len() == 0 {
			t.Errorf("%q: status %d, %q", args, code, errs.String())
		}
	}
}

func FuzzUnpack(f *testing.F) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	w.WriteHeader(&tar.Header{Name: "a/b", Size: 1, Typeflag: tar.TypeReg})
	w.Write([]byte("x"))
	w.Close()
	f.Add(b.Bytes(), true)
	f.Fuzz(func(t *testing.T, stream []byte, links bool) {
		parent := t.TempDir()
		if err := os.Mkdir(parent+"/in", 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(parent + "/in")
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		Unpack(bytes.NewReader(stream), root, Options{Links: links, Limits: Limits{Bytes: 1 << 20, Entries: 100}})
		if left, _ := os.ReadDir(parent); len(left) != 1 {
			t.Errorf("something is outside: %v", left)
		}
	})
}

// whenever calls do once, before it writes data that contains text.
type whenever struct {
	io.Writer
	text string
	do   func()
}

func (w *whenever) Write(b []byte) (int, error) {
	if w.do != nil && bytes.Contains(b, []byte(w.text)) {
		w.do()
		w.do = nil
	}
	return w.Writer.Write(b)
}

// TestPackSwapped: a directory is replaced by a link to another one just before it is opened, or while it is read.
// The other directory is not packed.
func TestPackSwapped(t *testing.T) {
	for _, when := range []string{"mine/d/\x00", "of mine"} {
		root, dir := rooted(t)
		for _, name := range []string{"mine/d/a", "mine/d/b", "other/a", "other/b"} {
			whose, _, _ := strings.Cut(name, "/")
			write(t, filepath.Join(dir, name), "of "+whose, 0o644)
		}
		var packed bytes.Buffer
		swapped := false
		_, err := Pack(&whenever{&packed, when, func() {
			swapped = true
			if err := errors.Join(os.Rename(dir+"/mine/d", dir+"/mine/moved"), os.Symlink("../other", dir+"/mine/d")); err != nil {
				t.Error(err)
			}
		}}, root, "mine", "mine", Limits{})
		if !swapped || bytes.Contains(packed.Bytes(), []byte("of other")) {
			t.Errorf("%q: swapped %t, %v, %q", when, swapped, err, bytes.ReplaceAll(packed.Bytes(), []byte{0}, nil))
		}
	}
}

// TestPackReplaced: a file that is replaced continuously is packed as one of its versions.
func TestPackReplaced(t *testing.T) {
	root, dir := rooted(t)
	write(t, filepath.Join(dir, "mine/f"), "one", 0o644)
	ctx, cancel := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for ctx.Err() == nil {
			if err := errors.Join(os.WriteFile(dir+"/new", []byte("two"), 0o644), os.Rename(dir+"/new", dir+"/mine/f")); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2000 {
		if _, err := Pack(io.Discard, root, "mine", "mine", Limits{}); err != nil {
			t.Error(err)
			break
		}
	}
	cancel()
	writer.Wait()
}
