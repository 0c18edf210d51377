// Package seccomp assembles the system-call filters of a sandbox, [Filter] and [Init], and that of a program of
// demesne's which reads what comes from networks, [Server].
//
// The filter of a sandbox is a deny-list of the calls that Linux 6.18 has: of those, what is not named passes.
// A number that a newer kernel adds answers ENOSYS (escapes.md P27). It is the second wall, not
// the first. Namespaces, Landlock and the absence of capabilities decide what a
// workload may do; the filter takes away the parts of the kernel that have let
// workloads out in the past (namespaces and the mount API, bpf, io_uring, keyrings,
// exotic socket families …), by number and, where one number does many things, by
// argument. [rules] is the list, one line a reason.
//
// It is classic BPF made by hand: rules → [compile] → program, about 150
// instructions. Nothing is read from memory, because seccomp cannot; a call whose
// dangerous argument is behind a pointer is refused whole and with ENOSYS where a C
// library then falls back to an older call (clone3, openat2).
//
// Three things the compiler gets right, because filters have been passed by them:
//
//   - A foreign architecture (int 0x80) kills the process, and x32 numbers answer
//     ENOSYS as all unknown ones do: the numbers in the list mean nothing there (escapes.md P2).
//   - An argument the kernel takes as 32 bits is compared on its low word only:
//     ioctl(fd, TIOCSTI | 1<<32) is TIOCSTI to the kernel (CVE-2019-10063, P4).
//   - Flag words are tested bit by bit, never for equality.
//
// What it does not do: it cannot see paths, it does not filter by caller, and
// ptrace and process_vm_* stay allowed inside (debuggers work; PID 1 is out of
// their reach by credentials and by PR_SET_DUMPABLE). adjtimex and clock_adjtime
// stay too: reading the clock's state and setting it differ behind a pointer, and
// setting needs a capability nobody has.
package seccomp

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// Filter returns the program for o on this architecture.
func Filter(o pid1api.SeccompOptions) ([]unix.SockFilter, error) {
	prog, err := compile(rules(o), allow)
	if err != nil {
		return nil, fmt.Errorf("assemble seccomp filter: %w", err)
	}
	return prog, nil
}

// Digest names a program: sha256 over its instructions as the kernel's struct
// sock_filter lays them out in little-endian order, in hex.
func Digest(prog []unix.SockFilter) string {
	b := make([]byte, 0, 8*len(prog))
	for _, ins := range prog {
		b = binary.LittleEndian.AppendUint16(b, ins.Code)
		b = append(b, ins.Jt, ins.Jf)
		b = binary.LittleEndian.AppendUint32(b, ins.K)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// errTooLong is a block further than a BPF jump reaches: a mistake in the table.
var errTooLong = errors.New("jump over more than 255 instructions")
