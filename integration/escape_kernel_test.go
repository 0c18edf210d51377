package integration

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// attempts runs testdata/c/attempt in a sandbox and returns the outcome of each named attempt.
func (b *box) attempts(flags []string, names ...string) map[string]string {
	b.Helper()
	args := append(append([]string{"run"}, flags...), "--in", tools+"/attempt", "--", "/in/attempt")
	r := b.demesne(append(args, names...)...)
	got := outcomes(r.stdout)
	if r.code != 0 || len(got) != len(names) {
		b.Fatalf("attempt: %+v", r)
	}
	return got
}

// outcomes parses the output of testdata/c/attempt.
func outcomes(output string) map[string]string {
	got := map[string]string{}
	for _, l := range strings.Split(strings.TrimSpace(output), "\n") {
		name, what, _ := strings.Cut(l, " ")
		got[name] = what
	}
	return got
}

// refusedAll checks that each attempt failed, with one of errnos if any are given.
func (b *box) refusedAll(t *testing.T, names string, errnos ...string) {
	t.Helper()
	for name, what := range b.attempts(nil, strings.Fields(names)...) {
		ok := what != "OK" && what != "unknown"
		if ok && len(errnos) > 0 {
			ok = false
			for _, e := range errnos {
				ok = ok || what == e
			}
		}
		if !ok {
			t.Errorf("%s: %s, want refused %v", name, what, errnos)
		}
	}
}

func TestEscapeP1IOURing(t *testing.T) {
	newBox(t).refusedAll(t, "io_uring_setup io_uring_enter io_uring_register", "ENOSYS", "EPERM")
}

// refuser names the layer that refuses a system call of another ABI, by the call's outcomes outside and inside of a sandbox. It
// returns "" if no layer does. A kernel without the ABI refuses the call for all: int 0x80 is then SIGSEGV.
func refuser(outside, inside string) string {
	switch {
	case inside == outside && (outside == "signal 11" || outside == "ENOSYS"):
		return "the kernel, which has no such ABI"
	case inside == "ENOSYS" || inside == "EPERM" || inside == "signal 31":
		return "the filter"
	}
	return ""
}

func TestRefuser(t *testing.T) {
	for _, c := range []struct{ outside, inside, want string }{
		{"OK", "ENOSYS", "the filter"},
		{"OK", "EPERM", "the filter"},
		{"OK", "signal 31", "the filter"},
		{"signal 11", "signal 31", "the filter"},
		{"ENOSYS", "EPERM", "the filter"},
		{"EPERM", "EPERM", "the filter"}, // one in which no user may make a namespace
		{"signal 11", "signal 11", "the kernel, which has no such ABI"},
		{"ENOSYS", "ENOSYS", "the kernel, which has no such ABI"},
		{"OK", "OK", ""},
		{"OK", "signal 11", ""}, // the call was not refused: it crashed
		{"ENOSYS", "signal 11", ""},
		{"signal 11", "OK", ""},
		{"signal 11", "EFAULT", ""},
		{"EINVAL", "EINVAL", ""}, // the kernel ran it
		{"unknown", "unknown", ""},
	} {
		if got := refuser(c.outside, c.inside); got != c.want {
			t.Errorf("outside %s, inside %s: %q, want %q", c.outside, c.inside, got, c.want)
		}
	}
}

func TestEscapeP2ForeignABI(t *testing.T) {
	calls := []string{"int80_getpid", "int80_unshare", "int80_socketcall", "x32_getpid", "x32_unshare"}
	out, err := exec.Command(tools+"/attempt", calls...).Output()
	outside := outcomes(string(out))
	if err != nil || len(outside) != len(calls) {
		t.Fatalf("without a sandbox: %s, %v", out, err)
	}
	for name, inside := range newBox(t).attempts(nil, calls...) {
		if by := refuser(outside[name], inside); by != "" {
			t.Logf("%s is refused by %s", name, by)
		} else {
			t.Errorf("%s: %s, and %s without a sandbox: want refused", name, inside, outside[name])
		}
	}
}

