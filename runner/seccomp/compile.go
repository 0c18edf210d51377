package seccomp

import (
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
func compile(rules []rule, otherwise action) ([]unix.SockFilter, error) {
	prog := prologue()
	done := map[uint32]bool{}
	flat := map[action][]uint32{}
	var answers []action
	for _, r := range rules {
		for _, nr := range r.calls {
			if done[nr] {
				continue
			}
			done[nr] = true
			mine := rulesOf(rules, nr)
			if len(mine[0].when) == 0 {
				if flat[mine[0].do] == nil {
					answers = append(answers, mine[0].do)
				}
				flat[mine[0].do] = append(flat[mine[0].do], nr)
				continue
			}
			b, err := block(nr, mine, otherwise)
			if err != nil {
				return nil, err
			}
			prog = append(prog, b...)
		}
	}
	for _, a := range answers {
		b, err := group(flat[a], a)
		if err != nil {
			return nil, err
		}
		prog = append(prog, b...)
	}
	return append(prog, ret(otherwise)), nil
}

func prologue() []unix.SockFilter {
	p := []unix.SockFilter{load(offArch), jump(unix.BPF_JEQ, auditArch, 1, 0), ret(kill), load(offNR)}
	return append(p, refuseUnknown(reviewed)...)
}

func rulesOf(rules []rule, nr uint32) []rule {
	var mine []rule
	for _, r := range rules {
		for _, c := range r.calls {
			if c == nr {
				mine = append(mine, r)
			}
		}
	}
	return mine
}

// block returns the code for one call. It overwrites the number in the accumulator, so it ends in a return.
func block(nr uint32, rules []rule, otherwise action) ([]unix.SockFilter, error) {
	var body []unix.SockFilter
	for _, r := range rules {
		body = append(body, test(r)...)
	}
	body = append(body, ret(otherwise))
	if len(body) > 255 {
		return nil, errTooLong
	}
	return append([]unix.SockFilter{jump(unix.BPF_JEQ, nr, 0, uint8(len(body)))}, body...), nil
}

// test returns r.do if all of r.when hold, else continues after its own code.
func test(r rule) []unix.SockFilter {
	out := []unix.SockFilter{ret(r.do)}
	for i := len(r.when) - 1; i >= 0; i-- {
		c, miss := r.when[i], uint8(len(out))
		head := []unix.SockFilter{load(c.offset())}
		switch {
		case c.any:
			head = append(head, jump(unix.BPF_JSET, c.mask, 0, miss))
		case c.most:
			head = append(head, jump(unix.BPF_JGT, c.want, miss, 0))
		case c.mask == all:
			head = append(head, jump(unix.BPF_JEQ, c.want, 0, miss))
		default:
			head = append(head,
				unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.mask},
				jump(unix.BPF_JEQ, c.want, 0, miss))
		}
		out = append(head, out...)
	}
	return out
}

// group returns a for each of calls.
func group(calls []uint32, a action) ([]unix.SockFilter, error) {
	if len(calls) > 255 {
		return nil, errTooLong
	}
	var b []unix.SockFilter
	for i, nr := range calls {
		left := uint8(len(calls) - 1 - i)
		miss := uint8(0)
		if left == 0 {
			miss = 1
		}
		b = append(b, jump(unix.BPF_JEQ, nr, left, miss))
	}
	return append(b, ret(a)), nil
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
