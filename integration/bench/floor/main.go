//go:build !cgo

// Command floor starts a command in a container with the least code that libcontainer allows. Only
// the bench uses it: as a peer, which it builds.
//
//	floor DIR STATE       this program starts the next one in a user and a mount namespace of its own
//	└─ container          makes a container of DIR, with the namespaces that demesne's sandboxes have
//	   └─ container init  libcontainer's half, which becomes /bin/true
//
// demesne run has the same three programs, and a PID 1 of its own. Besides that PID 1, floor lacks
// the shared runner, Landlock, seccomp, the mask over /proc, limits, a /dev, streams, verified
// layers and the receipt. The distance from floor to demesne is the cost of these. The distance
// from bwrap to floor is the cost of Go and libcontainer. floor confines nothing: use it for
// nothing else.
//
// It is two programs because libcontainer needs cgo, and starts its own program a second time. Only
// the second program pays for that start. One directory has both: built without cgo it is the first
// program, with cgo the second (container.go).
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(self), "floor-container")
	p, err := os.StartProcess(program, append([]string{program}, os.Args[1:]...), &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWCGROUP,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
			Pdeathsig:   syscall.SIGKILL,
		},
	})
	if err != nil {
		return err
	}
	st, err := p.Wait()
	if err == nil && !st.Success() {
		err = fmt.Errorf("%s: %v", program, st)
	}
	return err
}
