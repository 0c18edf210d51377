package diagnose

import (
	"fmt"
	"strings"
	"syscall"
)

// IDMaps explains why the sandbox has one id instead of a range. err is the error of newuidmap, if it ran.
func IDMaps(err error, f Facts) (why, fix string) { return judge(idMapRules(), err, f) }

func idMapRules() []rule {
	return []rule{
		{
			func(_ syscall.Errno, f Facts) bool { return f.NoNewPrivs },
			text("no_new_privs is set, so newuidmap cannot gain the right to write a map"), func(f Facts) string { return f.lift(gainRights) },
		}, {
			func(_ syscall.Errno, f Facts) bool { return !f.Newuidmap },
			text("newuidmap is not installed"), text("sudo apt install uidmap"),
		}, {
			func(_ syscall.Errno, f Facts) bool { return !f.SubIDs },
			text("the user has no subordinate ids in /etc/subuid and /etc/subgid"), Facts.subIDFix,
		}, {
			func(_ syscall.Errno, f Facts) bool { return f.User == "$USER" },
			text("the user has no line in /etc/passwd"),
			text(`echo "user$(id -u):x:$(id -u):$(id -g)::/:/bin/sh" | sudo tee -a /etc/passwd`),
		}, {
			func(_ syscall.Errno, f Facts) bool { return true },
			text("newuidmap failed"), text("sudo chmod u+s $(command -v newuidmap newgidmap)"),
		},
	}
}

func (f Facts) subIDFix() string {
	first := max(f.FreeSubID, 100000)
	r := fmt.Sprintf("%d-%d", first, first+65535)
	user := f.User
	if user == "" {
		user = "$USER"
	}
	return "sudo usermod --add-subuids " + r + " --add-subgids " + r + " " + user
}

// Netns explains why a network namespace was refused.
func Netns(err error, f Facts) (why, fix string) {
	return judge(append(netnsRules(), usernsRules()...), err, f)
}

func netnsRules() []rule {
	return []rule{
		{on(syscall.ENOSPC, syscall.EUSERS), text("user.max_net_namespaces is used up"), text("sudo sysctl -w user.max_net_namespaces=15000")},
		{on(syscall.EINVAL), text("the kernel was built without network namespaces (CONFIG_NET_NS)"), text("")},
	}
}

// Proc explains why a fresh /proc or /sys could not be mounted.
func Proc(err error, f Facts) (why, fix string) { return judge(procRules(), err, f) }

func procRules() []rule {
	return []rule{{
		on(syscall.EPERM, syscall.EACCES),
		func(f Facts) string {
			return "the kernel allows no fresh /proc while parts of the old /proc are masked" + f.in()
		},
		func(f Facts) string { return f.lift(procWhole) },
	}}
}

// Hostname explains why a sandbox cannot have its own hostname.
func Hostname(err error, f Facts) (why, fix string) { return judge(hostnameRules(), err, f) }

func hostnameRules() []rule {
	return []rule{{
		func(e syscall.Errno, f Facts) bool { return f.Seccomp && forbidden(e) },
		func(f Facts) string { return "a seccomp filter forbids sethostname" + f.in() }, Facts.filterFix,
	}}
}

// Overlay explains why overlayfs does not work.
func Overlay(err error, f Facts) (why, fix string) { return judge(overlayRules(), err, f) }

func overlayRules() []rule {
	return []rule{
		{on(syscall.ENODEV), text("the kernel has no overlayfs"), text("sudo modprobe overlay")},
		{
			on(syscall.EIO, syscall.EOPNOTSUPP),
			text("the file system keeps no user.* attributes (tmpfs: Linux 6.6)"),
			text("XDG_RUNTIME_DIR= demesne …   # with ~/.demesne on ext4, xfs or btrfs"),
		},
		{on(syscall.EINVAL), text("overlayfs cannot use the file system as its upper"), text("HOME=DIR XDG_RUNTIME_DIR= demesne …   # a directory on ext4, xfs or btrfs")},
		{
			on(syscall.EPERM, syscall.EACCES),
			text("the kernel does not let user namespaces mount overlayfs (before Linux 5.11)"), text(""),
		},
	}
}

// Egress explains why filtered egress does not work. step is the step that failed.
func Egress(step string, err error, f Facts) (why, fix string) {
	return judge(egressRules(), fmt.Errorf("%s: %w", step, err), f)
}

func egressRules() []rule {
	return []rule{{
		func(e syscall.Errno, f Facts) bool { return f.Seccomp && (e == syscall.EAFNOSUPPORT || forbidden(e)) },
		func(f Facts) string { return "a seccomp filter refuses AF_NETLINK sockets" + f.in() },
		func(f Facts) string { return f.lift(netlinkOn) },
	}, {
		on(syscall.ENOENT, syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT, syscall.EAFNOSUPPORT, syscall.ENOPROTOOPT, syscall.ENODEV),
		text("a kernel module is missing or not loaded"), text("sudo modprobe -a veth nf_tables nft_tproxy"),
	}}
}

// Landlock explains why the kernel does not offer Landlock.
func Landlock(err error, f Facts) (why, fix string) { return judge(landlockRules(), err, f) }

func landlockRules() []rule {
	return []rule{
		{on(syscall.EOPNOTSUPP), text("Landlock is not among the security modules enabled at boot"), Facts.landlockFix},
		{
			func(e syscall.Errno, f Facts) bool { return f.Seccomp && (e == syscall.ENOSYS || forbidden(e)) },
			func(f Facts) string { return "a seccomp filter forbids Landlock" + f.in() }, Facts.filterFix,
		},
		{func(e syscall.Errno, f Facts) bool { return e == syscall.ENOSYS && f.TooOld() != "" }, Facts.TooOld, text("")},
		{on(syscall.ENOSYS), text("the kernel has no Landlock (CONFIG_SECURITY_LANDLOCK, Linux 5.13)"), text("")},
	}
}

func (f Facts) landlockFix() string {
	lsm := strings.TrimSuffix("landlock,"+f.LSM, ",")
	return `echo 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX lsm=` + lsm + `"' | sudo tee /etc/default/grub.d/landlock.cfg && sudo update-grub && sudo reboot`
}

// Seccomp explains why no filter can be loaded.
func Seccomp(err error, f Facts) (why, fix string) { return judge(seccompRules(), err, f) }

func seccompRules() []rule {
	return []rule{
		{on(syscall.EINVAL, syscall.ENOSYS), text("the kernel has no seccomp filters (CONFIG_SECCOMP_FILTER)"), text("")},
		{
			func(e syscall.Errno, f Facts) bool { return f.Seccomp && forbidden(e) },
			func(f Facts) string { return "another filter forbids loading one" + f.in() }, Facts.filterFix,
		},
	}
}

// Sockets explains why callers have no AF_UNIX sockets.
func Sockets(err error, f Facts) (why, fix string) { return judge(socketRules(), err, f) }

func socketRules() []rule {
	return []rule{{
		func(syscall.Errno, Facts) bool { return true },
		func(f Facts) string { return "a seccomp filter refuses AF_UNIX sockets" + f.in() },
		func(f Facts) string {
			if f.Container == NoContainer && f.Unit == "" {
				return "demesne …   # outside of the sandbox that refuses them; in a systemd unit: RestrictAddressFamilies=AF_UNIX"
			}
			return f.lift(unixOn)
		},
	}}
}
