package session

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestSplitInput(t *testing.T) {
	there := map[string]bool{"a": true, "a:b": true, "dir": true, "we:ird/dir": true}
	for _, c := range []struct{ arg, path, name, why string }{
		{"a", "a", "", ""},
		{"a:b", "a:b", "", ""}, // exists as a whole
		{"a:c", "a", "c", ""},
		{"a:b:c", "a:b", "c", ""}, // cut at the last colon
		{"missing", "missing", "", ""},
		{"missing:x", "missing", "x", ""},
		{"no:such/file", "no:such/file", "", ""}, // the colon belongs to the path
		{"we:ird/dir", "we:ird/dir", "", ""},
		{"we:ird/dir:d", "we:ird/dir", "d", ""},
		{"dir:x/y", "dir", "x/y", "slash"},
		{"a:", "a", "", "no name"},
		{":a", "", "", "no path"},
		{"a:.", "a", ".", "not a file name"},
		{"a:..", "a", "..", "not a file name"},
		{"a:x\ny", "a", "x\ny", "newline"},
		{"a:" + strings.Repeat("n", 256), "a", strings.Repeat("n", 256), "longer"},
	} {
		path, name, err := splitInput(c.arg, func(p string) bool { return there[p] })
		if path != c.path || name != c.name || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("splitInput(%q) = %q, %q, %v; want %q, %q, %q", c.arg, path, name, err, c.path, c.name, c.why)
		}
	}
}

// FuzzSplitInput checks that every accepted name is one path element on one line.
func FuzzSplitInput(f *testing.F) {
	for _, s := range []string{"a:b", "a:../..", ":", "a::", "/:x", "a:\x00", "a:b/c:d"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, arg string, there bool) {
		path, name, err := splitInput(arg, func(p string) bool { return there && p != arg })
		if err != nil || name == "" {
			return
		}
		if strings.ContainsAny(name, "/\n\x00") || name == "." || name == ".." || len(name) > 255 {
			t.Errorf("splitInput(%q) lets the name %q through", arg, name)
		}
		if path+":"+name != arg {
			t.Errorf("splitInput(%q) = %q, %q", arg, path, name)
		}
	})
}

func TestInputs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	dir, _ = filepath.EvalSymlinks(dir)
	os.WriteFile("file", nil, 0o644)
	os.Mkdir("sub", 0o755)
	os.Symlink("../file", "sub/link")
	syscall.Mknod("socket", syscall.S_IFSOCK|0o600, 0)
	os.WriteFile("sub/odd\xff", nil, 0o644)
	for _, c := range []struct {
		args    []string
		want    string
		why     string
		sockets []string
	}{
		{[]string{"file", "sub"}, dir + "/file file " + dir + "/sub sub", "", nil},
		{[]string{"sub/link"}, dir + "/file link", "", nil}, // its own name, and the link's target
		{[]string{"./sub/"}, dir + "/sub sub", "", nil},
		{[]string{"."}, dir + " " + filepath.Base(dir), "", nil},
		{[]string{"sub/..:up"}, dir + " up", "", nil},
		{[]string{"/:root"}, "/ root", "", nil},
		{[]string{"file", "sub/link:file"}, "", `mount basename "file" would collide: ` + dir + "/file and " + dir + "/file", nil},
		{[]string{"/"}, "", "its name is not possible", nil},
		{[]string{"sub/odd\xff"}, "", "is not UTF-8", nil},
		{[]string{"sub/odd\xff:even"}, "", "is not UTF-8", nil},
		{[]string{"file:odd\xff"}, "", "is not UTF-8", nil},
		{[]string{"/dev/null"}, "", "not a regular file", nil},
		{[]string{"file/x"}, "", "not a directory", nil},
		{[]string{"sub/link/x"}, "", "not a directory", nil},
		{nil, dir + "/socket agent", "", []string{"socket:agent"}},
		{[]string{"file"}, dir + "/file file " + dir + "/socket socket", "", []string{"socket"}},
		{[]string{"socket"}, "", "not a regular file", nil},
		{nil, "", `socket "file": is not a socket`, []string{"file"}},
		{[]string{"file"}, "", "would collide", []string{"socket:file"}},
	} {
		ins, err := ParseInputs(c.args, c.sockets)
		var got []string
		for _, in := range ins {
			got = append(got, in.Path, in.Name)
			if in.Socket != (in.Path == dir+"/socket") {
				t.Errorf("%s as a socket: %t", in.Path, in.Socket)
			}
		}
		if err != nil {
			if c.why == "" || !strings.Contains(err.Error(), c.why) {
				t.Errorf("ParseInputs(%q, %q): %v; want %q", c.args, c.sockets, err, c.why)
			}
		} else if s := strings.Join(got, " "); s != c.want {
			t.Errorf("ParseInputs(%q, %q) = %s; want %s%s", c.args, c.sockets, s, c.want, c.why)
		}
	}
}
