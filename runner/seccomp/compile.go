package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// A rule maps calls, if all conditions on their arguments hold, to an action. The first matching rule applies.
type rule struct {
	calls []uint32
	when  []cond
	do    action
}

// An action is a SECCOMP_RET_* value of the filter.
type action uint32

const (
	allow  action = unix.SECCOMP_RET_ALLOW
	kill   action = unix.SECCOMP_RET_KILL_PROCESS
	notify action = unix.SECCOMP_RET_USER_NOTIF // the owner of a Listener answers
)

// errno returns the action that fails a call with e without making it. 0 pretends success.
func errno(e unix.Errno) action { return unix.SECCOMP_RET_ERRNO | action(e) }

// A cond compares one word of argument arg: the low word, or with high the high word of a pointer. No other
// argument in the table has more than 32 significant bits.
type cond struct {
	arg  int
	any  bool   // some bit of mask is set; otherwise the bits of mask equal want
	mask uint32 // all: the whole word
	want uint32
	high bool
	most bool // the whole word is at most want
}

const all = ^uint32(0)

// is: the bits of the argument in mask, which the kernel evaluates, equal want.
func is(arg int, mask, want uint32) cond { return cond{arg: arg, mask: mask, want: want} }

// has: the argument has at least one bit of mask.
func has(arg int, mask uint32) cond { return cond{arg: arg, any: true, mask: mask} }

// upTo: the argument is at most most.
func upTo(arg int, most uint32) cond { return cond{arg: arg, most: true, want: most} }

// notNil returns two alternatives; a pointer that is not nil satisfies at least one.
func notNil(arg int) []cond {
	return []cond{{arg: arg, any: true, mask: all}, {arg: arg, any: true, mask: all, high: true}}
}

// Offsets into struct seccomp_data on a little-endian machine.
const (
	offNR   = 0
	offArch = 4
	offArgs = 16 // six arguments of 64 bits, low word first
)

// offset returns the offset of the word that c compares.
func (c cond) offset() uint32 {
	at := offArgs + 8*uint32(c.arg)
	if c.high {
		at += 4
	}
	return at
}

// compile turns rules into a program:
//
//	native architecture?   no → kill
//	number was reviewed?   no → ENOSYS, see refuseUnknown
//	calls with conditions  each a block that always returns
//	calls without          one comparison each, one return per answer
//	otherwise
//
// The blocks come first because, of the calls that pass, only those with conditions run the program. For a
// number whose arguments are not examined, the kernel (≥ 5.11) detects that the answer is always allow and
// skips the program.
func compile(rules []rule, otherwise action) (prog []unix.SockFilter, err error) {
	// Each sandbox's PID 1 compiles two programs, and keeps every page that this writes to.
	prog = prologue(make([]unix.SockFilter, 0, 384))
	var done []uint32
	var flat []returned
	for i, r := range rules {
		for _, nr := range r.calls {
			if slices.Contains(done, nr) {
				continue
			}
			done = append(done, nr)
			if len(r.when) == 0 {
				flat = addCall(flat, r.do, nr)
			} else if prog, err = block(prog, nr, rules[i:], otherwise); err != nil {
				return nil, err
			}
		}
	}
	for _, a := range flat {
		if prog, err = group(prog, a); err != nil {
			return nil, err
		}
	}
	return append(prog, ret(otherwise)), nil
}

// A returned is an action, and the calls without conditions that return it.
type returned struct {
	do    action
	calls []uint32
}

// addCall adds a call that returns do.
func addCall(flat []returned, do action, nr uint32) []returned {
	i := slices.IndexFunc(flat, func(a returned) bool { return a.do == do })
	if i < 0 {
		i, flat = len(flat), append(flat, returned{do: do})
	}
	flat[i].calls = append(flat[i].calls, nr)
	return flat
}

func prologue(prog []unix.SockFilter) []unix.SockFilter {
	prog = append(prog, load(offArch), jump(unix.BPF_JEQ, auditArch, 1, 0), ret(kill), load(offNR))
	return refuseUnknown(prog, reviewed)
}

// block appends the code for one call. It overwrites the number in the accumulator, so it ends in a return.
func block(prog []unix.SockFilter, nr uint32, rules []rule, otherwise action) ([]unix.SockFilter, error) {
	start := len(prog)
	prog = append(prog, unix.SockFilter{}) // jumps over the rest if the number is another one
	for _, r := range rules {
		if slices.Contains(r.calls, nr) {
			prog = test(prog, r)
		}
	}
	prog = append(prog, ret(otherwise))
	rest := len(prog) - start - 1
	if rest > 255 {
		return nil, errTooLong
	}
	prog[start] = jump(unix.BPF_JEQ, nr, 0, uint8(rest))
	return prog, nil
}

// test appends code that returns r.do if all of r.when hold, and else continues after itself.
func test(prog []unix.SockFilter, r rule) []unix.SockFilter {
	start := len(prog)
	for _, c := range r.when {
		prog = append(prog, load(c.offset()))
		switch {
		case c.any:
			prog = append(prog, jump(unix.BPF_JSET, c.mask, 0, 1))
		case c.most:
			prog = append(prog, jump(unix.BPF_JGT, c.want, 1, 0))
		case c.mask == all:
			prog = append(prog, jump(unix.BPF_JEQ, c.want, 0, 1))
		default:
			prog = append(prog,
				unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.mask},
				jump(unix.BPF_JEQ, c.want, 0, 1))
		}
	}
	prog = append(prog, ret(r.do))
	for i := start; i < len(prog); i++ { // a jump by 1 leads to the end
		end := uint8(len(prog) - 1 - i)
		prog[i].Jt, prog[i].Jf = prog[i].Jt*end, prog[i].Jf*end
	}
	return prog
}

// group appends code that returns a.do for each of a.calls.
func group(prog []unix.SockFilter, a returned) ([]unix.SockFilter, error) {
	if len(a.calls) > 255 {
		return nil, errTooLong
	}
	for i, nr := range a.calls {
		prog = append(prog, jump(unix.BPF_JEQ, nr, uint8(len(a.calls)-1-i), 0))
	}
	prog[len(prog)-1].Jf = 1
	return append(prog, ret(a.do)), nil
}

func load(off uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
}

func jump(op uint16, k uint32, jt, jf uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | op, Jt: jt, Jf: jf, K: k}
}

func ret(a action) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: uint32(a)}
}
