package diagnose

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// rule is one known reason. The first applicable rule of a table is the diagnosis.
type rule struct {
	applies func(syscall.Errno, Facts) bool
	why     func(Facts) string
	fix     func(Facts) string
}

// Userns explains why a user namespace was refused, or why a new one has no rights.
func Userns(err error, f Facts) (why, fix string) { return judge(usernsRules(), err, f) }

func usernsRules() []rule {
	return []rule{
		{
			func(_ syscall.Errno, f Facts) bool { return f.GVisor }, text(gvisorWhy), Facts.gvisorFix,
		}, {
			func(e syscall.Errno, f Facts) bool { return f.NoUserns || e == syscall.EINVAL },
			text("the kernel was built without user namespaces (CONFIG_USER_NS)"), text(""),
		}, {
			on(syscall.EROFS), func(f Facts) string { return "/proc is mounted read-only" + f.in() }, Facts.procFix,
		}, {
			func(_ syscall.Errno, f Facts) bool { return f.MaxUserns == "0" },
			text("user.max_user_namespaces is 0"), text("sudo sysctl -w user.max_user_namespaces=15000"),
		}, {
			func(e syscall.Errno, f Facts) bool { return e == syscall.ENOSPC || e == syscall.EUSERS },
			func(f Facts) string {
				return "user namespaces are 32 deep, or user.max_user_namespaces (" + f.MaxUserns + ") is used up"
			},
			func(f Facts) string {
				n, _ := strconv.Atoi(f.MaxUserns)
				return fmt.Sprintf("sudo sysctl -w user.max_user_namespaces=%d", max(15000, 2*n))
			},
		}, {
			func(_ syscall.Errno, f Facts) bool { return f.UsernsClone == "0" && !f.Privileged },
			text("kernel.unprivileged_userns_clone is 0"), text("sudo sysctl -w kernel.unprivileged_userns_clone=1"),
		}, {
			func(e syscall.Errno, f Facts) bool { return e == syscall.EPERM && f.Unmapped },
			text("the user or group of this process is not mapped in its user namespace"),
			text("sudo -u USER demesne …   # a user that /proc/self/uid_map lists"),
		}, {
			appArmor, text("AppArmor removes the capabilities of unprivileged user namespaces"), Facts.appArmorFix,
		}, {
			// Debian 13's kernel and later ones restrict confined programs, without a sysctl.
			func(e syscall.Errno, f Facts) bool { return e == syscall.EACCES && f.confined() },
			func(f Facts) string {
				return "the AppArmor profile " + f.profile() + " does not allow user namespaces" + f.in()
			},
			Facts.moduleFix,
		}, {
			func(e syscall.Errno, f Facts) bool {
				return e == syscall.EACCES && f.Container == NoContainer && strings.Contains(f.LSM, "apparmor")
			},
			text("AppArmor does not allow user namespaces"), Facts.appArmorFix,
		}, {
			func(e syscall.Errno, f Facts) bool { return e == syscall.EACCES && f.SELinux != "" },
			func(f Facts) string { return "SELinux forbids user namespaces to " + f.SELinux + f.in() },
			func(f Facts) string { return f.lift(selinuxOff) },
		}, {
			func(e syscall.Errno, f Facts) bool { return f.Seccomp && forbidden(e) },
			func(f Facts) string { return "a seccomp filter forbids user namespaces" + f.in() }, Facts.filterFix,
		},
	}
}

// Mounts explains why the runner could make namespaces, but no mount.
func Mounts(err error, f Facts) (why, fix string) { return judge(mountRules(), err, f) }

func mountRules() []rule {
	return []rule{
		{
			func(_ syscall.Errno, f Facts) bool { return f.GVisor }, text(gvisorWhy), Facts.gvisorFix,
		}, {
			func(e syscall.Errno, f Facts) bool { return e == syscall.EACCES && f.confined() },
			func(f Facts) string { return "the AppArmor profile " + f.profile() + " forbids mounts" + f.in() }, Facts.moduleFix,
		}, {
			func(e syscall.Errno, f Facts) bool { return e == syscall.EACCES && f.SELinux != "" },
			func(f Facts) string { return "SELinux forbids mounts to " + f.SELinux + f.in() },
			func(f Facts) string { return f.lift(selinuxOff) },
		}, {
			func(_ syscall.Errno, f Facts) bool { return f.Seccomp },
			func(f Facts) string { return "a seccomp filter forbids mounts" + f.in() }, Facts.filterFix,
		}, {
			on(syscall.EACCES), text("a security module forbids mounts"), func(f Facts) string { return f.lift(seccompOff, apparmorOff) },
		},
	}
}

