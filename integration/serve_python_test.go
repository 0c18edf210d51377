package integration

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// python returns a command of the virtual environment called name.
func (b *box) python(name string, args ...string) *exec.Cmd {
	b.Helper()
	from := os.Getenv("DEMESNE_PYTHON")
	if from == "" {
		from = "/var/tmp/demesne-python"
	}
	if _, err := os.Stat(from + "/" + name + "/installed"); err != nil {
		need(b, false, "integration/clients/python/install.sh "+name)
	}
	cmd := b.command(from+"/"+name+"/bin/python3", args...)
	cmd.Env = append(cmd.Env, "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// pytest returns a command that runs tests in the virtual environment called name.
func (b *box) pytest(name, tests string) *exec.Cmd {
	b.Helper()
	cmd := b.python(name, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", tests)
	cmd.Dir = tests
	return cmd
}

// TestServePython calls the server by E2B's SDKs for Python. make python runs the same tests on an image like E2B's.
func TestServePython(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.base()
	api := s.serveAPI()
	s.copyDir("clients/python", "python")
	cmd := s.pytest("sdk", s.dir+"/python")
	cmd.Env = append(cmd.Env, "E2B_API_URL="+api.url, "E2B_SANDBOX_URL="+api.url, "E2B_VOLUME_API_URL="+api.url, "E2B_API_KEY="+api.key, "DEMESNE_TEST_IMAGE=local/base")
	r := s.finish(cmd)
	if r.code != 0 {
		t.Errorf("exit %d\n%s%s\nserver: %s", r.code, r.stdout, r.stderr, api.said())
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	t.Log(lines[len(lines)-1])
	api.stop(syscall.SIGTERM)
	s.sweep()
}
