package client_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain starts a server for the examples, which find it by the variables DEMESNE_URL and DEMESNE_TOKEN. The package itself
// does not read them. A copy of this module without demesne's programs leaves the examples out.
func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	bin, err := programs()
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
		fmt.Fprintln(os.Stderr, "no examples:", err)
		flag.Set("test.skip", "^Example")
		return m.Run()
	}
	var stop func() error
	if err == nil {
		stop, err = serve(bin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start server:", err)
		return 1
	}
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "end server:", err)
		return 1
	}
	return code
}

// programs returns the directory of demesne's programs: DEMESNE_BIN, or bin/.
func programs() (string, error) {
	bin := os.Getenv("DEMESNE_BIN")
	if bin == "" {
		bin = "../bin"
	}
	bin, err := filepath.Abs(bin)
	if err == nil {
		_, err = os.Stat(bin + "/demesne")
	}
	return bin, err
}

// serve starts a server with directories of its own, on a port that the kernel chooses. stop ends it.
func serve(bin string) (stop func() error, err error) {
	home, err := os.MkdirTemp("/tmp", "dc") // short: a socket's path has at most 108 bytes
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(home)
		}
	}()
	policy := home + "/host.toml"
	if err := errors.Join(os.Chmod(home, 0o755), os.Mkdir(home+"/run", 0o700), os.WriteFile(policy, []byte(`allow = ["echo *"]`), 0o600)); err != nil {
		return nil, err
	}
	cmd := exec.Command(bin+"/demesne", "serve", "--http", "127.0.0.1:0", "--host-policy", policy)
	cmd.Env = append(environ(), "HOME="+home, "XDG_RUNTIME_DIR="+home+"/run", "DEMESNE_SANDBOX_ROOT="+home+"/kept",
		"DEMESNE_LIBEXEC="+bin, "DEMESNE_LINGER=0s", "DEMESNE_POOL_SIZE=0")
	errs, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	url, err := address(errs)
	if err != nil {
		return nil, errors.Join(err, cmd.Wait())
	}
	token, err := os.ReadFile(home + "/.demesne/server/token")
	os.Setenv("DEMESNE_URL", url)
	os.Setenv("DEMESNE_TOKEN", strings.TrimSpace(string(token)))
	return func() error {
		cmd.Process.Signal(syscall.SIGTERM)
		defer time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() }).Stop()
		return errors.Join(cmd.Wait(), os.RemoveAll(home))
	}, err
}

// environ returns the environment without demesne's own variables.
func environ() (kept []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "DEMESNE_") {
			kept = append(kept, e)
		}
	}
	return kept
}

// address returns the address that a server prints. It prints later lines to stderr.
func address(from io.Reader) (string, error) {
	lines, said := bufio.NewScanner(from), []string{"the server ended:"}
	at := regexp.MustCompile(`listening on (http://\S+)`)
	for lines.Scan() {
		if m := at.FindStringSubmatch(lines.Text()); m != nil {
			go io.Copy(os.Stderr, from)
			return m[1], nil
		}
		said = append(said, lines.Text())
	}
	return "", errors.New(strings.Join(said, "\n"))
}
