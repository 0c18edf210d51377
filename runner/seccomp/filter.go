// Package seccomp assembles the system-call filters of a sandbox, [Filter] and [Init]. [Server] is the filter
// for a demesne program that reads data from networks.
//
// The filter of a sandbox is a deny-list over the calls of Linux 6.18: of those, calls not listed are allowed.
// A call number that a newer kernel adds returns ENOSYS (P27). The filter is the second line of
// defence. Namespaces, Landlock and the lack of capabilities decide what a workload may do. The filter removes
// kernel features that have allowed escapes in the past: namespaces and the mount API, bpf, io_uring, keyrings,
// exotic socket families and more. It works by number and, where one number does many things, by argument.
// [rules] is the list, one line per reason.
//
// The program is classic BPF without a library: rules → [compile] → program, about 150 instructions. Seccomp
// cannot read memory. So a call whose dangerous argument is behind a pointer is refused completely. It returns
// ENOSYS where a C library then falls back to an older call (clone3, openat2).
//
// The compiler avoids three mistakes that have let programs bypass filters:
//
//   - A foreign architecture (int 0x80) kills the process. x32 numbers return ENOSYS, as all unknown numbers
//     do: the listed numbers have another meaning there (P2).
//   - An argument that the kernel takes as 32 bits is compared by its low word only. To the kernel,
//     ioctl(fd, TIOCSTI | 1<<32) is TIOCSTI (CVE-2019-10063, P4).
//   - Flag words are tested bit by bit, never for equality.
//
// The filter cannot see paths and does not distinguish callers. ptrace and process_vm_* remain allowed inside,
// so debuggers work; credentials and PR_SET_DUMPABLE protect PID 1 from them. adjtimex and clock_adjtime also
// remain allowed: a pointer argument decides between reading and setting the clock, and setting needs a
// capability that sandboxes lack.
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

// Digest returns the identity of a program in hex: the sha256 of its instructions, laid out as the kernel's
// struct sock_filter in little-endian order.
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

// errTooLong means that a block exceeds the reach of a BPF jump, which is an error in the table.
var errTooLong = errors.New("jump over more than 255 instructions")
