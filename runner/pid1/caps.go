package pid1

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ownCaps are the capabilities PID 1 keeps, if it has them, to start and signal commands of other users.
const ownCaps = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL

// capSets are the capability sets of a thread.
type capSets struct{ effective, permitted, inheritable uint64 }

// dropCaps reduces every thread's capabilities to ownCaps and keep. It also empties the sets that commands
// inherit from: the bounding set (except keep), the inheritable set and the ambient set. execve gives uid 0
// "bounding ∩ permitted", which is keep. It gives other users nothing; [guest.attr] shows how they get keep.
// The bounding set matters only at execve, and only the spawner's children call it. So only the spawner's
// bounding set is dropped.
//
// The kernel requires CAP_SETPCAP for that. A sandbox without namespaces, run by an ordinary user, lacks it. It
// has nothing to drop either: no_new_privs keeps execve from adding to an empty permitted set.
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
	// Fails on kernels without ambient capabilities, where the set does not exist.
	unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)

	want := have.permitted & (ownCaps | kept)
	if err := setCaps(capSets{effective: want, permitted: want}); err != nil {
		return err
	}
	if missing := kept &^ have.permitted; missing != 0 {
		return fmt.Errorf("keep %#x: not in the permitted set", missing)
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
	return err == nil && v == 1 // EINVAL: the kernel does not have this capability
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

// setCaps sets the capability sets of every thread.
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
