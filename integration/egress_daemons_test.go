package integration

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Real servers on the test's internet. They are processes of the test, and write only below its box.

// peerUID is the user id of sshd and PostgreSQL, which both refuse to serve as root with a single id.
const peerUID = 4242

// peers adds names to the internet, and the user peer.
func (n *internet) peers(hosts string) {
	n.Helper()
	appendTo(n, "/etc/hosts", hosts) // a file of the box since connect
	users, err := os.ReadFile("/etc/passwd")
	if err != nil {
		n.Fatal(err)
	}
	mine := n.file("net/etc/passwd", string(users)+"peer:x:4242:4242::"+n.dir+":/bin/sh\n", 0o644)
	if err := unix.Mount(mine, "/etc/passwd", "", unix.MS_BIND, ""); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { unix.Unmount("/etc/passwd", unix.MNT_DETACH) })
}

func appendTo(n *internet, path, text string) {
	n.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		n.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		n.Fatal(err)
	}
}

// peer returns a command that runs as peerUID, in a user namespace that maps peerUID to the current user.
func (n *internet) peer(argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = n.dir, []string{"HOME=" + n.dir, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig:   syscall.SIGKILL,
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWIPC, // releases shared memory at its end
		UidMappings: []syscall.SysProcIDMap{{ContainerID: peerUID, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: peerUID, HostID: os.Getgid(), Size: 1}},
	}
	return cmd
}

// once runs a peer to its end.
func (n *internet) once(argv ...string) {
	n.Helper()
	if out, err := n.peer(argv...).CombinedOutput(); err != nil {
		n.Fatalf("%q: %v\n%s", argv, err, out)
	}
}

// daemon runs a peer until the test ends. It returns when the peer says that it accepts connections: PostgreSQL listens before that,
// and refuses clients meanwhile.
func (n *internet) daemon(at string, argv ...string) {
	n.Helper()
	cmd := n.peer(argv...)
	said := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = said, said
	var err error
	n.at(at, func() { err = cmd.Start() })
	if err != nil {
		n.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	n.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGINT) // PostgreSQL shuts down its children in order
		<-ended
	})
	eventually(n, argv[0]+" on "+at, func() bool {
		select {
		case <-ended:
			n.Fatalf("%q: %v\n%s", argv, cmd.ProcessState, said.String())
		default:
		}
		return strings.Contains(said.String(), "eady to accept connections")
	})
}

// inetd starts a peer for each connection, with the connection as stdin and stdout.
func (n *internet) inetd(at string, argv ...string) {
	n.Helper()
	l := n.listen(at)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go n.serveWith(c.(*net.TCPConn), argv)
		}
	}()
}

func (n *internet) serveWith(c *net.TCPConn, argv []string) {
	f, err := c.File()
	c.Close()
	if err != nil {
		n.Error(err)
		return
	}
	defer f.Close()
	unix.SetNonblock(int(f.Fd()), false)
	cmd := n.peer(argv...)
	cmd.Stdin, cmd.Stdout = f, f
	if err := cmd.Start(); err != nil {
		n.Errorf("%q: %v", argv, err)
		return
	}
	cmd.Wait() // its exit status concerns only its client
}

// postgres returns the path of a program of PostgreSQL, which Debian keeps out of PATH.
func postgres(n *internet, name string) string {
	n.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	need(n, len(found) > 0, "postgresql")
	return found[len(found)-1]
}

// repository creates a bare git repository with one commit.
func (n *internet) repository(name, message string) {
	n.Helper()
	git, work := program(n, "git"), n.dir+"/"+strings.TrimSuffix(name, ".git")
	n.once(git, "init", "-q", work)
	// Without the maintenance of later versions, which goes on after the commit and removes a file that clone copies.
	n.once(git, "-C", work, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "maintenance.auto=false", "commit", "-q", "--allow-empty", "-m", message)
	n.once(git, "clone", "-q", "--bare", work, n.dir+"/"+name)
}
