package rootfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"demesne/rootfs/upper"
)

// copied makes / from copies of the layers, merged as overlayfs would. It is the last fallback, for a kernel on
// which no overlay works. Hard links become separate files.
func (t *Tree) copied(o *overlay, why error) (*plan, error) {
	t.Upper = UpperCopied
	t.UpperWhy = errors.Join(t.UpperWhy, why)
	if err := o.prepare(); err != nil {
		return nil, err
	}
	if err := t.attachAside(o); err != nil {
		return nil, err
	}
	up, err := unix.Openat(o.upper.fd, "up", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(up)
	for _, lower := range o.lowers {
		if err := upper.CopyLayer(lower, up); err != nil {
			return nil, fmt.Errorf("copy layer: %w", err)
		}
	}
	fd, err := clone(o.upper.fd, "up", attrBind)
	if err != nil {
		return nil, err
	}
	return &plan{dir: dir{fd: fd, at: "/", umask: o.upper.umask}}, nil
}
