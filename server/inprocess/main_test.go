package inprocess_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain starts a server for the tests, in directories of its own. They find it by the variables DEMESNE_URL and
// DEMESNE_TOKEN, which the package itself does not read.
func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := surroundings()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	stop, err := serve()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// surroundings makes the directories of the tests, and names them in the environment. The programs are in DEMESNE_BIN, or from
// make build.
func surroundings() (dir string, err error) {
	bin := os.Getenv("DEMESNE_BIN")
	if bin == "" {
		if bin, err = filepath.Abs("../../bin"); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(bin + "/demesne-frontend"); err != nil {
		return "", fmt.Errorf("make build, or name the programs' directory in DEMESNE_BIN: %w", err)
	}
	if dir, err = os.MkdirTemp("/tmp", "dc"); err != nil { // short: a socket's path has at most 108 bytes
		return "", err
	}
	os.Chmod(dir, 0o755)
	os.Mkdir(dir+"/run", 0o700)
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "DEMESNE_") {
			os.Unsetenv(name)
		}
	}
	for name, value := range map[string]string{
		"HOME": dir, "XDG_RUNTIME_DIR": dir + "/run", "DEMESNE_SANDBOX_ROOT": dir + "/kept", "DEMESNE_LIBEXEC": bin, "DEMESNE_LINGER": "0s", "DEMESNE_POOL_SIZE": "0",
	} {
		os.Setenv(name, value)
	}
	return dir, nil
}

// serve starts a server on a port that the kernel chooses. stop ends it, and reports sandboxes that are left.
func serve() (stop func() error, err error) {
	bin := os.Getenv("DEMESNE_LIBEXEC")
	policy := os.Getenv("HOME") + "/host.toml"
	if err := os.WriteFile(policy, []byte(`allow = ["echo *"]`), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(bin+"/demesne-frontend", "serve", "--http", "127.0.0.1:0", "--host-policy", policy)
	errs, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(errs)
	var said strings.Builder
	at := regexp.MustCompile(`listening on (http://\S+)`)
	for lines.Scan() && os.Getenv("DEMESNE_URL") == "" {
		fmt.Fprintln(&said, lines.Text())
		if m := at.FindStringSubmatch(lines.Text()); m != nil {
			os.Setenv("DEMESNE_URL", m[1])
			break
		}
	}
	if os.Getenv("DEMESNE_URL") == "" {
		return nil, fmt.Errorf("the server ended: %s: %w", said.String(), cmd.Wait())
	}
	go func() {
		for lines.Scan() {
			fmt.Fprintln(os.Stderr, lines.Text())
		}
	}()
	token, err := os.ReadFile(os.Getenv("HOME") + "/.demesne/server/token")
	os.Setenv("DEMESNE_TOKEN", strings.TrimSpace(string(token)))
	return func() error {
		left, err := exec.Command(bin+"/demesne", "ls", "-q").CombinedOutput()
		cmd.Process.Signal(syscall.SIGTERM)
		done := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
		defer done.Stop()
		cmd.Wait()
		if err != nil || len(left) > 0 {
			return fmt.Errorf("left behind: %s: %v", left, err)
		}
		return nil
	}, err
}
