package sandbox

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"demesne/netns"
	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/ipc"
)

// hostsMost bounds the lines that one Spec adds to /etc/hosts.
const hostsMost = 256

// admitInterior rejects an invalid Interior. It is pure.
func admitInterior(spec *runner.Spec) error {
	if len(spec.Hosts) > hostsMost || len(spec.Tmpfs) > mountsMost {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: %d hosts and %d tmpfs; at most %d and %d are possible",
			len(spec.Hosts), len(spec.Tmpfs), hostsMost, mountsMost)
	}
	if err := rootfs.CheckHostname(spec.Hostname); err != nil && spec.Hostname != "" {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: %w", err)
	}
	for _, h := range spec.Hosts {
		if err := rootfs.CheckHostname(h.Name); err != nil || !h.Addr.IsValid() || h.Addr.Zone() != "" {
			return ipc.Errorf(ipc.CodeInvalid, "create sandbox: host %q: not a name with an address", h.Name)
		}
	}
	for i := range spec.Tmpfs {
		if err := admitTmpfs(spec, i); err != nil {
			return ipc.Errorf(ipc.CodeInvalid, "create sandbox: tmpfs %q: %w", spec.Tmpfs[i].Target, err)
		}
	}
	return nil
}

func admitTmpfs(spec *runner.Spec, i int) error {
	t := spec.Tmpfs[i]
	if !filepath.IsAbs(t.Target) || filepath.Clean(t.Target) != t.Target || strings.ContainsRune(t.Target, 0) {
		return errors.New("not an absolute path without . and ..")
	}
	for _, no := range noTargets {
		if t.Target == no.path || no.below && within(t.Target, no.path) || within(t.Target, inside.In) {
			return errors.New("this place belongs to demesne")
		}
	}
	if t.Target == inside.Workspace && spec.Workspace != "" {
		return errors.New("the workspace is there")
	}
	if t.Size < 0 || t.Size > 0 && t.Size < tmpfsLeast {
		return errors.New("its size is less than a page")
	}
	if slices.ContainsFunc(spec.Tmpfs[:i], func(o runner.Tmpfs) bool { return o.Target == t.Target }) ||
		slices.ContainsFunc(spec.Mounts, func(m runner.Mount) bool { return m.Target == t.Target }) {
		return errors.New("something else is mounted there")
	}
	return nil
}

// tmpfsLeast is the smallest size that means something: the kernel rounds up to pages.
const tmpfsLeast = 4096

// interior returns the parts of a tree's layout that come from the Interior.
func interior(spec *runner.Spec) (hosts []rootfs.HostLine, tmpfs []rootfs.Tmpfs) {
	for _, name := range spec.OwnNames() { // a server that binds to its own name can be reached by others
		for _, addr := range netns.SandboxAddrs() {
			hosts = append(hosts, rootfs.HostLine{Name: name, Addr: addr})
		}
	}
	for _, h := range spec.Hosts {
		hosts = append(hosts, rootfs.HostLine(h))
	}
	for _, t := range spec.Tmpfs {
		size := t.Size
		if size == 0 {
			size = spec.Limits.Disk
		}
		tmpfs = append(tmpfs, rootfs.Tmpfs{Target: t.Target, Size: size, Inodes: inodes(size)})
	}
	return hosts, tmpfs
}
