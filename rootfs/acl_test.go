package rootfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

func TestLend(t *testing.T) {
	if !nstest.Enter(t) || !nstest.Many() {
		return
	}
	for _, mode := range []os.FileMode{0o750, 0o700, 0o755, 0o777, 0o711} {
		dir := t.TempDir()
		if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		takeBack, err := GrantWrite(d, User{1000, 1000})
		if err != nil {
			t.Fatal(err)
		}
		if err := touchAs(1000, dir); err != nil {
			t.Errorf("mode %o: the user cannot write: %v", mode, err)
		}
		if err := touchAs(1001, dir); (err == nil) != (mode&0o002 != 0) {
			t.Errorf("mode %o: another user: %v", mode, err)
		}
		if _, err := GrantWrite(d, User{1001, 1001}); err == nil {
			t.Error("lent twice")
		}
		if err := takeBack(); err != nil {
			t.Fatal(err)
		}
		if err := touchAs(1000, dir); (err == nil) != (mode&0o002 != 0) {
			t.Errorf("mode %o: afterwards: %v", mode, err)
		}
		st, err := d.Stat()
		if err != nil || st.Mode().Perm() != mode {
			t.Errorf("mode %o became %o (%v)", mode, st.Mode().Perm(), err)
		}
		if _, err := unix.Fgetxattr(int(d.Fd()), accessList, nil); err != unix.ENODATA {
			t.Errorf("mode %o: an access list stays: %v", mode, err)
		}
	}
}

// touchAs makes and removes a file as another user.
func touchAs(uid uint32, dir string) error {
	cmd := exec.Command("/bin/sh", "-c", `touch "$1/x" && rm "$1/x"`, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, NoSetGroups: true}}
	return cmd.Run()
}
