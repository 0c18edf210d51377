package unpack

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// idsVar tells a test binary that it runs as uid 0 of a user namespace, and how many ids it has.
const idsVar = "DEMESNE_TEST_IDS"

// inUserns runs the rest of the calling test as uid 0 of a new user namespace. It returns
// false where the test only started that: then the caller returns. As real root the test
// runs twice: with 65536 ids, and with one.
func inUserns(t *testing.T) bool {
	t.Helper()
	if os.Getenv(idsVar) != "" {
		return true
	}
	ids := []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
	if os.Geteuid() == 0 {
		ids = []syscall.SysProcIDMap{{HostID: 100000, Size: 65536}, {HostID: 100000, Size: 1}}
	}
	for _, m := range ids {
		t.Run(fmt.Sprintf("ids=%d", m.Size), func(t *testing.T) {
			cmd := again(t)
			cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", idsVar, m.Size))
			gids := m
			if os.Geteuid() != 0 {
				gids.HostID = os.Getegid()
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
				UidMappings: []syscall.SysProcIDMap{m}, GidMappings: []syscall.SysProcIDMap{gids},
				Credential: &syscall.Credential{NoSetGroups: true},
				Pdeathsig:  syscall.SIGKILL,
			}
			out, err := cmd.CombinedOutput()
			if err != nil && os.Getenv("CI") == "" && (os.IsPermission(err) || len(out) == 0) {
				t.Skipf("needs user namespaces: %v", err)
			}
			if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
	return false
}

// again is this test binary, about to run the calling test.
func again(t *testing.T) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$", "-test.v")
	cmd.Env = append(os.Environ(), "TMPDIR=/tmp")
	return cmd
}

// many tells whether more than one id is mapped.
func many() bool { return os.Getenv(idsVar) != "1" }
