package pid1

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ownCaps is what PID 1 keeps, if it has it, to start commands as other users and to
// signal them.
const ownCaps = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL

// capSets are a thread's.
type capSets struct{ effective, permitted, inheritable uint64 }

// dropCaps leaves every thread no more than ownCaps and keep, and empties what
// commands get theirs from: the bounding set (but for keep), the inheritable and the
// ambient set. execve gives uid 0 "bounding ∩ permitted", which is keep, and other
// users nothing; see [guest.attr] for how those get keep. The bounding set matters at
// execve only, and only the spawner's children come to one: it is the one whose set is
// dropped.
//
// The kernel asks CAP_SETPCAP for that. Without it (a sandbox without namespaces, run
// by an ordinary user) there is nothing to drop either: no_new_privs keeps execve from
// adding to an empty permitted set.
func dropCaps(keep []uint) error {
	kept := mask(keep)
	have, err := getCaps()
	if err != nil {
		return err
	}
	if have.permitted&(1<<unix.CAP_SETPCAP) != 0 {
		for c := range uint(64) {
			if bounding(c) && kept&(1<<c) == 0 {
				if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
					return fmt.Errorf("drop capability %d: %w", c, err)
				}
			}
		}
	}
	// Fails on kernels without ambient capabilities, which have none.
	unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)

	want := have.permitted & (ownCaps | kept)
	if err := setCaps(capSets{effective: want, permitted: want}); err != nil {
		return err
	}
	if missing := kept &^ have.permitted; missing != 0 {
		return fmt.Errorf("keep %#x: not there to keep", missing)
	}
	if left := boundingSet() & want &^ kept; left != 0 {
		return fmt.Errorf("bounding set still has %#x", left)
	}
	return nil
}

func mask(caps []uint) (m uint64) {
	for _, c := range caps {
		if c < 64 {
			m |= 1 << c
		}
	}
	return m
}

func bounding(c uint) bool {
	v, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
	return err == nil && v == 1 // EINVAL: the kernel knows no such capability
}

func boundingSet() (m uint64) {
	for c := range uint(64) {
		if bounding(c) {
			m |= 1 << c
		}
	}
	return m
}

func getCaps() (capSets, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&hdr, &d[0]); err != nil {
		return capSets{}, fmt.Errorf("read capabilities: %w", err)
	}
	join := func(lo, hi uint32) uint64 { return uint64(hi)<<32 | uint64(lo) }
	return capSets{
		effective:   join(d[0].Effective, d[1].Effective),
		permitted:   join(d[0].Permitted, d[1].Permitted),
		inheritable: join(d[0].Inheritable, d[1].Inheritable),
	}, nil
}

// setCaps sets those of every thread.
func setCaps(c capSets) error {
	hdr := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	d := &[2]unix.CapUserData{
		{Effective: uint32(c.effective), Permitted: uint32(c.permitted), Inheritable: uint32(c.inheritable)},
		{Effective: uint32(c.effective >> 32), Permitted: uint32(c.permitted >> 32), Inheritable: uint32(c.inheritable >> 32)},
	}
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(hdr)), uintptr(unsafe.Pointer(d)), 0)
	if e != 0 {
		return fmt.Errorf("set capabilities: %w", e)
	}
	return nil
}
