package diagnose

import (
	"errors"
	"fmt"
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
func Userns(err error, f Facts) (why, fix string) { return judge(usernsRules, err, f) }

var usernsRules = []rule{
	{
		func(e syscall.Errno, f Facts) bool { return f.NoUserns || e == syscall.EINVAL },
		text("the kernel was built without user namespaces (CONFIG_USER_NS)"), text(""),
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
		appArmor, text("AppArmor removes the capabilities of unprivileged user namespaces"), appArmorFix,
	}, {
		func(e syscall.Errno, f Facts) bool { return f.Seccomp && forbidden(e) },
		func(f Facts) string { return "a seccomp filter forbids user namespaces" + in(f) }, seccompFix,
	},
}

// appArmor reports whether Ubuntu's restriction is on and applies to this process. It applies to processes
// without a profile; a container has its own profile.
func appArmor(e syscall.Errno, f Facts) bool {
	free := f.Profile == "" || strings.HasPrefix(f.Profile, "unconfined") || strings.HasPrefix(f.Profile, "unprivileged_userns")
	return f.AppArmor == "1" && free && !f.Privileged && f.Container == NoContainer && forbidden(e)
}

// appArmorFix writes a profile that allows user namespaces only to demesne-runner. The fix also shows how to
// lift the restriction for every program.
func appArmorFix(f Facts) string {
	path := f.Runner
	if path == "" {
		path = "/usr/local/libexec/demesne/demesne-runner"
	}
	const profile = `printf 'abi <abi/4.0>,\nprofile demesne "%%s" flags=(unconfined) {\n  userns,\n}\n' %s`
	return fmt.Sprintf(profile, quote(path)) +
		" | sudo tee /etc/apparmor.d/demesne && sudo apparmor_parser -r /etc/apparmor.d/demesne" +
		"   # or, for every program: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
}

// seccompFix returns the way to start the container without its seccomp filter.
func seccompFix(f Facts) string {
	switch f.Container {
	case Docker:
		return "docker run --security-opt seccomp=unconfined …"
	case Podman:
		return "podman run --security-opt seccomp=unconfined …"
	case Kubernetes:
		return "securityContext: {seccompProfile: {type: Unconfined}}   # in the pod's spec"
	}
	return "docker run --security-opt seccomp=unconfined …   # in a container; in a systemd unit: RestrictNamespaces=no, SystemCallFilter="
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
		for _, want := range errnos {
			if e == want {
				return true
			}
		}
		return false
	}
}

func forbidden(e syscall.Errno) bool { return e == syscall.EPERM || e == syscall.EACCES }

// in names the container, as the end of a sentence.
func in(f Facts) string {
	if f.Container == NoContainer {
		return ""
	}
	return " in this " + string(f.Container) + " container"
}

// quote makes s one word of a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
