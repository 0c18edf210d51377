package integration

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestBuildForeign checks that skopeo, umoci and podman take a built image, in the formats of OCI and of docker.
func TestBuildForeign(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.base()
	s.put("f", "from the context\n")
	s.build(`FROM local/base
RUN echo one > /one && chown alice /one
COPY --chown=7:8 --chmod=640 f /f
USER alice
WORKDIR /work
ENV WHO="a b"
LABEL l=1
EXPOSE 80
VOLUME /v
ENTRYPOINT ["/bin/sh", "-c"]
CMD ["id -u; pwd; echo $WHO; cat /one; stat -c %u:%g:%a /f"]
`, "-t", "local/app")
	const want = "1000\n/work\na b\none\n7:8:640\n"
	skopeo, umoci := program(t, "skopeo"), program(t, "umoci")
	t.Cleanup(func() { os.RemoveAll(s.home + "/.local") }) // skopeo's, for an ordinary user
	must := func(name string, args ...string) string {
		t.Helper()
		r := s.finish(s.command(name, args...))
		if r.code != 0 {
			t.Fatalf("%s %q: %+v", name, args, r)
		}
		return r.stdout
	}
	for _, format := range []string{"oci", "docker"} {
		file := s.dir + "/" + format + ".tar"
		s.ok("save", "local/app", "-o", file, "--format", format)
		from := format + "-archive:" + file
		var got struct {
			Architecture string
			Layers       []string
			Labels       map[string]string
			Env          []string
		}
		if err := json.Unmarshal([]byte(must(skopeo, "inspect", from)), &got); err != nil {
			t.Fatal(err)
		}
		if got.Architecture == "" || len(got.Layers) < 4 || got.Labels["l"] != "1" || !slices.Contains(got.Env, "WHO=a b") {
			t.Errorf("%s: %+v", format, got)
		}
		layout := s.mkdir("layout") + "/" + format
		must(skopeo, "copy", "-q", from, "oci:"+layout+":app")
		if tags := must(umoci, "ls", "--layout", layout); strings.TrimSpace(tags) != "app" {
			t.Errorf("%s: umoci ls: %q", format, tags)
		}
		must(umoci, "stat", "--image", layout+":app")
		if os.Getuid() == 0 {
			s.podman(t, from, want)
		}
	}
}

// podman loads an image and runs its command.
func (s *site) podman(t *testing.T, from, want string) {
	t.Helper()
	podman := program(t, "podman")
	run := func(args ...string) result {
		base := []string{"--root", s.mkdir("podman/root"), "--runroot", s.mkdir("podman/run"), "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--runtime", "runc", "--events-backend", "none"}
		return s.finish(s.command(podman, slices.Concat(base, args)...))
	}
	r := run("pull", "-q", from)
	if r.code != 0 {
		t.Fatalf("podman pull %s: %+v", from, r)
	}
	id := strings.TrimSpace(r.stdout)
	r = run("run", "--rm", "--network", "none", "--log-driver", "none", "--ulimit", "nofile=256:256", "--ulimit", "nproc=256:256", "--pull", "never", id)
	if r.code != 0 || r.stdout != want {
		t.Errorf("podman run %s: %+v\nwant %q", from, r, want)
	}
	run("rmi", "-af")
}
