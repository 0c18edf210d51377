package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/runner"
	"demesne/runner/ipc"
)

func parse(t *testing.T, name string) imageref.Ref {
	t.Helper()
	ref, err := ParseImage(name)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// never is for bases that need no store.
func never() (*images.Client, error) { panic("opens a store") }

func TestFindWithoutStore(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(dir+"/root", 0o755), os.Symlink("root", link), os.WriteFile(dir+"/file", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, rootfs, wrong string }{
		{"host", "", ""},
		{"dir:" + dir + "/root", dir + "/root", ""},
		{"dir:" + link, dir + "/root", ""},
		{"dir:" + dir + "/none", "", "no such file or directory"},
		{"dir:" + dir + "/file", "", "is not a directory"},
	} {
		g, err := findRoot(t.Context(), never, parse(t, c.name), wanted{}, nil)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		spec := runner.Spec{}
		g.fill(&spec, "nobody")
		g.release()
		got := ""
		if spec.Rootfs != nil {
			got = spec.Rootfs.Dir
		}
		if got != c.rootfs || spec.Image != c.name {
			t.Errorf("%s: %+v", c.name, spec)
		}
	}
}

func TestFindUnknown(t *testing.T) {
	store, err := images.Open(t.TempDir() + "/images")
	if err != nil {
		t.Fatal(err)
	}
	open := func() (*images.Client, error) { return &images.Client{Store: store, Program: "/nonexistent"}, nil }
	g, err := findRoot(t.Context(), open, parse(t, "pyhton"), wanted{}, nil)
	g.release()
	if err == nil || !strings.Contains(err.Error(), `image "pyhton": unknown (did you mean "python"? known: host, `) {
		t.Errorf("%v", err)
	}
	if _, err := findRoot(t.Context(), open, parse(t, "debian:12"), wanted{pull: images.PullNever}, nil); !errors.Is(err, images.ErrNotFound) {
		t.Errorf("never pulled: %v", err)
	}
	broken := errors.New("no home")
	if _, err := findRoot(t.Context(), func() (*images.Client, error) { return nil, broken }, parse(t, "debian:12"), wanted{}, nil); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func TestBaseRootfs(t *testing.T) {
	store, err := images.Open(t.TempDir() + "/images")
	if err != nil {
		t.Fatal(err)
	}
	g := &rootImage{ref: parse(t, "debian:12"), client: &images.Client{Store: store}, image: &images.Image{
		Digest: "sha256:d", Layers: []oci.Layer{{DiffID: "sha256:1"}, {DiffID: "sha256:2"}},
		Config: oci.Config{User: "app", WorkingDir: "srv", Env: []string{"A=1", "D="}},
	}}
	spec := runner.Spec{}
	g.fill(&spec, "")
	r := spec.Rootfs
	if r.User != "app" || r.WorkingDir != "/srv" || strings.Join(r.Env, " ") != "A=1 D=" || strings.Join(r.Layers, " ") != "sha256:1 sha256:2" || r.Store != store.Dir() {
		t.Errorf("%+v", r)
	}
	g.fill(&spec, "other")
	if spec.Rootfs.User != "other" {
		t.Errorf("user %q", spec.Rootfs.User)
	}
}

// TestBaseMake checks that only missing layers of an image cause an unpack.
func TestBaseMake(t *testing.T) {
	missing := ipc.Errorf(ipc.CodeMissing, "layers")
	for _, c := range []struct {
		name string
		err  error
	}{{"made", nil}, {"refused", ipc.Errorf(ipc.CodeInvalid, "no")}, {"missing, but no image", missing}} {
		calls := 0
		err := new(rootImage).make(t.Context(), runner.Spec{}, nil, func(context.Context, runner.Spec) error {
			calls++
			return c.err
		})
		var e *ipc.Error
		if calls != 1 || c.err != nil && !errors.As(err, &e) {
			t.Errorf("%s: %d calls, %v", c.name, calls, err)
		}
	}
}

func TestSignalNumber(t *testing.T) {
	for s, want := range map[string]int{
		"": 0, "SIGTERM": 15, "TERM": 15, "15": 15, "sigint": 2, "SIGQUIT": 3, "SIGRTMIN+3": 37, "RTMIN": 34, "SIGRTMIN+99": 0, "SIGRTMINx": 0,
		"SIGNONE": 0, "-1": 0, "65": 0, "9999999999999999999": 0, "SIGTERM\n": 0,
	} {
		if got := signalNumber(s); got != want {
			t.Errorf("%q: %d, want %d", s, got, want)
		}
	}
}
