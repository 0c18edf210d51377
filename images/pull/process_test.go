package pull

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
)

// child describes a pull that a child process performs. It is passed in the environment.
type child struct{ Ref, Store, Certs, Tmpfs string }

const childEnv = "DEMESNE_TEST_PULL"

// runChild is the main function of such a process.
func runChild(spec string) error {
	var c child
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		return err
	}
	if c.Tmpfs != "" {
		if err := syscall.Mount("tmpfs", c.Store, "tmpfs", 0, "size="+c.Tmpfs); err != nil {
			return fmt.Errorf("mount: %w", err)
		}
		c.Store += "/store"
	}
	store, err := images.Open(c.Store)
	if err != nil {
		return err
	}
	ref, err := imageref.Parse(c.Ref)
	if err != nil {
		return err
	}
	o := Options{Store: store, Transfer: Transfer{Backoff: time.Millisecond}}
	if c.Certs != "" {
		o.System = config(c.Certs)
	}
	_, err = Image(context.Background(), ref, o)
	if c.Tmpfs == "" {
		return err
	}
	return full(store, ref, o, err)
}

// full checks a store whose disk is full, frees space and pulls again.
func full(store *images.Store, ref imageref.Ref, o Options, err error) error {
	if Classify(err) != events.CodeNoSpace {
		return fmt.Errorf("%w is %q", err, Classify(err))
	}
	bad, err := store.Verify(context.Background())
	left, err2 := filepath.Glob(filepath.Join(store.Dir(), "partial", "*"))
	if err := errors.Join(err, err2); err != nil || len(bad)+len(left) > 0 {
		return fmt.Errorf("damaged: %v; left: %v; %w", bad, left, err)
	}
	if err := syscall.Mount("tmpfs", filepath.Dir(store.Dir()), "tmpfs", syscall.MS_REMOUNT, "size=100m"); err != nil {
		return fmt.Errorf("remount: %w", err)
	}
	_, err = Image(context.Background(), ref, o)
	return err
}

func (c child) command(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	spec, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childEnv+"="+string(spec)), env...)
	return cmd
}

// TestPullNoSpace checks that a full disk is reported, and that a failed pull frees its space. With more
// space the next pull succeeds.
func TestPullNoSpace(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 2<<20, 1))
	cmd := child{Ref: ref.Given, Store: t.TempDir(), Certs: r.trust(t).DockerPerHostCertDirPath, Tmpfs: "1m"}.command(t)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestPullTwice checks that two processes that pull the same image fetch each layer once.
func TestPullTwice(t *testing.T) {
	r := newRegistry(t)
	img := anImage(t, runtime.GOARCH, 1<<20, 4)
	ref := r.push(t, "o/n:1", img)
	c := child{Ref: ref.Given, Store: t.TempDir(), Certs: r.trust(t).DockerPerHostCertDirPath}
	r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		if strings.Contains(req.URL.Path, "/blobs/") {
			time.Sleep(20 * time.Millisecond) // so that both processes want each layer at the same time
		}
		next.ServeHTTP(w, req)
	})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if out, err := c.command(t).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	holds(t, openStore(t, c.Store), ref, img)
	if n, _ := r.count("GET", "/blobs/"); n != 5 {
		t.Errorf("%d blobs were asked for, not 4 layers and the configuration", n)
	}
}

// TestPullEnvironment checks that a process finds the user's configuration in the same places as podman and
// docker. These are registries.conf, certs.d, config.json and the proxy variables.
func TestPullEnvironment(t *testing.T) {
	r := newRegistry(t)
	img := anImage(t, runtime.GOARCH, 1000, 1)
	r.push(t, "o/n:1", img)
	r.behave(basic)
	proxy, tunnels := newProxy(t, r.host)
	home := t.TempDir()
	for path, text := range map[string]string{
		"config/containers/registries.conf":              "unqualified-search-registries = [\"registry.test\"]\n",
		"config/containers/policy.json":                  `{"default":[{"type":"insecureAcceptAnything"}]}`,
		"config/containers/certs.d/registry.test/ca.crt": r.pem(),
		"docker/config.json":                             auth("registry.test", "secret"),
	} {
		path = filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, text)
	}
	c := child{Ref: "o/n:1", Store: t.TempDir()}
	cmd := c.command(t, "HOME="+home, "XDG_CONFIG_HOME="+home+"/config", "XDG_RUNTIME_DIR="+home, "DOCKER_CONFIG="+home+"/docker",
		"HTTPS_PROXY="+proxy, "NO_PROXY=", "REGISTRY_AUTH_FILE=", "CONTAINERS_REGISTRIES_CONF=", "CONTAINERS_POLICY_JSON=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	holds(t, openStore(t, c.Store), parseRef(t, "o/n:1"), img)
	if tunnels.Load() == 0 {
		t.Error("the proxy was not used")
	}
}

// pem returns the registry's certificate.
func (r *aRegistry) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}))
}

// newProxy returns a proxy that connects every tunnel to one address.
func newProxy(t *testing.T, to string) (url string, tunnels *atomic.Int64) {
	t.Helper()
	tunnels = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		up, err := net.Dial("tcp", to)
		if err != nil || req.Method != http.MethodConnect {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer up.Close()
		w.WriteHeader(http.StatusOK)
		down, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer down.Close()
		tunnels.Add(1)
		go func() {
			_, _ = io.Copy(up, buffered)
			up.Close()
		}()
		_, _ = io.Copy(down, up)
	}))
	t.Cleanup(s.Close)
	return s.URL, tunnels
}
