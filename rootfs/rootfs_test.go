package rootfs

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

func TestHostPrograms(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	tree := mounted(t, Layout{Size: 64 << 20, Hostname: "box"})
	withDev(t, tree)
	for _, row := range []struct {
		argv []string
		want string
	}{
		{[]string{"sh", "-c", "echo $((6*7))"}, "42"},
		{[]string{"sh", "-c", "echo x >/dev/null; head -c3 /dev/zero | wc -c"}, "3"},
		{[]string{"/usr/bin/python3", "-c", "import ssl, hashlib; print(6*7)"}, "42"},
		{[]string{"node", "-e", "console.log(6*7)"}, "42"},
		{[]string{"git", "--version"}, "git version"},
		{[]string{"perl", "-e", "print 6*7"}, "42"},
		{[]string{"sh", "-c", "echo 'int main(void){return 42;}' >a.c && gcc -o a a.c; ./a; echo $?"}, "42"},
		{[]string{"/usr/local/go/bin/go", "version"}, "go version"},
		{[]string{"sh", "-c", "id -un; cat /etc/hostname"}, "root\nbox"},
	} {
		t.Run(row.argv[0], func(t *testing.T) {
			if _, err := exec.LookPath(row.argv[0]); err != nil {
				t.Skip(err)
			}
			out, err := inside(t, tree, row.argv...)
			if err != nil || !strings.Contains(out, row.want) {
				t.Errorf("%q: %v, output %q, want %q", row.argv, err, out, row.want)
			}
		})
	}
}

// TestHostFiles checks that HostFiles has the files that the tree of the host has, and no others.
func TestHostFiles(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	f, err := HostFiles(Layout{Hostname: "box", User: User{1000, 1000}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, want := range map[string]bool{"etc/passwd": true, "home/user": true, "var/tmp": true, "etc/shadow": false, "root/x": false} {
		if got := unix.Faccessat(int(f.Fd()), name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil; got != want {
			t.Errorf("/%s: %t", name, got)
		}
	}
}
