package container

import (
	"strings"

	"golang.org/x/sys/unix"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/doctor/diagnose"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
	"demesne/runner/userns"
)

// capSetfcap lets uid 0 of a sandbox map itself into a user namespace of its own (user_namespaces(7), since Linux
// 5.12). Nesting needs it.
const capSetfcap = 31

// rootCaps are the capabilities of uid 0 of an image, and of no other user. Package managers need them for files
// and processes. They apply only to the sandbox's own ids (capable_wrt_inode_uidgid in the kernel), not to the
// network or mounts. CAP_SETFCAP is left out: a file capability in /out would outlive the sandbox.
var rootCaps = []uint{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID}

// rootCapNames are the names of rootCaps, for receipts and for libcontainer.
var rootCapNames = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"}

// PrivilegesOf returns the capabilities of a sandbox's commands, for its receipt. It is pure.
func PrivilegesOf(spec runner.Spec, b api.Boot) (p Privileges) {
	if spec.Nesting {
		p.Set |= 1 << capSetfcap
		p.Words = append(p.Words, "CAP_SETFCAP (--nesting)")
	}
	if spec.Rootfs != nil && !b.Minimal() {
		for _, c := range rootCaps {
			p.Set |= 1 << c
		}
		p.Words = append(p.Words, "uid 0 over the image's ids: "+strings.Join(rootCapNames, " "))
	}
	return p
}

// Setup returns the restrictions that PID 1 applies to itself. It is pure.
func Setup(spec runner.Spec, b api.Boot) pid1api.Setup {
	setup := plainSetup()
	if spec.Nesting {
		// With any Landlock filesystem rule mounts are denied for good (landlock(7)). Nested sandbox tools need
		// openat2(2), whose mode a seccomp filter cannot read.
		setup = pid1api.Setup{Scoped: true, Seccomp: pid1api.SeccompOptions{Nesting: true}, KeepCaps: []uint{capSetfcap}}
	}
	if spec.Rootfs != nil {
		setup.RootCaps = rootCaps
		setup.Seccomp.FakeRoot = b.OneID()
		// Packages contain set-user-ID files. They have no effect on a nosuid mount. The end of the sandbox finds
		// those in /out and /workspace.
		setup.Seccomp.NoSUID = setup.Seccomp.NoSUID && spec.Exposed
	}
	return setup
}

func plainSetup() pid1api.Setup {
	return pid1api.Setup{
		Landlock: []pid1api.PathRule{
			{Path: ipc.Bytes("/"), Access: pid1api.AccessReadWrite},
			{Path: ipc.Bytes("/dev/pts"), Access: pid1api.AccessDevice},
			{Path: ipc.Bytes("/dev/tty"), Access: pid1api.AccessDevice},
		},
		Scoped:  true,
		Seccomp: pid1api.SeccompOptions{NoSUID: true},
	}
}

// Dirs are the directories that a command sees. Without a mount namespace they are paths of the host.
type Dirs struct {
	In, Out, Workspace, Home, Tmp string
	Certs                         string // a file with certificates, only without a mount namespace; may be empty
}

// hostReadable lists the paths of the host that a sandbox without namespaces may read and execute, in addition to
// [rootfs.HostEtc].
var hostReadable = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/ca-certificates", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group",
	"/proc", "/sys/devices/system/cpu",
}

var hostWritable = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// AdmitChroot rejects images on a machine without namespaces where the runner may not make a copy the root of a sandbox.
func AdmitChroot(b api.Boot) error {
	lacks := userns.ChrootLacks()
	if b.NoMounts {
		lacks = append(lacks, "a filter that allows chroot(2)")
	}
	if len(lacks) == 0 {
		return nil
	}
	text, hint := diagnose.Chroot(lacks, b.ModeWhy, b.ModeFix, diagnose.Read("/proc/self/exe"))
	return &ipc.Error{Code: ipc.CodeRequirement, Text: text, Hint: hint}
}

// ChrootSetup returns the restrictions of a sandbox without namespaces whose root becomes the copy of an image. It is
// pure. The sandbox's uid 0 is the caller's: it has no capability, and calls that change ids do nothing.
func ChrootSetup(spec runner.Spec, root string) pid1api.Setup {
	g := plainSetup()
	g.Root, g.NoTCP, g.Subreaper = ipc.Bytes(root), true, true
	g.Seccomp = pid1api.SeccompOptions{NoSocket: true, Supervised: spec.Egress != nil, FakeRoot: true}
	return g
}

// MinimalSetup returns the restrictions of a sandbox without namespaces. It is pure.
func MinimalSetup(spec runner.Spec, d Dirs) pid1api.Setup {
	g := pid1api.Setup{
		Scoped: true, NoTCP: true, Subreaper: true,
		Seccomp: pid1api.SeccompOptions{NoSUID: true, NoSocket: true},
	}
	grant := func(a pid1api.Access, paths ...string) {
		for _, p := range paths {
			g.Landlock = append(g.Landlock, pid1api.PathRule{Path: ipc.Bytes(p), Access: a})
		}
	}
	grant(pid1api.AccessReadExec, hostReadable...)
	grant(pid1api.AccessReadExec, rootfs.HostEtc()...)
	if spec.Egress == nil {
		grant(pid1api.AccessReadExec, "/etc/hosts")
	} else {
		// Programs ask the name server on the loopback, which is the proxy, about all names.
		g.Seccomp.Supervised = true
	}
	for _, in := range spec.Inputs {
		grant(pid1api.AccessReadExec, in.Path)
	}
	for _, m := range spec.Mounts {
		if m.ReadOnly {
			grant(pid1api.AccessReadExec, m.Source)
		} else {
			grant(pid1api.AccessReadWrite, m.Source)
		}
	}
	grant(pid1api.AccessReadWrite, hostWritable...)
	grant(pid1api.AccessReadExec, d.In)
	if d.Certs != "" {
		grant(pid1api.AccessReadExec, d.Certs)
	}
	grant(pid1api.AccessReadWrite, d.Out, d.Workspace, d.Home, d.Tmp)
	return g
}
