package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"demesne/integration/fixture"

	"golang.org/x/sys/unix"
)

// Addresses of the servers, by a name that resolves to them.
const (
	streamServer = "good.test:7" // reads a count, then writes that many bytes
	echoServer   = "good.test:8"
	tunnelServer = "good.test:9" // echoes

	relayedServer = "good.test:10"   // echoes
	relayServer   = "good.test:1080" // see bareRelay

	loadPorts = "good.test:7,8,9,10" // the rule of a load in a sandbox
)

// internet measures egress in namespaces of its own, with servers in another network namespace. It starts this
// program again there, and reads that process's findings from its stdout.
func internet(m *machine) { m.there("egress") }

// withInternet does the same for sandboxes of the level minimal.
func withInternet(m *machine) { m.there("minimal") }

func (m *machine) there(part string) {
	cmd := exec.Command(m.bin+"/bench", "internet", m.dir, strconv.Itoa(m.uid), strconv.Itoa(m.rounds), part)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	got := found[findings](cmd)
	m.rows, m.bounds = append(m.rows, got.Rows...), append(m.bounds, got.Bounds...)
}

type findings struct {
	Rows   []row
	Bounds []bound
}

// onInternet is the process that internet starts in the namespaces.
func onInternet(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("internet: only bench calls this command")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	m := &machine{bin: args[0] + "/bin", dir: args[0]}
	m.uid, _ = strconv.Atoi(args[1])
	m.rounds, _ = strconv.Atoi(args[2])
	part := egress
	if args[3] == "minimal" {
		part = minimal
	}
	if err := attempt(func() { m.connect(); part(m) }); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(findings{m.rows, m.bounds})
}

// connect gives the machine a network with servers elsewhere, and writes their names to /etc/hosts.
func (m *machine) connect() {
	ip := find("ip")
	if ip == "" {
		check(fmt.Errorf("find ip: %w (make deps)", exec.ErrNotFound))
	}
	m.elsewhere = must(fixture.NewElsewhere(ip))
	names(m.dir)
	for at, serve := range map[string]func(net.Conn){"8.1.1.1:7": zerosTo, "8.1.1.1:8": echo, "8.1.1.1:9": echo, "8.1.1.1:10": echo} {
		var l net.Listener
		var err error
		m.elsewhere.Do(func() { l, err = net.Listen("tcp", at) })
		check(err)
		go accept(l, serve)
	}
}

// names mounts the bench's own files over /etc/hosts and /etc/resolv.conf.
func names(dir string) {
	check(os.NewSyscallError("make mounts private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")))
	for at, text := range map[string]string{"/etc/hosts": "127.0.0.1 localhost\n8.1.1.1 good.test\n", "/etc/resolv.conf": "nameserver 8.9.9.9\n"} {
		file := filepath.Join(dir, filepath.Base(at))
		check(os.WriteFile(file, []byte(text), 0o644))
		check(os.NewSyscallError("mount "+at, unix.Mount(file, must(filepath.EvalSymlinks(at)), "", unix.MS_BIND, "")))
	}
}

func accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

func zerosTo(c net.Conn) {
	var n uint64
	if binary.Read(c, binary.BigEndian, &n) == nil {
		io.CopyBuffer(struct{ io.Writer }{c}, io.LimitReader(quiet{}, int64(n)), make([]byte, 256<<10))
	}
}

// quiet is a Reader that leaves the buffer as it is, so that the server spends its time on sending.
type quiet struct{}

func (quiet) Read(p []byte) (int, error) { return len(p), nil }

func echo(c net.Conn) {
	var buf [4096]byte
	for {
		n, err := c.Read(buf[:])
		if err != nil {
			return
		}
		c.Write(buf[:n])
	}
}