func TestEscapeP3Namespaces(t *testing.T) {
	b := newBox(t)
	b.refusedAll(t, `unshare_user unshare_mount unshare_net unshare_pid unshare_ipc unshare_uts unshare_cgroup unshare_time unshare_many
		clone_user clone_user_high setns setns_pidfd`, "EPERM", "ENOSPC", "EINVAL")
	// The filter cannot read the flags of clone3, which are behind a pointer. So clone3 fails with ENOSYS, and
	// libc falls back to clone.
	b.refusedAll(t, "clone3_user", "ENOSYS")
}

func TestEscapeP5Keyrings(t *testing.T) {
	newBox(t).refusedAll(t, "add_key request_key keyctl keyctl_user", "EPERM", "ENOSYS")
}

// TestEscapeP6Init checks that a command can read, write or take nothing of PID 1, which holds the socket to the
// runner (P6).
func TestEscapeP6Init(t *testing.T) {
	b := newBox(t)
	b.refusedAll(t, `ptrace_init ptrace_attach_init vm_readv_init vm_writev_init pidfd_getfd_init mem_init mem_init_ro environ_init maps_init
		fd_init root_init cwd_init`)
	b.sh(`kill -9 1; kill -STOP 1; kill -SEGV 1; kill -TERM 1; sleep 0.1; grep -q demesne-init /proc/1/comm`)
	// Its program is read-only for all, so it cannot be swapped for the next run (F12).
	b.sh(`for c in 'cat /bin/sh > /proc/1/exe' 'cp /bin/sh /dev/.demesne-init' 'rm /dev/.demesne-init' 'mv /dev/.demesne-init /dev/x'; do
		if eval "$c" 2>/dev/null; then echo "$c"; exit 1; fi; done`)
}

// TestEscapeP7Privileges checks that no_new_privs is set and that no capability can be gained, so setuid programs
// have no effect (P7).
func TestEscapeP7Privileges(t *testing.T) {
	b := newBox(t)
	got := b.sh("grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t ' ' '")
	for _, want := range []string{"CapInh: 0000000000000000", "CapPrm: 0000000000000000", "CapEff: 0000000000000000", "CapBnd: 0000000000000000",
		"CapAmb: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	b.sh(`for m in $(grep -v -e nosuid -e ' /proc/[^ ]* ro,' /proc/self/mountinfo | cut -d' ' -f5); do echo "$m may have setuid programs"; exit 1; done`)
	b.refusedAll(t, "chroot sethostname mknod_char mknod_block")
}

// TestEscapeP8OtherWaysToExec checks that restrictions hold however a program is started, because the kernel
// enforces them independently of paths (P8).
func TestEscapeP8OtherWaysToExec(t *testing.T) {
	b := newBox(t)
	loader := "/lib64/ld-linux-x86-64.so.2"
	if _, err := os.Stat(loader); err != nil {
		t.Skip("another architecture's loader")
	}
	script := `cp /in/attempt /tmp/copy; ln /tmp/copy /tmp/hard; ln -s /in/attempt /tmp/soft
		for p in /in/attempt /tmp/copy /tmp/hard /tmp/soft /proc/self/root/in/attempt /in/../in/attempt; do $p unshare_user bpf mount; done
		` + loader + ` /usr/bin/env /in/attempt unshare_user bpf mount
		command -v perl >/dev/null && perl -e '$n="";$fd=syscall(319,$n,0);open(I,"<","/in/attempt");open(O,">&=",$fd);binmode O;local $/;print O <I>;O->flush;$0="x";exec {"/proc/self/fd/$fd"} "m","unshare_user","bpf","mount"' || true`
	got := b.sh(script, "--in", tools+"/attempt")
	if strings.Contains(got, "OK") || strings.Count(got, "unshare_user EPERM") < 7 {
		t.Errorf("other ways to start a program:\n%s", got)
	}
}

// TestEscapeP9PolicyIsOutside checks that the policy cannot be changed from inside, and that no socket to request
// a change exists there (P9).
func TestEscapeP9PolicyIsOutside(t *testing.T) {
	b := newBox(t)
	got := b.sh(`find / -xdev -type s 2>/dev/null; cat /proc/net/unix | tail -n +2; env | grep -i demesne_ | grep -v -e ^DEMESNE_OUT= -e ^DEMESNE_IN= -e ^DEMESNE_WORKSPACE=; find /run /var ! -type d ! -type l 2>/dev/null; true`)
	if strings.TrimSpace(got) != "" {
		t.Errorf("sockets or state inside: %q", got)
	}
	b.sh(`test ! -e ` + b.run + ` && test ! -e ` + b.home + `/.demesne && test ! -e ` + bin)
}

// TestEscapeP22InitLimits checks that commands cannot set limits or scheduling of PID 1, though it shares their
// user id (P22). That includes the ids of each of its threads.
func TestEscapeP22InitLimits(t *testing.T) {
	b := newBox(t)
	b.refusedAll(t, `prlimit_init setpriority_init setpriority_init_group setpriority_user affinity_init scheduler_init param_init attr_init ioprio_init ioprio_user
		prlimit_init_threads affinity_init_threads`, "EPERM")
	for name, what := range b.attempts(nil, "prlimit_self", "prlimit_zero", "prlimit_init_read", "affinity_self", "setpriority_self", "setpriority_group") {
		if what != "OK" {
			t.Errorf("%s: %s", name, what)
		}
	}
	// PID 1 never gets threads beyond those that the filter takes for threads of PID 1.
	id := b.create()
	first := b.must("exec", id, "-c", "echo $$")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { b.demesne("exec", id, "-c", "sleep 0.1; kill -TERM 1; exit 3") })
	}
	all.Wait()
	b.must("exec", id, "-c", `for t in /proc/1/task/*; do test ${t##*/} -lt "$1" || exit 1; done`, "sh", strings.TrimSpace(first))
	// Nor does it get them while the machine is busy and the runtime's threads come late.
	for range 8 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if got := b.demesne("run", "-c", `for t in /proc/1/task/*; do test ${t##*/} -lt $$ || echo "$t is later than $$"; done`); got.stdout != "" || got.code != 0 {
					t.Errorf("threads of PID 1: %+v", got)
				}
			})
		}
		all.Wait()
	}
}

