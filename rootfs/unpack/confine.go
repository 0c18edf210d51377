package unpack

import (
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"

	"demesne/rootfs/layers"
)

// memory is what the process may have. An honest layer of a million entries takes a fifth of it.
const memory = 2 << 30

// Confine takes from the process, for ever, all of the file system but the store, of which it may
// write below trees only: who takes over an unpacker cannot give other images new contents. It also takes
// every TCP port, signals to others, new privileges and unbounded memory. It returns whether Landlock holds: kernels
// before 5.19 have none that allows hard links between directories, and some have none at all. The
// user namespace without a network, which the process should be in, is there on all of them.
// Descriptors that are open stay open, and [layers.OwnMap] is read before.
func Confine(store string) (held bool, err error) {
	if _, _, err := layers.OwnMap(); err != nil {
		return false, fmt.Errorf("confine: %w", err)
	}
	trees, err := layers.MakeDir(store)
	if err != nil {
		return false, fmt.Errorf("confine: %w", err)
	}
	// On every thread, which is what libcap's psx is for.
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
	// The node of a whiteout is a character device to Landlock too.
	write := landlock.V9.HandledAccessFS &^ (ll.AccessFSExecute | ll.AccessFSMakeBlock | ll.AccessFSMakeSock | ll.AccessFSIoctlDev)
	const read = ll.AccessFSReadFile | ll.AccessFSReadDir
	err = landlock.V9.BestEffort().Restrict(landlock.PathAccess(read, store), landlock.PathAccess(write, trees))
	if err != nil {
		return false, fmt.Errorf("confine: %w", err)
	}
	return true, nil
}
