package unpack

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"

	"demesne/rootfs/layers"
)

// memory is the process's limit, in bytes. A benign layer of a million entries takes a fifth of it.
const memory = 2 << 30

// Confine restricts the process permanently. It leaves read access to the store only, and write access below trees
// only. So a compromised unpacker cannot change the contents of other images. Confine also denies all TCP ports,
// signals to other processes, new privileges and unbounded memory.
//
// Confine reports whether Landlock is enforced. Kernels before 5.19 have no version that allows hard links between
// directories, and some have none at all. The process should also be in a user namespace without a network, which
// works on all of them. Open descriptors stay open, and Confine reads [layers.OwnMap] first. With [layers.EnvOneID] there
// is no user namespace: Landlock must be enforced, and the process loses its capabilities, except those over files.
func Confine(store string) (held bool, err error) {
	held, err = confine(store)
	if err != nil || !layers.OneID() {
		return held, err
	}
	if !held {
		return false, errors.New("confine: no user namespace and no Landlock: nothing would confine this process")
	}
	return held, dropCaps()
}

// dropCaps leaves the capabilities by which uid 0 writes to any of its own directories. Landlock bounds them to the trees.
func dropCaps() error {
	const keep = 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("confine: read capabilities: %w", err)
	}
	left := sets[0].Permitted & keep
	sets = [2]unix.CapUserData{{Effective: left, Permitted: left}}
	if _, _, errno := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets[0])), 0); errno != 0 {
		return fmt.Errorf("confine: drop capabilities: %w", errno)
	}
	return nil
}

func confine(store string) (held bool, err error) {
	if _, _, err := layers.OwnMap(); err != nil {
		return false, fmt.Errorf("confine: %w", err)
	}
	trees, err := layers.MakeDir(store)
	if err != nil {
		return false, fmt.Errorf("confine: %w", err)
	}
	// Set it on every thread, with libcap's psx.
	if _, _, errno := psx.Syscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return false, fmt.Errorf("confine: no new privileges: %w", errno)
	}
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: memory, Max: memory}); err != nil {
		return false, fmt.Errorf("confine: limit memory: %w", err)
	}
	abi, err := ll.LandlockGetABIVersion()
	if err != nil || abi < 2 {
		return false, nil
	}
	// To Landlock the node of a whiteout is a character device too.
	write := landlock.V9.HandledAccessFS &^ (ll.AccessFSExecute | ll.AccessFSMakeBlock | ll.AccessFSMakeSock | ll.AccessFSIoctlDev)
	const read = ll.AccessFSReadFile | ll.AccessFSReadDir
	err = landlock.V9.BestEffort().Restrict(landlock.PathAccess(read, store), landlock.PathAccess(write, trees))
	if err != nil {
		return false, fmt.Errorf("confine: %w", err)
	}
	return true, nil
}
