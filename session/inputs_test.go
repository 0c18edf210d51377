package session

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

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
