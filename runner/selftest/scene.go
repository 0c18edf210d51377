package selftest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// scene is the canaries of one run.
type scene struct {
	facts   facts
	dir     string
	program string   // this program
	open    *os.File // a directory that every target inherits
	close   []func()
	before  string // content of the canary
	// terminal is the running sandbox's terminal. typed reports whether someone typed into the last sandbox's terminal.
	terminal *terminal
	typed    bool
}

// newScene makes the canaries. The caller ends them by end.
func newScene() (s *scene, err error) {
	s = &scene{}
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	if s.program, err = os.Executable(); err != nil {
		return nil, err
	}
	home, err := os.UserHomeDir()
	if err != nil || home == "/" {
		home = os.TempDir()
	}
	if s.dir, err = os.MkdirTemp(home, ".demesne-selftest-"); err != nil {
		return nil, err
	}
	s.close = append(s.close, func() { os.RemoveAll(s.dir) })
	f := &s.facts
	f.Secret, f.Variable = "selftest-"+rand.Text(), "SELFTEST_SECRET"
	f.Dir, f.Canary, f.Path, f.Abstract = s.dir+"/dir", s.dir+"/dir/canary", s.dir+"/socket", "demesne-selftest-"+rand.Text()
	s.before = f.Secret + "\n"
	if err := errors.Join(os.MkdirAll(f.Dir+"/.git/hooks", 0o755), os.WriteFile(f.Canary, []byte(s.before), 0o600)); err != nil {
		return nil, err
	}
	if s.open, err = os.Open(f.Dir); err != nil {
		return nil, err
	}
	s.close = append(s.close, func() { s.open.Close() })
	f.Shared = "/dev/shm/demesne-selftest-" + rand.Text()
	if os.WriteFile(f.Shared, []byte(s.before), 0o600) == nil {
		s.close = append(s.close, func() { os.Remove(f.Shared) })
	}
	f.Missing, f.Scarce = missing(), scarce()
	s.kernel()
	if err := s.process(); err != nil {
		return nil, err
	}
	return s, s.servers()
}

func (s *scene) end() {
	for i := len(s.close) - 1; i >= 0; i-- {
		s.close[i]()
	}
}

// kernel makes a key and a segment of shared memory, where this process may.
func (s *scene) kernel() {
	f := &s.facts
	if key, err := unix.AddKey("user", "demesne-selftest", []byte(f.Secret), unix.KEY_SPEC_SESSION_KEYRING); err == nil {
		f.Key = key
		s.close = append(s.close, func() { unix.KeyctlInt(unix.KEYCTL_UNLINK, key, unix.KEY_SPEC_SESSION_KEYRING, 0, 0) })
	}
	f.Memory = -1
	if id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600); err == nil {
		f.Memory = id
		s.close = append(s.close, func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	}
}

// process starts the process outside. It reads a pipe, and so ends with this program.
func (s *scene) process() error {
	cmd := exec.Command(s.program, "selftest", probeVerb, "-wait")
	cmd.Env = []string{s.facts.Variable + "=" + s.facts.Secret}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a process: %w", err)
	}
	s.close = append(s.close, func() { in.Close(); cmd.Wait() })
	s.facts.PID = cmd.Process.Pid
	s.facts.Started, err = started(s.facts.PID)
	return err
}

// servers opens a socket of each kind. Each answers with what it was sent.
func (s *scene) servers() error {
	f := &s.facts
	var tcp *net.TCPListener
	for _, at := range []struct{ network, address string }{{"tcp", ":0"}, {"unix", f.Path}, {"unix", "@" + f.Abstract}} {
		l, err := net.Listen(at.network, at.address)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		s.close = append(s.close, func() { l.Close() })
		if t, ok := l.(*net.TCPListener); ok {
			tcp = t
		}
		go echo(l)
	}
	f.TCP = tcp.Addr().(*net.TCPAddr).Port
	u, err := net.ListenPacket("udp", ":0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.close = append(s.close, func() { u.Close() })
	f.UDP = u.LocalAddr().(*net.UDPAddr).Port
	go func() {
		buffer := make([]byte, 1024)
		for {
			n, from, err := u.ReadFrom(buffer)
			if err != nil {
				return
			}
			u.WriteTo(buffer[:n], from)
		}
	}()
	s.network()
	return nil
}

func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() { io.CopyN(c, c, 64); c.Close() }()
	}
}

// network finds an address and an interface of this machine, and its name server.
func (s *scene) network() {
	found, _ := net.Interfaces()
	for _, i := range found {
		addresses, _ := i.Addrs()
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && i.HardwareAddr != nil && s.facts.Address == "" {
				s.facts.Address, s.facts.Link = n.IP.String(), i.HardwareAddr.String()
			}
		}
	}
	text, _ := os.ReadFile("/etc/resolv.conf")
	for line := range strings.Lines(string(text)) {
		if w := strings.Fields(line); len(w) == 2 && w[0] == "nameserver" && s.facts.Resolver == "" {
			s.facts.Resolver = w[1]
		}
	}
}

// judge looks at the canaries. What changed outside is an escape, whatever a probe said.
func (s *scene) judge(all []outcome) []outcome {
	for name, title := range map[string]string{s.facts.Dir + "/made": "make a file in a directory of the user", s.facts.Dir + "/.git/hooks/pre-commit": "make a git hook there"} {
		_, err := os.Lstat(name)
		for i := range all {
			switch {
			case all[i].Title != title:
			case err == nil:
				all[i].Verdict, all[i].Why = escaped, "the file is outside"
			case all[i].Verdict == escaped:
				all[i].Verdict, all[i].Why = contained, "the file stayed inside"
			}
		}
		os.Remove(name)
	}
	s.judgeTerminal(all)
	if text, err := os.ReadFile(s.facts.Canary); err != nil || string(text) != s.before {
		all = append(all, outcome{"F2", "leave the canary as it was", escaped, "it changed: " + filepath.Base(s.facts.Canary)})
	}
	return all
}

// judgeTerminal compares what probes say about the caller's terminal with what arrived there.
func (s *scene) judgeTerminal(all []outcome) {
	var first *outcome
	for i := range all {
		if all[i].Case != "P4" || !strings.HasPrefix(all[i].Title, "type into") {
			continue
		}
		if first == nil {
			first = &all[i]
		}
		if all[i].Verdict == escaped && s.typed {
			return
		}
		if all[i].Verdict == escaped {
			all[i].Verdict, all[i].Why = contained, "that was another terminal"
		}
	}
	if s.typed && first != nil {
		first.Verdict, first.Why = escaped, "it arrived outside"
	}
}
