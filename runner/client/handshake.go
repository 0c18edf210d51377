package client

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/limits/cgroup"
	"demesne/runner/userns"
)

// shake performs the caller's part of the diagram in package userns. After 'g' it sends the Boot as one line of JSON.
func (l *launcher) shake(ctl *os.File, boot *api.Boot) error {
	pid, ready := 0, false
	for pid == 0 || !ready { // A and B do not wait for each other
		b, err := readStep(ctl)
		if err != nil {
			return fmt.Errorf("wait for runner: %w", err)
		}
		switch b {
		case 'p':
			var n [4]byte
			if _, err := io.ReadFull(ctl, n[:]); err != nil {
				return err
			}
			pid = int(binary.NativeEndian.Uint32(n[:]))
		case 'r':
			ready = true
		}
	}
	l.pid = pid
	return l.release(ctl, pid, boot)
}

// release writes B's id map and lets B continue.
func (l *launcher) release(ctl *os.File, pid int, boot *api.Boot) error {
	if l.mode == userns.ModeMinimal {
		boot.UIDMap, boot.GIDMap = []runner.IDRange{{Host: uint32(os.Geteuid()), Size: 1}}, []runner.IDRange{{Host: uint32(os.Getegid()), Size: 1}}
		boot.MapWhy, boot.MapFix = boot.ModeWhy, boot.ModeFix
	} else {
		began := time.Now()
		maps, err := l.ids.write(pid)
		l.trace = []runner.Stage{{Name: "maps", MS: float64(time.Since(began).Microseconds()) / 1000}}
		if refused := mapRefused(err); refused != nil {
			return refused
		}
		if err != nil {
			return err
		}
		boot.UIDMap, boot.GIDMap = maps.UID, maps.GID
		boot.MapWhy, boot.MapFix = maps.Why, maps.Fix
		if err := cgroup.Enter(boot.CgroupAt, pid); err != nil {
			return err
		}
	}
	// The 'g' goes first: the runner's Go runtime starts while the Boot is encoded.
	if _, err := ctl.Write([]byte{'g'}); err != nil {
		return err
	}
	return json.NewEncoder(ctl).Encode(boot)
}

// mapRefused returns the refusal if the machine forbids writing the map: the kernel does, or /proc is read-only.
func mapRefused(err error) error {
	for _, errno := range []syscall.Errno{syscall.EPERM, syscall.EROFS} {
		if errors.Is(err, errno) && !errors.Is(err, errHalfMapped) {
			return &userns.Refused{Step: userns.StepMap, Errno: errno}
		}
	}
	return nil
}

// readStep reads a byte from the control socket. For an 'e' it returns the error that follows.
func readStep(ctl *os.File) (byte, error) {
	var b [1]byte
	if _, err := io.ReadFull(ctl, b[:]); err != nil {
		return 0, err
	}
	if b[0] != 'e' {
		return b[0], nil
	}
	var e [2]byte
	if _, err := io.ReadFull(ctl, e[:]); err != nil {
		return 0, err
	}
	return 0, &userns.Refused{Step: userns.Step(e[0]), Errno: syscall.Errno(e[1])}
}

// control returns the environment of the C half of package userns. extra is the index of the control socket in the
// extra files.
func control(extra int, mode string) []string {
	return []string{userns.EnvControl + "=" + strconv.Itoa(3+extra), userns.EnvMode + "=" + mode}
}

// controlPair makes the stream socket in the diagram of package userns. The child's end is in blocking mode, for C.
func controlPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make control socket: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control"), nil
}