func TestEscapeP13Syscalls(t *testing.T) {
	newBox(t).refusedAll(t, `mount bind pivot_root open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr bpf perf_event_open userfaultfd kexec_load
		kexec_file_load open_by_handle_at quotactl swapon swapoff init_module finit_module delete_module reboot syslog settimeofday clock_settime acct iopl ioperm`,
		"EPERM", "ENOSYS", "EACCES")
	b := newBox(t)
	// For files outside btrfs the kernel would return ENOTTY. For bridges and VLANs it would run modprobe, and
	// then say that the device does not exist.
	b.refusedAll(t, "btrfs_snapshot btrfs_snapshot_v2 bridges bridge_add vlans", "EPERM")
}

// TestEscapeCoreDumps checks that a crash starts no program of the host. The kernel runs the program of core(5)'s
// pattern unless the limit is 1, and a command cannot set another limit.
func TestEscapeCoreDumps(t *testing.T) {
	b := newBox(t)
	for _, limit := range []string{"unlimited", "0"} {
		got := b.sh("ulimit -c " + limit + "; grep core /proc/self/limits | tr -s ' '")
		if strings.TrimSpace(got) != "Max core file size 1 1 bytes" {
			t.Errorf("ulimit -c %s: %q", limit, got)
		}
	}
}

// TestEscapeF20SocketFamilies checks that socket families that often have kernel bugs are unavailable, and that
// those that programs need work (F20).
func TestEscapeF20SocketFamilies(t *testing.T) {
	b := newBox(t)
	b.refusedAll(t, `socket_packet socket_packet_high socket_alg socket_vsock socket_bluetooth socket_xdp socket_kcm socket_rxrpc socket_key
		socket_netfilter socket_audit socket_uevent socket_xfrm socketpair_alg socket_raw socket_dccp socket_in_order socket_udp_stream`, "EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT", "EACCES")
	for name, what := range b.attempts(nil, "socket_unix", "socket_inet", "socket_inet6", "socket_route") {
		if what != "OK" {
			t.Errorf("%s: %s", name, what)
		}
	}
}
