// Command floor is the least that starts a command in a container by libcontainer: a peer of bench, which
// builds it.
//
//	floor DIR STATE       this program starts the next one in a user and a mount namespace of its own
//	└─ container          makes a container of DIR, with the namespaces that demesne's sandboxes have
//	   └─ container init  libcontainer's half, which becomes /bin/true
//
// demesne run has the same three programs and a PID 1 of its own besides. What the floor leaves out
// is what demesne adds: a runner that serves others too, PID 1, Landlock, seccomp, the mask over /proc, limits, a /dev,
// streams, verified layers and the receipt. How far above it demesne is says what these cost;
// how far the floor is above bwrap, what Go and libcontainer do. It holds nobody: never use it for anything else.
//
// It is two programs because libcontainer wants C and a start that is paid twice.
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
