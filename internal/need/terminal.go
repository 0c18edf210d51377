package need

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

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
