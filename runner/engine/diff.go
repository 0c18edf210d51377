package engine

import (
	"os"
	"slices"
	"strings"

	"demesne/rootfs"
	"demesne/rootfs/layers"
	"demesne/rootfs/upper"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/store"
	"demesne/runner/userns"
)

// diff lists the changes of a sandbox, live or not, against its image.
func (e *Engine) diff(idOrName string) (*runner.Diff, error) {
	s, rec, err := e.locate(idOrName)
	if err != nil {
		return nil, err
	}
	box, spec, base := (*store.Dir)(nil), rec.Info.Spec, []string(nil)
	if s != nil {
		<-s.built
		box, spec, base = s.kept.box, s.info().Spec, s.kept.base
	} else {
		d, err := e.keeper()
		if err != nil {
			return nil, err
		}
		if box, rec, err = take(d, rec.Info.ID); err != nil {
			return nil, err
		}
		defer box.Close()
		base = rec.Base
	}
	if box == nil || s != nil && !s.kept.onDisk || e.boot.Mode == userns.ModeMinimal {
		return nil, ipc.Errorf(ipc.CodeInvalid, "compare files of sandbox %q: this sandbox has no writable layer of its own", idOrName)
	}
	return e.compare(box, spec, base)
}

func (e *Engine) compare(box *store.Dir, spec runner.Spec, base []string) (*runner.Diff, error) {
	uppers, letGo, err := uppersOf(box, base)
	if err != nil {
		return nil, err
	}
	defer letGo()
	image, release, err := e.imageFiles(spec)
	if err != nil {
		return nil, err
	}
	defer release()
	changes, all, err := upper.Diff(image, uppers)
	if err != nil {
		return nil, err
	}
	return told(changes, all, spec.Rootfs != nil), nil
}

// uppersOf opens the layers that a sandbox wrote, the earliest first, and locks them until release is called.
func uppersOf(box *store.Dir, base []string) (uppers []*os.File, release func(), err error) {
	held, err := box.Hold(base)
	if err != nil {
		return nil, nil, err
	}
	tree, err := box.OpenTree()
	if err != nil {
		held.CloseUppers()
		held.Close()
		return nil, nil, err
	}
	defer tree.Close()
	uppers = slices.Clone(held.Uppers)
	if up, err := rootfs.KeptUpper(tree); err == nil { // a fork that never ran has no upper
		uppers = append(uppers, up)
	}
	return uppers, func() {
		for _, f := range uppers {
			f.Close()
		}
		held.Close()
	}, nil
}

// imageFiles opens the files that a sandbox was made from.
func (e *Engine) imageFiles(spec runner.Spec) (files []*os.File, release func(), err error) {
	r := spec.Rootfs
	if r != nil && r.Dir == "" {
		held, err := layers.Open(r.Store, layerKey(e.boot)).Hold(diffIDs(r))
		if err != nil {
			return nil, nil, err
		}
		return held.FS, held.Close, nil
	}
	var f *os.File
	if r != nil {
		f, err = os.Open(r.Dir)
	} else {
		l := rootfs.Layout{Hostname: spec.Hostname}
		if spec.User != nil {
			l.User = rootfs.User(*spec.User)
		}
		f, err = rootfs.HostFiles(l)
	}
	if err != nil {
		return nil, nil, err
	}
	return []*os.File{f}, func() { f.Close() }, nil
}

// placesOfMounts exist in every tree, and ownEtc in every tree of an image. /workspace is missing here because it
// is also a working directory: a layer contains what the sandbox left there.
var (
	placesOfMounts = []string{"dev", "in", "out", "proc", "sys"}
	ownEtc         = []string{"etc/hostname", "etc/hosts", "etc/resolv.conf", rootfs.CertFile[1:]}
)

// notItsOwn reports whether path was made for a sandbox and not by it.
func notItsOwn(path string, image bool) bool {
	return slices.Contains(placesOfMounts, path) || strings.HasPrefix(path, "in/") || image && slices.Contains(ownEtc, path)
}

// told converts changes to a Diff. It omits entries that the sandbox did not make and marks those that a host
// program might execute.
func told(changes []upper.Change, all, image bool) *runner.Diff {
	d := &runner.Diff{Truncated: !all}
	for _, c := range changes {
		if c.Path == "workspace" || notItsOwn(c.Path, image) {
			continue
		}
		change := runner.Change{Path: ipc.Bytes("/" + c.Path), Kind: string(c.Kind)}
		if c.Kind != 'D' {
			change.Executes = upper.ExecutedBy(c.Path)
		}
		d.Changes = append(d.Changes, change)
	}
	return d
}
