package seccomp

import "golang.org/x/sys/unix"

// A span is a range of system call numbers, both ends included.
type span struct{ first, last uint32 }

// refuseUnknown appends code that returns ENOSYS for every number outside spans, and continues after it for the others.
// spans is sorted. The number is in the accumulator.
//
// A deny-list cannot name a call that is added later. So the numbers reviewed for the list are a list too,
// [reviewed]. Calls that a newer kernel adds do not exist inside, and C libraries fall back as on an older
// kernel. x32 numbers and -1 lie above all spans.
func refuseUnknown(p []unix.SockFilter, spans []span) []unix.SockFilter {
	n := len(spans)
	for i, s := range spans {
		refuse, pass := 2*n-(2*i+1), 2*n+1-(2*i+2)
		p = append(p,
			jump(unix.BPF_JGE, s.first, 0, uint8(refuse)),
			jump(unix.BPF_JGT, s.last, 0, uint8(pass)))
	}
	return append(p, ret(errno(unix.ENOSYS)))
}
