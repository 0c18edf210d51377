// Package need skips tests on machines that lack something. Under CI, where $CI is set, a missing need is a failure. It also makes
// what tests of several packages need.
package need

import (
	"golang.org/x/sys/unix"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// That skips the test if ok is false. what names the need.
func That(t testing.TB, ok bool, what string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("CI") != "":
		t.Fatalf("needs %s, and CI must have it: integration/deps.sh", what)
	default:
		t.Skipf("needs %s: integration/deps.sh", what)
	}
}

// Program skips the test if no directory of $PATH has the program. name may also be a path.
func Program(t testing.TB, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	That(t, err == nil, name)
}

// Terminal returns both ends of a new terminal, which the test closes at its end.
func Terminal(t testing.TB, rows, columns uint16) (controlling, user *os.File) {
	t.Helper()
	controlling, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	That(t, err == nil, "/dev/ptmx")
	raw, err := controlling.SyscallConn()
	number := 0
	if err == nil {
		raw.Control(func(fd uintptr) {
			unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
			unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
		})
	}
	if err == nil {
		user, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		user.Close()
		controlling.Close()
	})
	return controlling, user
}

// Descriptors lets this process open only n more descriptors, until restore.
func Descriptors(t testing.TB, n int) (restore func()) {
	t.Helper()
	next, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(next)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	set := func(l unix.Rlimit) {
		t.Helper()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
			t.Fatal(err)
		}
	}
	set(unix.Rlimit{Cur: uint64(next + n), Max: old.Max})
	return func() { set(old) }
}
