package sandbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"demesne/runner"
	"demesne/runner/ipc"
)

// mountsMost bounds the mounts of one Spec. Each takes up to three descriptors, and time in every later clone.
const mountsMost = 64

// admitMounts rejects invalid mounts. It is pure.
func admitMounts(spec *runner.Spec) error {
	if n := len(spec.Mounts); n > mountsMost {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: %d mounts; at most %d are possible", n, mountsMost)
	}
	for i, m := range spec.Mounts {
		err := admitMount(spec, i)
		if err != nil {
			return ipc.Errorf(ipc.CodeInvalid, "create sandbox: mount %q: %w", m, err)
		}
	}
	return nil
}

// noTargets cannot be mount points themselves; with below set, nor can what is below them.
var noTargets = []struct {
	path  string
	below bool
}{{"/", false}, {"/in", false}, {"/out", false}, {"/proc", true}, {"/sys", true}, {"/dev", true}}

func admitMount(spec *runner.Spec, i int) error {
	m := spec.Mounts[i]
	if !filepath.IsAbs(m.Source) || strings.ContainsRune(m.Source, 0) {
		return errors.New("its source is not an absolute path")
	}
	if !filepath.IsAbs(m.Target) || filepath.Clean(m.Target) != m.Target || strings.ContainsRune(m.Target, 0) {
		return errors.New("its target is not an absolute path without . and ..")
	}
	if m.Upper != "" && (m.ReadOnly || !filepath.IsAbs(m.Upper)) {
		return errors.New("its changes need an absolute path, and it cannot be read-only")
	}
	for _, no := range noTargets {
		if m.Target == no.path || no.below && within(m.Target, no.path) {
			return fmt.Errorf("in a sandbox, %s belongs to demesne", no.path)
		}
	}
	if m.Target == inside.Workspace && spec.Workspace != "" {
		return errors.New("the workspace is there")
	}
	if slices.ContainsFunc(spec.Mounts[:i], func(o runner.Mount) bool { return o.Target == m.Target }) {
		return errors.New("two mounts have this target")
	}
	if spec.Nesting && m.ReadOnly && slices.ContainsFunc(writtenInside(spec), func(dir string) bool { return within(m.Target, dir) }) {
		// uid 0 of a nested user namespace can leave all mounts behind (pivot_root(2)). Their mount points can then be
		// renamed.
		return errors.New("with nesting, a read-only mount does not hold inside a writable one")
	}
	return nil
}

// writtenInside returns where the sandbox sees writable directories of the host.
func writtenInside(spec *runner.Spec) []string {
	dirs := []string{inside.Out}
	if spec.Workspace != "" {
		dirs = append(dirs, inside.Workspace)
	}
	for _, m := range spec.Mounts {
		if !m.ReadOnly && m.Upper == "" {
			dirs = append(dirs, m.Target)
		}
	}
	return dirs
}

// admitMinimalMounts rejects mounts that a machine without namespaces cannot provide. Landlock grants rights to paths of
// the host, and cannot take away what a rule for a directory above grants. It is pure.
func admitMinimalMounts(spec *runner.Spec) error {
	written := []string{spec.Out, spec.Workspace}
	for _, m := range spec.Mounts {
		if !m.ReadOnly {
			written = append(written, m.Source)
		}
	}
	for _, m := range spec.Mounts {
		why := ""
		switch {
		case m.Upper != "":
			why = "its changes cannot be kept apart"
		case m.Source != m.Target:
			why = "its target differs from its source"
		case m.ReadOnly && slices.ContainsFunc(written, func(dir string) bool { return dir != "" && within(m.Source, dir) }):
			why = "it is read-only inside a writable directory"
		default:
			continue
		}
		return ipc.Errorf(ipc.CodeRequirement, "mount %q: this machine forbids namespaces, and %s", m, why)
	}
	return nil
}

// within reports whether path is dir or below it. Both must be clean.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
