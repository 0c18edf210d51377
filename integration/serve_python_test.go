package integration

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// python returns a command of pytest in the virtual environment called name, with the tests of a directory.
func (b *box) python(s *apiServer, name, tests string, args ...string) *exec.Cmd {
	b.Helper()
	from := os.Getenv("DEMESNE_PYTHON")
	if from == "" {
		from = "/var/tmp/demesne-python"
	}
	if _, err := os.Stat(from + "/" + name + "/installed"); err != nil {
		need(b, false, "integration/clients/python/install.sh "+name)
	}
	dir := b.mkdir("python")
	files, err := os.ReadDir(tests)
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range files {
		if text, err := os.ReadFile(tests + "/" + f.Name()); err == nil && strings.HasSuffix(f.Name(), ".py") {
			b.file("python/"+f.Name(), string(text), 0o644)
		}
	}
	cmd := b.command(from+"/"+name+"/bin/python3", append([]string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", dir}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, "E2B_API_URL="+s.url, "E2B_SANDBOX_URL="+s.url, "E2B_VOLUME_API_URL="+s.url, "E2B_API_KEY="+s.key, "TMPDIR="+dir)
	return cmd
}

// TestServePython calls E2B's SDKs for Python. make python does so with an image, as E2B's sandboxes have one.
func TestServePython(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.base()
	api := s.serveAPI()
	cmd := s.python(api, "sdk", "clients/python")
	cmd.Env = append(cmd.Env, "DEMESNE_TEST_IMAGE=local/base")
	r := s.finish(cmd)
	if r.code != 0 {
		t.Errorf("exit %d\n%s%s\nserver: %s", r.code, r.stdout, r.stderr, api.said())
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	t.Log(lines[len(lines)-1])
	api.stop(syscall.SIGTERM)
	s.sweep()
}
