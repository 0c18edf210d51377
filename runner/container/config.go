package container

import (
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
)

// fallback is the steps of a start that the machine refuses, and that are left out.
type fallback struct {
	procBound  bool // /proc is the outer one, bound, because mounting a new one was refused
	noHostname bool // sethostname was refused (rootless podman's default profile)
}

// after returns the next level to try after a start on level f failed. ok is false if err is not a refusal of a step
// that another level leaves out: a machine short of a resource must not weaken later sandboxes. The steps run in
// another process, so err has only the text of the errors there.
func (f fallback) after(err error) (next fallback, ok bool) {
	text, next := err.Error(), f
	next.procBound = f.procBound || strings.Contains(text, `mounting "proc" to rootfs`)
	next.noHostname = f.noHostname || strings.Contains(text, "sethostname")
	refused := func(e unix.Errno) bool { return strings.HasSuffix(text, e.Error()) }
	return next, next != f && slices.ContainsFunc([]unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EINVAL, unix.EBUSY, unix.ENODEV}, refused)
}

// initPath is where demesne-init is bound: in the /dev that the runner makes for every sandbox, independent of the
// image.
const initPath = "/dev/.demesne-init"

// initCaps are the capabilities that PID 1 keeps to start commands as other users and to signal them. Commands get
// none of them: PID 1 empties its bounding set.
var initCaps = []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP"}

// config translates a Spec into libcontainer's configuration. It is pure.
func config(id, root, dev, netns string, ids api.Boot, spec runner.Spec, r fallback) *configs.Config {
	const procFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	proc := &configs.Mount{Source: "proc", Device: "proc", Destination: "/proc", Flags: procFlags}
	if r.procBound {
		proc = &configs.Mount{Source: "/proc", Device: "bind", Destination: "/proc", Flags: unix.MS_BIND | unix.MS_REC | procFlags}
	}
	caps := append([]string{}, initCaps...)
	if spec.Nesting {
		caps = append(caps, "CAP_SETFCAP")
	}
	if spec.Rootfs != nil {
		caps = append(caps, rootCapNames...)
	}
	c := &configs.Config{
		Version:         "1.2.0",
		Rootfs:          root,
		RootPropagation: unix.MS_SLAVE | unix.MS_REC, // a prepared sandbox gets its caller's directories later
		Mounts: []*configs.Mount{
			proc,
			{Source: dev, Device: "bind", Destination: "/dev", Flags: unix.MS_BIND | unix.MS_REC},
		},
		Namespaces: configs.Namespaces{
			{Type: configs.NEWUSER}, {Type: configs.NEWNS}, {Type: configs.NEWPID},
			{Type: configs.NEWIPC}, {Type: configs.NEWUTS}, {Type: configs.NEWCGROUP},
			{Type: configs.NEWNET, Path: netns},
		},
		UIDMappings:     identity(ids.UIDMap),
		GIDMappings:     identity(ids.GIDMap),
		Capabilities:    &configs.Capabilities{Bounding: caps, Effective: caps, Permitted: caps},
		NoNewPrivileges: true,
		NoNewKeyring:    true, // the runner's session keyring is private; see runner/userns
		Hostname:        spec.Hostname,
		Cgroups:         noCgroup(id),
		RootlessCgroups: true,
		// Nothing is mounted from outside for the sandbox. This saves a thread that joins its mount namespace.
		RootlessEUID: true,
	}
	if r.noHostname {
		c.Hostname = ""
	}
	return c
}

// identity maps every id of the outer user namespace to itself. The first id is an extent of its own: libcontainer
// takes a single extent from 0 for a map that needs newuidmap.
func identity(outer []runner.IDRange) []configs.IDMap {
	var size int64
	for _, r := range outer {
		size += int64(r.Size)
	}
	m := []configs.IDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	if size > 1 {
		m = append(m, configs.IDMap{ContainerID: 1, HostID: 1, Size: size - 1})
	}
	return m
}

// noCgroup keeps libcontainer away from control groups. It may do without the one it would make below a read-only
// cgroup2. Package limits makes the sandbox's control group, called id. The name here must differ: libcontainer fails if
// the group exists and it cannot write there.
func noCgroup(id string) *cgroups.Cgroup {
	return &cgroups.Cgroup{Name: id + ".none", Rootless: true, Resources: &cgroups.Resources{}}
}
