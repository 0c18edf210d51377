package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestInstallers checks that tar and npm install on the default image, below the home directory, and that a
// persistent sandbox keeps what they installed.
func TestInstallers(t *testing.T) {
	b := newBox(t)
	for _, name := range []string{"tar", "npm"} {
		program(t, name)
	}
	b.file("npm/package.json", `{"name": "said", "version": "1.0.0", "bin": {"said-npm": "said.sh"}}`, 0o644)
	b.file("npm/said.sh", "#!/bin/sh\necho npm\n", 0o755)
	tar := b.dir + "/other.tar"
	if out, err := exec.Command("tar", "-C", b.dir+"/npm", "--owner=70000", "--group=70000", "--numeric-owner", "-cf", tar, "said.sh").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	os.Chmod(tar, 0o644)
	if got := b.sh("tar xf /in/other.tar && ls; echo $?", "--in", tar); got != "said.sh\n0\n" {
		t.Errorf("tar: %q", got)
	}
	id := strings.TrimSpace(b.demesne("create", "--in", b.dir+"/npm").stdout)
	defer b.demesne("rm", id)
	if r := b.demesne("exec", id, "-c", "cp -r /in/npm /tmp/npm && cd /tmp && tar czf npm.tgz npm && npm install -g --offline /tmp/npm.tgz >/dev/null && said-npm"); r.stdout != "npm\n" {
		t.Errorf("npm: %+v", r)
	}
	b.demesne("stop", id)
	if r := b.demesne("exec", id, "-c", "said-npm; command -v said-npm; echo $PIP_BREAK_SYSTEM_PACKAGES"); r.stdout != "npm\n/root/.local/bin/said-npm\n1\n" {
		t.Errorf("after a restart: %+v", r)
	}
	// An agent has a home of its own.
	if r := b.demesne("exec", "--env", "HOME=/home/agent", id, "-c", "npm install -g --offline /tmp/npm.tgz >/dev/null; command -v said-npm; python3 -m site --user-base; npm config get globalconfig"); !strings.HasPrefix(r.stdout, "/home/agent/.local/bin/said-npm\n/home/agent/.local\n") || exists("/usr/bin/node") && exists("/usr/etc/npmrc") && !exists("/usr/local/bin/node") && !strings.HasSuffix(r.stdout, "\n/usr/etc/npmrc\n") {
		t.Errorf("with another home: %+v", r)
	}
}

// TestMirrorsHandedIn checks that tools in a sandbox use the mirrors of the caller's tools, without passwords, where the
// network has package registries.
func TestMirrorsHandedIn(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "npm_config_registry=https://user:"+canary+"@npm.corp.test/all/", "GOPROXY=https://go.corp.test,direct")
	const show = `echo "$npm_config_registry $GOPROXY"`
	if r := b.demesne("run", "--egress", "package-managers", "-c", show); r.stdout != "https://npm.corp.test/all/ https://go.corp.test,direct\n" {
		t.Errorf("package-managers: %+v", r)
	}
	if r := b.demesne("run", "--egress", "package-managers", "--env", "GOPROXY=off", "-c", show); r.stdout != "https://npm.corp.test/all/ off\n" {
		t.Errorf("--env: %+v", r)
	}
	if r := b.demesne("run", "-c", show); r.stdout != " \n" {
		t.Errorf("without a network: %+v", r)
	}
}
