package diagnose

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Facts are properties of a machine. With the zero Facts, nothing is known and diagnoses fall back on the bare
// errno.
type Facts struct {
	Runner string // path of demesne-runner, by which AppArmor identifies it
	User   string // the caller's name, else number; "$USER" if unknown

	Release    string // of the kernel
	Container  Container
	Unit       string // the systemd service that this process belongs to
	UserUnit   bool   // the user's own systemd manages it
	GVisor     bool   // the kernel is gVisor
	Seccomp    bool   // this process has a filter
	NoNewPrivs bool
	Privileged bool // CAP_SYS_ADMIN: rules for unprivileged users do not apply
	Unmapped   bool // the process's uid or gid is not mapped in its user namespace

	NoUserns    bool   // the kernel was built without user namespaces
	MaxUserns   string // user.max_user_namespaces, "" if unknown
	UsernsClone string // Debian's kernel.unprivileged_userns_clone: "0", "1", "" if it does not exist
	AppArmor    string // Ubuntu's kernel.apparmor_restrict_unprivileged_userns, with the same values
	Profile     string // the process's AppArmor profile, "unconfined", "" without AppArmor
	SELinux     string // the process's label, "" without SELinux
	LSM         string // active security modules, comma-separated

	Newuidmap bool   // newuidmap(1) and newgidmap(1) are in PATH
	SubIDs    bool   // /etc/subuid and /etc/subgid have a line for the caller
	FreeSubID uint64 // the first free subordinate id, from 100000
}

// Container is the detected kind of container.
type Container string

// Kinds of containers that can be detected.
const (
	NoContainer Container = ""
	Docker      Container = "docker"
	Podman      Container = "podman"
	Kubernetes  Container = "kubernetes"
)

// Read collects the facts about the calling process and its machine. A process in its own user namespace
// appears privileged and mapped.
func Read(runner string) Facts { return ReadAs(runner, os.Getuid()) }

// ReadAs is Read for the user id. The runner uses it for its caller, whose uid is in the runner's map.
func ReadAs(runner string, id int) Facts {
	f := read(os.DirFS("/"))
	f.Runner, f.Release = runner, release()
	uid := strconv.Itoa(id)
	f.User = "$USER"
	if u, err := user.LookupId(uid); err == nil {
		f.User = u.Username
	}
	readSubIDs(os.DirFS("/"), &f, uid)
	return f
}

// read collects all facts except the user's.
func read(root fs.FS) Facts {
	f := Facts{
		MaxUserns:   line(root, "proc/sys/user/max_user_namespaces"),
		Container:   container(root),
		NoUserns:    exists(root, "proc/self/status") && !exists(root, "proc/self/ns/user"),
		UsernsClone: line(root, "proc/sys/kernel/unprivileged_userns_clone"),
		AppArmor:    line(root, "proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
		Profile:     line(root, "proc/self/attr/apparmor/current"),
		SELinux:     selinux(root),
		LSM:         line(root, "sys/kernel/security/lsm"),
		GVisor:      gvisor(root),
		Newuidmap:   inPath(root, "newuidmap") && inPath(root, "newgidmap"),
	}
	f.Unit, f.UserUnit = unit(root)
	status, _ := fs.ReadFile(root, "proc/self/status")
	for l := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(strings.TrimSpace(l), ":")
		f.status(root, key, strings.TrimSpace(value))
	}
	return f
}

// status processes one line of /proc/self/status.
func (f *Facts) status(root fs.FS, key, value string) {
	const sysAdmin = 21
	switch key {
	case "Seccomp":
		f.Seccomp = value == "2"
	case "NoNewPrivs":
		f.NoNewPrivs = value == "1"
	case "CapEff":
		caps, _ := strconv.ParseUint(value, 16, 64)
		f.Privileged = caps>>sysAdmin&1 == 1
	case "Uid":
		f.Unmapped = f.Unmapped || !mapped(root, "proc/self/uid_map", value)
	case "Gid":
		f.Unmapped = f.Unmapped || !mapped(root, "proc/self/gid_map", value)
	}
}

// mapped reports whether the effective id of a Uid: or Gid: line is in the map. It returns true if the map
// cannot be read.
func mapped(root fs.FS, file, ids string) bool {
	b, err := fs.ReadFile(root, file)
	fields := strings.Fields(ids)
	if err != nil || len(fields) < 2 {
		return true
	}
	id, _ := strconv.ParseUint(fields[1], 10, 32)
	for l := range strings.Lines(string(b)) {
		r := strings.Fields(l)
		if len(r) != 3 {
			continue
		}
		first, _ := strconv.ParseUint(r[0], 10, 32)
		count, _ := strconv.ParseUint(r[2], 10, 32)
		if id >= first && id-first < count {
			return true
		}
	}
	return false
}

// rootMount returns the type of the file system at /, see proc_pid_mountinfo(5).
func rootMount(root fs.FS) (kind string) {
	mounts, _ := fs.ReadFile(root, "proc/self/mountinfo")
	for l := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(l, " - ")
		if f := strings.Fields(before); len(f) > 4 && f[4] == "/" {
			kind, _, _ = strings.Cut(after, " ")
		}
	}
	return kind
}

// readSubIDs looks for the caller in subuid(5) and subgid(5), and for a free range.
func readSubIDs(root fs.FS, f *Facts, uid string) {
	const first, size = 100000, 65536
	f.FreeSubID = first
	f.SubIDs = true
	for _, file := range []string{"etc/subuid", "etc/subgid"} {
		b, _ := fs.ReadFile(root, file)
		found := false
		for l := range strings.Lines(string(b)) {
			fields := strings.Split(strings.TrimSpace(l), ":")
			if len(fields) != 3 {
				continue
			}
			found = found || fields[0] == uid || fields[0] == f.User
			start, _ := strconv.ParseUint(fields[1], 10, 32)
			count, _ := strconv.ParseUint(fields[2], 10, 32)
			if end := start + count; end > f.FreeSubID {
				f.FreeSubID = first + (end-first+size-1)/size*size
			}
		}
		f.SubIDs = f.SubIDs && found
	}
}

func inPath(root fs.FS, name string) bool {
	for _, dir := range strings.Split(os.Getenv("PATH"), ":") {
		if dir = strings.Trim(dir, "/"); dir != "" && exists(root, dir+"/"+name) {
			return true
		}
	}
	return false
}

func exists(root fs.FS, name string) bool {
	_, err := fs.Stat(root, name)
	return err == nil
}

func line(root fs.FS, name string) string {
	b, _ := fs.ReadFile(root, name)
	return strings.Trim(string(b), " \n\x00")
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// The first release with everything that demesne needs: Landlock is the newest part.
const neededMajor, neededMinor = 5, 13

// TooOld returns the error for a kernel without a system call that demesne needs, or "" if the release should have it.
// Distributions also backport features: so callers ask only after such a call failed with ENOSYS.
func (f Facts) TooOld() string {
	var major, minor int
	if n, _ := fmt.Sscanf(f.Release, "%d.%d", &major, &minor); n < 2 || major > neededMajor || major == neededMajor && minor >= neededMinor {
		return ""
	}
	return fmt.Sprintf("Linux %d.%d or later is needed; this is %d.%d", neededMajor, neededMinor, major, minor)
}
