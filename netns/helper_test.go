package netns

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// inside marks the process that asRootAndUser started.
const inside = "DEMESNE_TEST_INSIDE"

// asRootAndUser runs the calling test again, in a new user and mount namespace with one id, and body in it. It does
// so once as root and once as an ordinary user.
func asRootAndUser(t *testing.T, body func(t *testing.T)) {
	switch os.Getenv(inside) {
	case "1":
		body(t)
		return
	case "user": // an ordinary user of the host, which still has to make the namespaces
		reexec(t, "1", nil)
		return
	}
	t.Run("caller", func(t *testing.T) { reexec(t, "1", nil) })
	t.Run("user", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("the caller is an ordinary user already")
		}
		reexec(t, "user", &syscall.Credential{Uid: 65534, Gid: 65534})
	})
}

// reexec runs the test that t is part of in a child, which gets new namespaces unless it becomes another user
// first.
func reexec(t *testing.T, env string, who *syscall.Credential) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+name+"$", "-test.v="+map[bool]string{true: "true", false: "false"}[testing.Verbose()])
	cmd.Env = append(os.Environ(), inside+"="+env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Pdeathsig: syscall.SIGKILL}
	if who == nil {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		if cmd.ProcessState == nil && os.Getenv("CI") == "" {
			t.Skipf("needs user namespaces: %v", err)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
