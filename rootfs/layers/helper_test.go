package layers

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
				Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
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

func newCache(t *testing.T) Cache {
	t.Helper()
	return Open(t.TempDir(), "single-0-0")
}

func id(text string) DiffID { return DiffID(fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))) }

func hexOf(text string) string { return strings.TrimPrefix(string(id(text)), "sha256:") }

// put makes a layer with one file in it.
func put(t testing.TB, c Cache, id DiffID) {
	t.Helper()
	w, err := c.Begin(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(w.Dir, "file"), string(id))
	if err := publish(w); err != nil {
		t.Fatal(err)
	}
}

// publish is Publish of one layer of a block.
func publish(w *Writer) error {
	w.Disk = 4096
	return Publish(w)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// entries are the names in the directory of the cache.
func entries(t testing.TB, c Cache) []string {
	t.Helper()
	list, err := os.ReadDir(c.Dir())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}
