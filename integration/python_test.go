package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// copyDir copies a directory of the repository, which the user of the box may be unable to read.
func (b *box) copyDir(from, to string) {
	b.Helper()
	if err := os.CopyFS(b.mkdir(to), os.DirFS(from)); err != nil {
		b.Fatal(err)
	}
}

// TestPythonPackage runs the tests of the package demesne for Python, which starts a server. The server ends after the tests.
func TestPythonPackage(t *testing.T) {
	b := newBox(t)
	b.copyDir("../python/src/demesne", "src/demesne")
	b.copyDir("../python/tests", "tests")
	cmd := b.pytest("sdk", b.dir+"/tests")
	cmd.Env = append(cmd.Env, "DEMESNE_BIN="+filepath.Join(bin, "demesne"), "PYTHONPATH="+b.dir+"/src")
	r := b.finish(cmd)
	if r.code != 0 {
		t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	t.Log(lines[len(lines)-1])
	eventually(t, "the server to end", func() bool { return len(descendants()) == 0 })
}
