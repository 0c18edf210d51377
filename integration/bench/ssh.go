package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"time"
)

// sshTime is the most that demesne ssh NAME true may take, with OpenSSH's client.
const sshTime = 40 * time.Millisecond

// overSSH compares a command by demesne ssh with one by OpenSSH's server on loopback, which this part starts with a key of its
// own.
func overSSH(m *machine) {
	uid, env := m.uid, m.env
	defer func() { m.uid, m.env = uid, env }()
	// OpenSSH's client refuses a user whom passwd does not have.
	m.uid, m.env = -1, append(slices.Clip(env), "DEMESNE_SANDBOX_ROOT="+m.dir+"/k")
	id, err := m.output("demesne", "create", "--name", "bench-ssh")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: create:", err, id)
		return
	}
	defer m.output("demesne", "rm", "bench-ssh")
	peer := entry{name: "ssh localhost true", note: "sshd on loopback"}
	if argv, stop, err := m.sshd(); err == nil {
		defer stop()
		peer.run = m.timed(argv...)
	}
	took := m.race(m.rounds, coldRounds, atOnce, entry{name: "demesne ssh NAME true", note: "OpenSSH's client", run: m.timed("demesne", "ssh", "bench-ssh", "true")}, peer)
	m.atMost("demesne ssh NAME true", took["demesne ssh NAME true"], sshTime)
	if peer.run != nil {
		m.ratio("demesne ssh, against sshd", took["demesne ssh NAME true"], took[peer.name], 1)
	}
}

// sshd starts OpenSSH's server on loopback, and returns a client's command line.
func (m *machine) sshd() (argv []string, stop func(), err error) {
	const program = "/usr/sbin/sshd"
	dir, err := os.MkdirTemp(m.dir, "sshd")
	if err != nil {
		return nil, nil, err
	}
	me, err := user.Current()
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	host, key := filepath.Join(dir, "host"), filepath.Join(dir, "key")
	for _, path := range []string{host, key} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path).CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("%w: %s", err, out)
		}
	}
	os.MkdirAll("/run/sshd", 0o755) // sshd of Debian, as root
	cmd := exec.Command(program, "-D", "-f", "/dev/null", "-p", port, "-h", host, "-o", "ListenAddress=127.0.0.1", "-o", "AuthorizedKeysFile="+key+".pub",
		"-o", "StrictModes=no", "-o", "PermitRootLogin=yes", "-o", "PidFile=none")
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop = func() { cmd.Process.Kill(); cmd.Wait() }
	client, err := exec.LookPath("ssh")
	if err != nil {
		stop()
		return nil, nil, err
	}
	argv = []string{client, "-F", "none", "-p", port, "-i", key, "-o", "IdentitiesOnly=yes", "-o", "UserKnownHostsFile=" + dir + "/known", "-o", "StrictHostKeyChecking=accept-new",
		"-o", "LogLevel=ERROR", me.Username + "@127.0.0.1", "true"}
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err = m.time(argv...); err == nil || time.Now().After(until) {
			break
		}
	}
	if err != nil {
		stop()
	}
	return argv, stop, err
}
