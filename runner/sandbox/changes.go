package sandbox

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"demesne/rootfs"
	"demesne/rootfs/layers"
	"demesne/rootfs/upper"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/store"
)

// Diff lists the changes of s against its image. Errors call s as the caller did.
func (s *Sandbox) Diff(called string) (*runner.Diff, error) {
	<-s.built
	own := &s.files.persistent
	if own.dir == nil || !own.onDisk || s.machine.minimal() {
		return nil, noDiff(called)
	}
	return s.machine.compare(own.dir, s.Info().Spec, own.base)
}

// DiffStopped lists the changes of a sandbox that has no processes of this runner, like [Sandbox.Diff].
func (m *Machine) DiffStopped(id, called string) (*runner.Diff, error) {
	d, err := m.Store()
	if err != nil {
		return nil, err
	}
	dir, rec, err := take(d, id)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := m.mapped(rec); err != nil {
		return nil, err
	}
	if m.minimal() {
		return nil, noDiff(called)
	}
	return m.compare(dir, rec.Info.Spec, rec.Base)
}

func noDiff(called string) error {
	return ipc.Errorf(ipc.CodeInvalid, "compare files of sandbox %q: this sandbox has no writable layer of its own", called)
}

func (m *Machine) compare(dir *store.Dir, spec runner.Spec, base []string) (*runner.Diff, error) {
	uppers, letGo, err := uppersOf(dir, base)
	if err != nil {
		return nil, err
	}
	defer letGo()
	image, release, err := m.imageFiles(spec)
	if err != nil {
		return nil, err
	}
	defer release()
	changes, all, err := upper.Diff(image, uppers)
	if err != nil {
		return nil, err
	}
	return diffOf(changes, all, spec), nil
}

// WriteLayer writes layer n of those that a stopped sandbox has above its image. It writes nothing if n is their number:
// there was no change since the last snapshot.
func (m *Machine) WriteLayer(id string, n int, o runner.LayerOptions, to io.Writer) (did runner.Layered, err error) {
	d, err := m.Store()
	if err != nil {
		return did, err
	}
	dir, rec, err := take(d, id)
	if err != nil {
		return did, err
	}
	defer dir.Close()
	if err := m.mapped(rec); err != nil {
		return did, err
	}
	uppers, release, err := uppersOf(dir, rec.Base)
	if err != nil {
		return did, err
	}
	defer release()
	did.Layers = max(len(uppers), 1)
	if n == len(uppers) {
		return did, nil
	}
	if n < 0 || n > len(uppers) {
		return did, ipc.Errorf(ipc.CodeInvalid, "write layer %d: the sandbox has only %d", n, did.Layers)
	}
	w := bufio.NewWriterSize(to, 256<<10)
	did.Entries, err = upper.WriteLayer(uppers[n], w, layerOptions(o, &rec.Info.Spec))
	if err == nil {
		err = w.Flush()
	}
	return did, err
}

// layerOptions translates o for the layer of a sandbox.
func layerOptions(o runner.LayerOptions, spec *runner.Spec) upper.LayerOptions {
	u := upper.LayerOptions{
		Bounded: true,
		Skip: func(path string) bool {
			place := o.Places && slices.Contains(placesOfMounts, path)
			return !place && notItsOwn(path, spec) || slices.Contains(o.Without, path)
		},
		Bare: func(dir *tar.Header) bool {
			mode, ok := o.Bare[strings.TrimSuffix(dir.Name, "/")]
			return ok && dir.Mode == mode && dir.Uid == 0 && dir.Gid == 0
		},
	}
	if o.NotAfter != nil {
		u.NotAfter = *o.NotAfter
	}
	return u
}

// uppersOf opens the layers that a sandbox wrote, the earliest first, and locks them until release is called.
func uppersOf(dir *store.Dir, base []string) (uppers []*os.File, release func(), err error) {
	held, err := dir.Hold(base)
	if err != nil {
		return nil, nil, err
	}
	tree, err := dir.OpenTree()
	if err != nil {
		held.CloseUppers()
		held.Close()
		return nil, nil, err
	}
	defer tree.Close()
	uppers = slices.Clone(held.Uppers)
	release = func() {
		for _, f := range uppers {
			f.Close()
		}
		held.Close()
	}
	up, err := rootfs.KeptUpper(tree)
	switch {
	case err == nil:
		uppers = append(uppers, up)
	case !errors.Is(err, fs.ErrNotExist): // as of a fork that never ran
		release()
		return nil, nil, err
	}
	return uppers, release, nil
}

// imageFiles opens the files that a sandbox was made from.
func (m *Machine) imageFiles(spec runner.Spec) (files []*os.File, release func(), err error) {
	r := spec.Rootfs
	if r != nil && r.Dir == "" {
		held, err := layers.Open(r.Store, layerKey(m.Boot)).Hold(diffIDs(r))
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
		l.Hosts, _ = interior(&spec)
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
	placesOfMounts = []string{"dev", "proc", "sys"}
	ownEtc         = []string{"etc/hostname", "etc/hosts", "etc/resolv.conf", rootfs.CertFile[1:], rootfs.JavaFile[1:]}
)

// notItsOwn reports whether path was made for a sandbox and not by it.
func notItsOwn(path string, spec *runner.Spec) bool {
	mounted := func(m runner.Mount) bool { return m.Target == "/"+path }
	inMemory := func(t runner.Tmpfs) bool { return t.Target == "/"+path }
	dirs := []string{"in", "out"}
	if spec.Rootfs != nil && spec.Rootfs.Aside {
		dirs = []string{runner.AsideDir[1:]}
	}
	below := func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
	return slices.Contains(placesOfMounts, path) || slices.ContainsFunc(dirs, below) ||
		spec.Rootfs != nil && slices.Contains(ownEtc, path) || slices.ContainsFunc(spec.Mounts, mounted) || slices.ContainsFunc(spec.Tmpfs, inMemory)
}

// aboveMount reports whether the runner made a directory as parent of a mount point.
func aboveMount(path string, mounts []runner.Mount) bool {
	return slices.ContainsFunc(mounts, func(m runner.Mount) bool { return strings.HasPrefix(m.Target, "/"+path+"/") })
}

// diffOf converts changes to a Diff. It omits entries that the sandbox did not make and marks those that a host
// program might execute.
func diffOf(changes []upper.Change, all bool, spec runner.Spec) *runner.Diff {
	d := &runner.Diff{Truncated: !all}
	for _, c := range changes {
		if c.Path == "workspace" || notItsOwn(c.Path, &spec) || c.Kind == 'A' && aboveMount(c.Path, spec.Mounts) {
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