const gvisorWhy = "gVisor is the kernel, and lacks features that sandboxes need"

func (f Facts) gvisorFix() string {
	if f.Container == Kubernetes {
		return "runtimeClassName: runc   # in the pod's spec; gVisor is a sandbox itself"
	}
	return "docker run --runtime=runc …   # gVisor is a sandbox itself"
}

func (f Facts) procFix() string {
	if f.Container == NoContainer {
		return "sudo mount -o remount,rw /proc   # outside of a container"
	}
	return f.lift(procWhole)
}

// profile returns the name of the AppArmor profile without its mode.
func (f Facts) profile() string {
	name, _, _ := strings.Cut(f.Profile, " (")
	return name
}

// moduleFix lifts the AppArmor profile. A container's seccomp filter would refuse the same next. A pod's spec names both, and
// one without a filter lacks only a line.
func (f Facts) moduleFix() string {
	switch {
	case f.Container == Kubernetes && !f.Seccomp, f.Container == NoContainer && f.Unit != "":
		return f.lift(apparmorOff)
	case f.Container != NoContainer:
		return f.lift(seccompOff, apparmorOff)
	}
	return "sudo sed -i '/^profile .*{/a userns, mount, umount, pivot_root,' $(grep -rlF " + quote(f.profile()) +
		" /etc/apparmor.d) && sudo systemctl reload apparmor   # adds these rules to the profile"
}

// appArmor reports whether Ubuntu's restriction is on and applies to this process. It applies to processes
// without a profile; a container has its own profile.
func appArmor(e syscall.Errno, f Facts) bool {
	free := f.Profile == "" || strings.HasPrefix(f.Profile, "unconfined") || strings.HasPrefix(f.Profile, "unprivileged_userns")
	return f.AppArmor == "1" && free && !f.Privileged && f.Container == NoContainer && forbidden(e)
}

// appArmorFix writes a profile that allows user namespaces only to demesne-runner. The fix also shows how to
// lift the restriction for every program.
func (f Facts) appArmorFix() string {
	path := f.Runner
	if path == "" {
		path = "/usr/local/libexec/demesne/demesne-runner"
	}
	const profile = `printf 'abi <abi/4.0>,\nprofile demesne "%%s" flags=(unconfined) {\n  userns,\n}\n' %s`
	return fmt.Sprintf(profile, quote(path)) +
		" | sudo tee /etc/apparmor.d/demesne && sudo apparmor_parser -r /etc/apparmor.d/demesne" +
		"   # or, for every program: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
}

// judge applies the first matching rule; without one it returns the bare error.
func judge(rules []rule, err error, f Facts) (why, fix string) {
	if err == nil {
		return "", ""
	}
	var errno syscall.Errno
	errors.As(err, &errno)
	for _, r := range rules {
		if r.applies(errno, f) {
			return r.why(f) + ": " + err.Error(), r.fix(f)
		}
	}
	return err.Error(), ""
}

func text(s string) func(Facts) string { return func(Facts) string { return s } }

func on(errnos ...syscall.Errno) func(syscall.Errno, Facts) bool {
	return func(e syscall.Errno, _ Facts) bool {
		return slices.ContainsFunc(errnos, func(want syscall.Errno) bool { return e == want })
	}
}

func forbidden(e syscall.Errno) bool { return e == syscall.EPERM || e == syscall.EACCES }

// in names the environment, as the end of a sentence.
func (f Facts) in() string {
	switch {
	case f.Container == Kubernetes:
		return " in this Kubernetes pod"
	case f.Container != NoContainer:
		return " in this " + string(f.Container) + " container"
	case f.Unit != "":
		return " in the unit " + f.Unit
	}
	return ""
}

// quote makes s one word of a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
