package integration

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEscapeF1HostSockets checks that the sockets of daemons that act on the caller's behalf are not visible
// (F1).
func TestEscapeF1HostSockets(t *testing.T) {
	b := newBox(t)
	l, err := net.Listen("unix", b.dir+"/daemon.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	abstract, err := net.Listen("unix", "@"+b.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	got := b.sh(`for s in ` + b.dir + `/daemon.sock /run/docker.sock /var/run/docker.sock /run/podman/podman.sock /run/containerd/containerd.sock /run/libvirt/libvirt-sock \
		/run/user/*/bus /run/dbus/system_bus_socket /run/systemd/private /tmp/tmux-*/default /tmp/.X11-unix/X0; do test -e "$s" && echo "$s"; done; true`)
	if got != "" {
		t.Errorf("within reach: %s", got)
	}
	if got := b.sh(`perl -MIO::Socket::UNIX -e 'print IO::Socket::UNIX->new(Peer => "\0` + b.dir + `") ? "connected" : "refused"'`); got != "refused" {
		t.Errorf("the host's abstract socket: %s", got)
	}
}

// TestEscapeN14HostLoopback checks that the host's TCP services are not reachable: the sandbox has its own
// loopback (N14).
func TestEscapeN14HostLoopback(t *testing.T) {
	b := newBox(t)
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	got := b.sh(`perl -MIO::Socket::INET -e 'for $a ("127.0.0.1", "10.0.2.2", "169.254.169.254", @ARGV) { print "$a\n" if IO::Socket::INET->new(PeerAddr => $a, PeerPort => ` + port + `, Timeout => 1) }' ` +
		strings.Join(addresses(), " ") + `; tail -n +3 /proc/net/dev | grep -v lo: ; tail -n +2 /proc/net/route`)
	if got != "" {
		t.Errorf("reached, or had: %s", got)
	}
	// The sandbox's own loopback works.
	b.sh(`perl -MIO::Socket::INET -e '$l = IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 1) or die; IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $l->sockport) or die'`)
}

func addresses() (all []string) {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			all = append(all, n.IP.String())
		}
	}
	return all
}

// TestEscapeF3CreatedBecauseAbsent checks that a sandbox cannot create absent files in places where the host, or
// the next run, would find them (F3).
func TestEscapeF3CreatedBecauseAbsent(t *testing.T) {
	b := newBox(t)
	b.sh(`for f in /etc/ld.so.preload "$HOME/.bashrc" "$HOME/.demesne/policy" /.dockerenv `+b.home+`/.claude/settings.json /root/.profile /var/spool/cron/root \
		/usr/lib/demesne /run/x /in/new /in/d/.claude; do mkdir -p "$(dirname $f)" 2>/dev/null; echo evil > $f 2>/dev/null; done; true`, "--in", b.mkdir("d"))
	got := b.sh(`for f in /etc/ld.so.preload "$HOME/.bashrc" "$HOME/.demesne/policy" /.dockerenv ` + b.home + `/.claude/settings.json /root/.profile /run/x; do test ! -s $f || echo $f; done`)
	if got != "" {
		t.Errorf("the next run finds %s", got)
	}
	for _, p := range []string{b.home + "/.claude", b.home + "/.bashrc", b.dir + "/d/.claude", "/.dockerenv-demesne"} {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("made %s on the host", p)
		}
	}
}

// TestEscapeF4OtherNames checks that a protected path remains protected under its other names (F4).
func TestEscapeF4OtherNames(t *testing.T) {
	b := newBox(t)
	dir := b.mkdir("d")
	file := b.file("d/f", "original\n", 0o666)
	os.Chmod(dir, 0o777)
	out := b.mkdir("o")
	got := b.sh(`cd /in/d; exec 7</in/d/f; for c in 'echo x > f' 'echo x > ./f' 'echo x > /in/../in/d/f' 'echo x > /proc/self/root/in/d/f' 'echo x > /proc/self/cwd/f' \
		'echo x > /proc/self/fd/7' 'echo x > /dev/fd/7' 'mv /in /in2' 'mv /in/d /in/e' 'mv /in/d /out/d' 'rmdir /in/d' 'ln f /out/hard && echo x > /out/hard' 'ln f /tmp/hard' \
		'touch /in/d/' 'touch /in/d/f/' 'ln -sfn /tmp /in/d' 'truncate -s 0 /in/d//f' 'chmod 0777 .' 'setfattr -n user.x -v y f' 'mount --bind /tmp /in/d' 'dd of=f conv=notrunc if=/dev/zero count=1'; do
		if (eval "$c") 2>/dev/null; then echo "worked: $c"; fi; done`, "--in", dir, "--out", out)
	if got != "" {
		t.Error(got)
	}
	if text, _ := os.ReadFile(file); string(text) != "original\n" {
		t.Errorf("the host's file became %q", text)
	}
}

