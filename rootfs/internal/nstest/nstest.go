// Package nstest runs tests of rootfs and the packages below it as uid 0 of user namespaces, as the programs that
// use those packages do.
//
//	func TestX(t *testing.T) {
//		if !nstest.Enter(t) {
//			return
//		}
//		// here uid 0 has its own mounts, network and IPC
//	}
//
// The test binary is started again through /proc/self/exe, as its new ids may not reach the directory that go test
// built it in. Only tests import this package.
package nstest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// idsVar marks a test binary that runs as uid 0 of a user namespace; its value is the number of mapped ids.
const idsVar = "DEMESNE_TEST_IDS"

// Enter runs the rest of the calling test as uid 0 of a new user namespace. It returns false in the process that
// only started that, where the caller returns. As real root the test runs twice: with 65536 ids, and with one. On a
// machine that forbids user namespaces the test is skipped, except under CI.
func Enter(t *testing.T) bool {
	t.Helper()
	if Entered() {
		return true
	}
	for _, ids := range Maps() {
		t.Run(fmt.Sprintf("ids=%d", ids.Size), func(t *testing.T) {
			cmd := Again(t)
			Into(cmd, ids)
			out, err := cmd.CombinedOutput()
			Require(t, err)
			switch {
			case err != nil:
				t.Fatalf("%v\n%s", err, out)
			case bytes.Contains(out, []byte("--- PASS")):
			case bytes.Contains(out, []byte("--- SKIP")):
				t.Skipf("%s", out)
			default:
				t.Fatalf("it did not run\n%s", out)
			}
			if testing.Verbose() {
				t.Logf("%s", out)
			}
		})
	}
	return false
}

// Entered reports whether the process was started by [Into].
func Entered() bool { return os.Getenv(idsVar) != "" }

// Many reports whether more than one id is mapped.
func Many() bool { return os.Getenv(idsVar) != "1" }

// Maps returns the id maps that the caller can make.
func Maps() []syscall.SysProcIDMap {
	if os.Geteuid() != 0 {
		return []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
	}
	return []syscall.SysProcIDMap{{HostID: 100000, Size: 65536}, {HostID: 100000, Size: 1}}
}

// Again returns a command that runs the calling test in this test binary.
func Again(t *testing.T) *exec.Cmd {
	return Self("-test.run=^"+strings.Split(t.Name(), "/")[0]+"$", "-test.v", "-test.timeout=5m")
}

// Self returns a command that runs this test binary, with a directory for temporary files that every id may use.
func Self(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), "TMPDIR=/tmp")
	return cmd
}

// Into makes a command start as uid 0 of a new user namespace with these ids, in which [Enter] returns true.
func Into(cmd *exec.Cmd, ids syscall.SysProcIDMap) {
	gids := ids
	if os.Geteuid() != 0 {
		gids.HostID = os.Getegid()
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", idsVar, ids.Size))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		UidMappings: []syscall.SysProcIDMap{ids}, GidMappings: []syscall.SysProcIDMap{gids},
		Credential: &syscall.Credential{NoSetGroups: true},
		Pdeathsig:  syscall.SIGKILL,
	}
}

// Require skips the test if err says that the machine forbids user namespaces, except under CI.
func Require(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") == "" && (errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC)) {
		t.Skipf("needs user namespaces: %v", err)
	}
}
