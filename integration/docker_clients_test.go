package integration

import (
	"strings"
	"testing"
)

// TestDockerBuildKit asks for BuildKit, which demesne does not speak: each version of Docker's client must fail with words that say
// what to do, and the classic builder must be what it takes when nothing is asked.
func TestDockerBuildKit(t *testing.T) {
	d := newDock(t)
	program(d, "curl")
	asks := "curl -s -w '%{http_code}\n' -X POST --unix-socket /run/docker.sock http://d/v1.44/"
	script := d.file("buildkit", `mkdir /tmp/b; cd /tmp/b; echo FROM local/bb >Dockerfile
DOCKER_BUILDKIT=1 docker build . >/tmp/log 2>&1 && echo built
env -u DOCKER_BUILDKIT docker build -q . 2>/dev/null
`+asks+"grpc; "+asks+"session; docker image prune -af; docker system prune -f", 0o644)
	r := d.demesne("run", "--docker", "--in", script, "--", "sh", "/in/buildkit")
	if !matches(r.stdout, "sha256:…DOCKER_BUILDKIT=0…501…DOCKER_BUILDKIT=0…501\nTotal reclaimed space: 0B\nTotal reclaimed space: 0B") {
		t.Errorf("%+v", r)
	}
	if r.stderr != "demesne: docker: BuildKit's protocol is not spoken here: set DOCKER_BUILDKIT=0\n" {
		t.Errorf("the caller reads, of several requests: %q", r.stderr)
	}
	if strings.Contains(r.stdout, "built") {
		t.Errorf("built: %+v", r)
	}
}