// TestEscapeF11LeakedDescriptors checks that a sandbox has no descriptor of the caller or the runner (F11). A
// working directory that looks like a path to one is refused.
func TestEscapeF11LeakedDescriptors(t *testing.T) {
	b := newBox(t)
	etc, err := os.Open("/etc")
	if err != nil {
		t.Fatal(err)
	}
	cmd := b.command("demesne", "run", "-i", "--", "sh", "-c", `ls -1 /proc/self/fd | tr '\n' ' '; for f in 0 1 2; do stat -L -c %F /proc/self/fd/$f; done; ls /proc/self/fd/7/shadow`)
	cmd.ExtraFiles = []*os.File{etc, etc, etc, etc, etc, etc} // 3 to 8
	cmd.Stdin = etc
	r := b.finish(cmd)
	if !strings.HasPrefix(r.stdout, "0 1 2 3 ") || strings.Contains(r.stdout, "shadow") {
		t.Errorf("descriptors inside: %+v", r)
	}
	for _, l := range strings.Split(r.stdout, "\n")[1:] {
		if l != "" && !strings.Contains(l, "fifo") && l != "character special file" {
			t.Errorf("stdio is a %s", l)
		}
	}
	for _, dir := range []string{"/proc/self/fd/3", "/proc/self/fd/7", "/proc/1/cwd", "/proc/1/root", "/proc/self/fd/7/../..", "/proc/thread-self/fd/8"} {
		cmd := b.command("demesne", "run", "--workdir", dir, "--", "sh", "-c", "pwd -P; ls -a")
		cmd.ExtraFiles = []*os.File{etc, etc, etc, etc, etc, etc}
		if r := b.finish(cmd); r.code == 0 && (strings.Contains(r.stdout, "passwd") || strings.Contains(r.stdout, ".demesne")) {
			t.Errorf("--workdir %s: %+v", dir, r)
		}
	}
}

// TestEscapeF14Proc checks that /proc shows only this sandbox (F14).
func TestEscapeF14Proc(t *testing.T) {
	b := newBox(t)
	got := b.sh(`ls /proc | grep -c '^[0-9]'; for f in /proc/kcore /proc/keys /proc/sysrq-trigger /proc/timer_list /proc/kmsg /proc/sched_debug /proc/scsi/scsi /proc/latency_stats /proc/acpi/x; do
		head -c 1 $f 2>/dev/null | grep -q . && echo "readable $f"; done
		for f in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/vm/drop_caches /proc/sys/net/ipv4/ip_forward /proc/irq/default_smp_affinity /proc/sys/kernel/hostname \
		/proc/mtrr /proc/driver/x /proc/bus/x /proc/fs/x; do (echo x > $f) 2>/dev/null && echo "writable $f"; done
		find /proc -path '/proc/[0-9]*' -prune -o -type f -writable -print | while read f; do [ -f "$f" ] && echo "writable $f"; done
		ls /proc/1/root /proc/1/cwd 2>/dev/null; readlink /proc/1/fd/3; cat /proc/1/environ 2>/dev/null | head -c 100; grep -c ` + canary[:8] + `[` + canary[8:9] + `]` + canary[9:] + ` /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | grep -v ':0$'; true`)
	lines := strings.SplitN(got, "\n", 2)
	if n := lines[0]; len(n) != 1 {
		t.Errorf("%s processes in /proc", n)
	}
	if lines[1] != "" {
		t.Errorf("/proc:\n%s", lines[1])
	}
}

// TestEscapeF15Sys checks that /sys and /proc/sys have no writable file that makes the host run a helper, and
// that no control group is writable (F15).
func TestEscapeF15Sys(t *testing.T) {
	b := newBox(t)
	got := b.sh(`for f in /sys/kernel/uevent_helper /sys/kernel/mm/transparent_hugepage/enabled /sys/power/state /sys/fs/cgroup/release_agent /sys/fs/cgroup/*/release_agent \
		/sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/tasks /sys/class/net/lo/mtu /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe; do
		(echo x > $f) 2>/dev/null && echo "writable $f"; done; mkdir /sys/fs/cgroup/x /sys/fs/cgroup/*/x 2>/dev/null && echo made; find /sys -writable -type f 2>/dev/null | head -3 | while read f; do (echo x >> $f) 2>/dev/null && echo "writable $f"; done; true`)
	if got != "" {
		t.Error(got)
	}
	b.refusedAll(t, "mount_cgroup mount_cgroup2 mount_sysfs mount_proc remount_sys", "EPERM")
}

// TestEscapeF43Firmware checks that no command reads the machine's memory map, or other files of its firmware (F43).
func TestEscapeF43Firmware(t *testing.T) {
	b := newBox(t)
	got := b.sh(`test -d /sys/class/net/lo || echo no sysfs; find /sys/firmware /sys/devices/virtual/powercap -type f 2>/dev/null | while read f; do (head -c 1 $f | grep -q .) 2>/dev/null && echo "readable $f"; done; true`)
	if got = strings.TrimPrefix(got, "no sysfs\n"); got != "" {
		t.Error(got)
	}
	b.refusedAll(t, "umount_firmware", "EPERM", "EINVAL", "ENOENT")
}

