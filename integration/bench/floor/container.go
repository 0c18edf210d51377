//go:build cgo

// This file is the half of floor that links libcontainer: see main.go.

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // its C code runs before the Go runtime
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "init" {
		libcontainer.Init()
	}
	if len(os.Args) != 3 {
		fail(errors.New("usage: floor DIR STATE"))
	}
	logrus.SetLevel(logrus.ErrorLevel)
	fail(run(os.Args[1], os.Args[2]))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

// run runs /bin/true in a container of the tree root.
func run(root, state string) error {
	if err := mounts(root, state); err != nil {
		return err
	}
	c, err := libcontainer.Create(state, "floor", config(root))
	if err != nil {
		return err
	}
	p := &libcontainer.Process{
		Init: true, Args: []string{"/bin/true"}, Cwd: "/", Env: []string{"PATH=/bin"}, LogLevel: "2",
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	if err := c.Run(p); err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}

// mounts builds the tree, and two mounts that libcontainer needs. The state directory must be a mount point, or
// libcontainer copies this program. /sys/fs/cgroup must be a cgroup2, which the machine may lack.
func mounts(root, state string) error {
	return errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""),
		unix.Mount("floor", state, "tmpfs", 0, ""),
		unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", unix.MS_RDONLY, ""),
		unix.Mount(root, root, "", unix.MS_BIND, ""),
		unix.Mount("/usr", filepath.Join(root, "usr"), "", unix.MS_BIND|unix.MS_REC, ""),
	)
}

func config(root string) *configs.Config {
	one := []configs.IDMap{{Size: 1}}
	c := &configs.Config{
		Version: "1.2.0", Rootfs: root, Hostname: "floor", NoNewPrivileges: true,
		UIDMappings: one, GIDMappings: one, Capabilities: &configs.Capabilities{},
		Mounts: []*configs.Mount{
			{Source: "proc", Device: "proc", Destination: "/proc", Flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
			{Source: "/dev", Device: "bind", Destination: "/dev", Flags: unix.MS_BIND | unix.MS_REC},
		},
		Cgroups:         &cgroups.Cgroup{Name: "floor", Rootless: true, Resources: &cgroups.Resources{}},
		RootlessCgroups: true, RootlessEUID: true,
	}
	for _, ns := range []configs.NamespaceType{
		configs.NEWUSER, configs.NEWNS, configs.NEWPID, configs.NEWIPC, configs.NEWUTS, configs.NEWCGROUP, configs.NEWNET,
	} {
		c.Namespaces = append(c.Namespaces, configs.Namespace{Type: ns})
	}
	return c
}
