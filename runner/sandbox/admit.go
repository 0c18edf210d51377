package sandbox

import (
	"fmt"
	"path/filepath"

	"demesne/rootfs/layers"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/limits"
)

// Admit rejects an invalid Spec and fills in defaults.
func Admit(spec *runner.Spec) error {
	if err := ValidName(spec.Name); err != nil {
		return err
	}
	if spec.Image == "" {
		spec.Image = "host"
	}
	if err := admitRootfs(spec); err != nil {
		return err
	}
	if spec.Hostname == "" {
		spec.Hostname = "demesne"
	}
	if err := AdmitKey(*spec); err != nil {
		return err
	}
	if spec.Share != "" && (!spec.Share.Known() || spec.Door != runner.DoorCLI || spec.Lifetime != runner.Persistent) {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: share %.64q: not a door, or not a persistent sandbox of the command line", string(spec.Share))
	}
	if !filepath.IsAbs(spec.Out) {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: output directory %q: not absolute", spec.Out)
	}
	switch spec.Require {
	case "", runner.LevelFull, runner.LevelDegraded, runner.LevelMinimal:
	default:
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: require %q: not a level (full, degraded, minimal)", spec.Require)
	}
	spec.Limits = limits.Resolve(spec.Limits)
	return nil
}

const keyMax = 256

// AdmitKey rejects an invalid key.
func AdmitKey(spec runner.Spec) error {
	if spec.Key != "" && spec.Lifetime != runner.Persistent || len(spec.Key) > keyMax {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: key %.64q: of more than %d bytes, or of a sandbox that is not persistent", spec.Key, keyMax)
	}
	if spec.Replace && spec.Key == "" {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: replace is for a sandbox with a key")
	}
	return nil
}

// layersMax is overlayfs's limit on lower layers.
const layersMax = 500

// admitRootfs rejects an invalid image. Only "host" has no Rootfs.
func admitRootfs(spec *runner.Spec) error {
	r := spec.Rootfs
	invalid := func(format string, a ...any) error {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: image %q: %w", spec.Image, fmt.Errorf(format, a...))
	}
	switch {
	case r == nil && spec.Image == "host":
		return nil
	case r == nil:
		return invalid("not known")
	case r.Dir != "" && len(r.Layers) > 0:
		return invalid("layers and a directory")
	case r.Dir != "" && !filepath.IsAbs(r.Dir), r.Dir == "" && !filepath.IsAbs(r.Store), r.Store != "" && !filepath.IsAbs(r.Store):
		return invalid("a path is not absolute")
	case len(r.Layers) > layersMax:
		return invalid("%d layers; overlayfs takes %d", len(r.Layers), layersMax)
	case r.WorkingDir != "" && !filepath.IsAbs(r.WorkingDir):
		return invalid("working directory %q: not absolute", r.WorkingDir)
	}
	for _, id := range r.Layers {
		if err := layers.DiffID(id).Validate(); err != nil {
			return invalid("layer %q: %w", id, err)
		}
	}
	return nil
}

// userFits rejects a user outside the id map.
func (i *identity) userFits() error {
	u := i.spec.User
	if u == nil {
		return nil
	}
	if u.UID >= i.on.Boot.UIDs() || u.GID >= i.on.Boot.GIDs() {
		return &ipc.Error{
			Code: ipc.CodeInvalid,
			Text: fmt.Sprintf("set user %d:%d: not in the id map, which has %d ids", u.UID, u.GID, i.on.Boot.UIDs()),
			Hint: i.on.Boot.MapFix,
		}
	}
	return nil
}