// TestEscapeF16Mounts checks that mounts are locked (F16). Neither the sandbox's root nor the root of a user
// namespace created under --nesting can undo them.
func TestEscapeF16Mounts(t *testing.T) {
	b := newBox(t)
	b.refusedAll(t, "mount bind remount_in remount_usr remount_sys propagate umount_in umount_proc umount_kcore open_tree move_mount mount_setattr pivot_root", "EPERM", "ENOSYS")
	file := b.file("f", "original\n", 0o666)
	got := b.sh(`unshare -Urm sh -c 'for c in "mount -o remount,rw,bind /in/f" "mount -o remount,rw,bind /usr" "umount /in/f" "umount -l /usr" "umount -l /proc" "mount -o remount,rw,bind /sys"; do
		$c 2>/dev/null && echo "worked: $c"; done; (echo x > /in/f) 2>/dev/null && echo wrote; echo made it'`, "--nesting", "--in", file)
	if got != "made it\n" {
		t.Errorf("in a user namespace of its own: %q", got)
	}
	if text, _ := os.ReadFile(file); string(text) != "original\n" {
		t.Errorf("the host's file became %q", text)
	}
}

// TestEscapeP10Sockets checks that a command never gets the caller's stdin itself, so that no descriptor can be
// passed over it (P10).
func TestEscapeP10Sockets(t *testing.T) {
	b := newBox(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "socket")
	ours := os.NewFile(uintptr(fds[0]), "socket")
	cmd := b.command("demesne", "run", "-i", "--", "sh", "-c", "for f in 0 1 2; do test -S /proc/self/fd/$f && echo socket $f; done; cat")
	cmd.Stdin, cmd.Stderr = theirs, theirs
	unix.Sendmsg(fds[0], []byte("hello\n"), unix.UnixRights(int(ours.Fd())), nil, 0)
	unix.Shutdown(fds[0], syscall.SHUT_WR)
	if r := b.finish(cmd); r.stdout != "hello\n" {
		t.Errorf("a socket as stdin: %+v", r)
	}
}

// TestEscapeP14Environment checks that only listed variables enter the environment, and that loader variables
// reach no helper program (P14).
func TestEscapeP14Environment(t *testing.T) {
	b := newBox(t)
	cmd := b.command("demesne", "run", "--", "sh", "-c", "env; cat /proc/1/environ 2>/dev/null; set")
	cmd.Env = append(cmd.Env, "GITHUB_TOKEN="+canary, "LD_PRELOAD=/"+canary+".so", "BASH_ENV=/"+canary, "ENV=/"+canary, "PYTHONPATH=/"+canary, "http_proxy=http://"+canary)
	if r := b.finish(cmd); r.code != 0 || strings.Contains(r.stdout, canary) {
		t.Errorf("the caller's secrets passed: %+v", r)
	}
}

// TestEscapeP17Results checks that a workload's output is data to demesne: bounded, and never parsed (P17).
func TestEscapeP17Results(t *testing.T) {
	b := newBox(t)
	p, r := b.report(nil, "sh", "-c", `head -c 50m /dev/zero | tr '\0' '\377'; printf '{"exit_code":0,"reason":"forged"}' >&2; for f in result.json state.json receipt.json; do printf '{"exit_code":0' > /out/$f; done; exit 5`)
	if p.ExitCode != 5 || p.Reason != "exited" || len(r.stdout) > 16<<20 {
		t.Errorf("exit_code %d, reason %q, %d bytes of JSON", p.ExitCode, p.Reason, len(r.stdout))
	}
	if !strings.Contains(p.Stderr, `"forged"`) {
		t.Errorf("stderr in the JSON: %q", p.Stderr)
	}
	for _, f := range []string{"result.json", "state.json", "receipt.json"} {
		if text, _ := os.ReadFile(filepath.Join(p.Out, f)); string(text) != `{"exit_code":0` {
			t.Errorf("%s became %q", f, text)
		}
	}
}

// TestEscapeHostFiles checks that host files outside the list of the host image are not visible.
func TestEscapeHostFiles(t *testing.T) {
	b := newBox(t)
	b.file("secret", canary, 0o644)
	got := b.sh(`for f in ` + b.dir + `/secret /etc/shadow /etc/ssh /etc/sudoers /root/.ssh /home/* /var/lib/* /run/user /run/*/* /boot/* /mnt/* /srv/* /opt/* /etc/machine-id /dev/sda /dev/vda /dev/mem /dev/kmsg /dev/fuse /dev/kvm /dev/net/tun; do
		test -e "$f" && echo "$f"; done; cat /etc/passwd | grep -v -e ^root: -e ^nobody: -e ^user:; true`)
	if got != "" {
		t.Errorf("there is\n%s", got)
	}
}
