package client

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"demesne/runner/api"
	"demesne/runner/userns"
)

// outMapOwner owns the namespaces of [outMaps]. No process has this user id: it lies above the range of the runner's
// ids, and useradd(8) gives no user one so high.
const outMapOwner = rootBase + rangeSize

// outMap is the user namespace of [outMaps]. To make one takes a process, so real root's clients make one per runner:
// the runner keeps it and hands it to each later client.
//
// Real root does not trust its runner. A namespace that a runner hands over is trusted only if its owner is outMapOwner
// and its parent is the client's own namespace. A process in the runner's namespace cannot make such a one: its
// namespaces have the runner's as their parent, and its user ids are others.
type outMap struct {
	program string

	mu   sync.Mutex
	ns   *os.File // stays open until the client's end
	made bool     // made here, and not handed to the runner yet
}

// accept takes the namespace that a runner handed over, or nil. self is the client's own user namespace.
func (o *outMap) accept(ns, self *os.File) {
	if ns == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ns != nil || checkOutMap(ns, self) != nil {
		ns.Close()
		return
	}
	o.ns = ns
}

// get returns the namespace; the outMap still owns it. hand is a descriptor of the namespace for the runner, or nil if
// the runner has one. The caller closes hand.
func (o *outMap) get() (ns, hand *os.File, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ns == nil {
		u, err := holdUserns(o.program, outMaps(), userns.EnvOwner+"="+strconv.Itoa(outMapOwner))
		if err != nil {
			return nil, nil, err
		}
		o.ns, o.made = u.ns, true
	}
	if o.made {
		// On an error the runner does not get it, and the next client makes its own.
		if fd, err := unix.FcntlInt(o.ns.Fd(), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			hand, o.made = os.NewFile(uintptr(fd), "out map"), false
		}
	}
	return o.ns, hand, nil
}

// checkOutMap reports why ns is not a namespace that a client of real root made, see ioctl_ns(2).
func checkOutMap(ns, self *os.File) error {
	id, err := api.Identify(self)
	if err != nil {
		return err
	}
	if _, err := api.Identify(ns); err != nil {
		return err
	}
	owner, err := unix.IoctlGetUint32(int(ns.Fd()), unix.NS_GET_OWNER_UID)
	if err != nil {
		return fmt.Errorf("read owner of namespace: %w", err)
	}
	fd, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_PARENT)
	if err != nil {
		return fmt.Errorf("open parent of namespace: %w", err)
	}
	parent := os.NewFile(uintptr(fd), "parent")
	defer parent.Close()
	if of, err := api.Identify(parent); err != nil || of != id || owner != outMapOwner {
		return errors.New("check namespace: not made by real root for /out")
	}
	return nil
}
