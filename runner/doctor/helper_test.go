package doctor

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestMain(m *testing.M) {
	Reexec()
	os.Exit(m.Run())
}

// stage is the environment variable that tells a test process how far it is from the test's body.
const stage = "DEMESNE_TEST_STAGE"

// start describes the user namespace of a test.
type start struct {
	ids   int    // mapped, from 0; 0: no user namespace
	shell string // run inside, before the test: "mount …"
}

// asRootAndUser runs the calling test again in the namespaces of s, as root and as an ordinary user, and calls
// body there.
func asRootAndUser(t *testing.T, s start, body func(t *testing.T)) {
	switch os.Getenv(stage) {
	case "body":
		body(t)
	case "user":
		reexec(t, "body", s, nil)
	default:
		t.Run("caller", func(t *testing.T) { reexec(t, "body", s, nil) })
		t.Run("user", func(t *testing.T) {
			if os.Getuid() != 0 || s.ids > 1 {
				t.Skip("needs root, and one id")
			}
			reexec(t, "user", s, &syscall.Credential{Uid: 65534, Gid: 65534})
		})
	}
}

// reexec runs t's test in a child, in the namespaces of s or as the user who.
func reexec(t *testing.T, next string, s start, who *syscall.Credential) {
	t.Helper()
	if s.ids > 1 && os.Getuid() != 0 {
		t.Skip("needs root: more than one id")
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	args := []string{"-test.run=^" + name + "$", "-test.v=" + strconv.FormatBool(testing.Verbose())}
	exe, err := os.Open("/proc/self/exe") // other users cannot enter its directory
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	cmd := exec.Command("/proc/self/fd/3", args...)
	if s.shell != "" && who == nil {
		cmd = exec.Command("/bin/sh", append([]string{"-ec", s.shell + "\nexec /proc/self/fd/3 \"$@\"", "sh"}, args...)...)
	}
	cmd.ExtraFiles = []*os.File{exe}
	cmd.Env = append(os.Environ(), stage+"="+next)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	if who == nil && s.ids > 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: base(s, os.Getuid()), Size: s.ids}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: base(s, os.Getgid()), Size: s.ids}}
		cmd.SysProcAttr.GidMappingsEnableSetgroups = s.ids > 1
		if s.ids > 1 {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: 0}
		}
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

func base(s start, own int) int {
	if s.ids > 1 {
		return 0x70000000
	}
	return own
}
