package integration

import (
	"os"
	"strings"
	"testing"
)

// TestDevcontainerCompose runs projects whose devcontainer.json names a compose file of one service, with an image and with
// a build. What a service has beside that is refused by its name and line.
func TestDevcontainerCompose(t *testing.T) {
	needIDs(t)
	w := newWorkspace(t, newGallery(t))
	file := `{"dockerComposeFile": "docker-compose.yml", "service": "app", "workspaceFolder": "/workspaces/${localWorkspaceFolderBasename}", "postCreateCommand": "echo hook in $PWD"}`
	build := `# The service of the project.
version: '3.8'
services:
  app:
    build:
      context: ..
      dockerfile: .devcontainer/Dockerfile
      args: {VARIANT: "12", WHO: "${WHO:-nobody}"}
    environment:
      - "GREETING=hello: there"
      - TOKEN
    volumes:
      - ../..:/workspaces:cached
      - cache:/var/cache/app
    command: sleep infinity
volumes:
  cache:
`
	w.has(map[string]string{".devcontainer/devcontainer.json": file, ".devcontainer/docker-compose.yml": build, "main.c": "int main;\n",
		".devcontainer/Dockerfile": "FROM local/go\nARG VARIANT\nARG WHO\nCOPY main.c /\nRUN echo $VARIANT $WHO > /variant\n"})
	w.extra = append(w.extra, "WHO=told", "TOKEN=hunter2")
	script := "cat /variant main.c; echo $GREETING $TOKEN; ls /var/cache/app; touch made; pwd"
	r := w.do("run", "--devcontainer="+w.dir, "-c", script)
	if r.code != 0 || r.stdout != "12 nobody\nint main;\nhello: there\n/workspaces/app\n" {
		t.Errorf("%+v", r)
	}
	for _, part := range []string{"hook in /workspaces/app\n", "TOKEN is not given; demesne run --env TOKEN gives it", "only the workspace is mounted", "command: not executed"} {
		if !strings.Contains(r.stderr, part) {
			t.Errorf("stderr lacks %q:\n%s", part, r.stderr)
		}
	}
	if _, err := os.Stat(w.dir + "/made"); err != nil {
		t.Error(err)
	}
	if got := w.ok("run", "--devcontainer="+w.dir, "--env", "TOKEN", "--env", "WHO", "-c", "cat /variant; echo $TOKEN"); got != "12 told\nhunter2\n" {
		t.Errorf("with variables: %q", got)
	}
	image := "services:\n  app:\n    image: local/node\n    user: node\n    working_dir: /srv\n    volumes:\n      - ..:/srv:ro\n"
	w.has(map[string]string{".devcontainer/devcontainer.json": `{"dockerComposeFile": ["docker-compose.yml"], "features": {"./f": {}}}`, ".devcontainer/docker-compose.yml": image,
		".devcontainer/f/devcontainer-feature.json": "{}", ".devcontainer/f/install.sh": "echo $_REMOTE_USER > /feature\n"})
	if got := w.ok("run", "--devcontainer="+w.dir, "-c", "pwd; id -u; cat /feature; touch x 2>/dev/null || echo read-only"); got != "/srv\n1000\nnode\nread-only\n" {
		t.Errorf("an image with a feature: %q", got)
	}
	for add, says := range map[string]string{
		"    privileged: true\n":          `docker-compose.yml": line 8: services: app: privileged: not supported`,
		"    network_mode: host\n":        "network_mode: not supported",
		"      - /:/host\n":               `line 8: volumes: "/" is outside of the workspace`,
		"  db:\n    image: local/bb\n":    "several services: app, db: a sandbox is one environment",
		"    env_file: ../../secret\n":    "env_file: not supported",
		"    build: ../..\n":              "outside of the workspace",
		"    command: *anchor\n":          "an alias is not supported",
		"    environment: {A: \"\\0\"}\n": "an escape that is not supported",
	} {
		w.file("app/.devcontainer/docker-compose.yml", image+add, 0o644)
		w.told(t, says, "run", "--devcontainer="+w.dir, "--", "true")
	}
	os.Remove(w.dir + "/.devcontainer/docker-compose.yml")
	if err := os.Symlink(w.file("secret", "hunter2\n", 0o600), w.dir+"/.devcontainer/docker-compose.yml"); err != nil {
		t.Fatal(err)
	}
	w.told(t, "escapes", "run", "--devcontainer="+w.dir, "--", "true")
}

// TestDevcontainerUnfilled checks that an unfilled template is named, and that its words reach no command.
func TestDevcontainerUnfilled(t *testing.T) {
	w := newWorkspace(t, newGallery(t))
	w.has(map[string]string{".devcontainer/devcontainer.json": `{"image": "local/${templateOption:imageVariant}"}`})
	w.told(t, "${templateOption:imageVariant} is not filled inhint: the file is a template: write the value in its place", "run", "--devcontainer="+w.dir, "--", "true")
	w.has(map[string]string{".devcontainer/devcontainer.json": `{"image": "local/bb:${localEnv:TAG}"}`})
	w.told(t, "${localEnv:TAG} is not filled inhint: --env TAG gives it", "run", "--devcontainer="+w.dir, "--", "true")
	w.has(map[string]string{".devcontainer/devcontainer.json": `{"build": {"dockerfile": "D", "args": {"WHO": "${templateOption:who}"}}, "containerEnv": {"A": "x${templateOption:a}${UNKNOWN}y", "B": "${localEnv:B}"}}`,
		".devcontainer/D": "FROM local/bb\nARG WHO\nRUN echo \"<$WHO>\" > /who\n"})
	r := w.do("run", "--devcontainer="+w.dir, "-c", "cat /who; echo $A,$B")
	if r.code != 0 || r.stdout != "<>\nxy,\n" {
		t.Errorf("%+v", r)
	}
	for _, part := range []string{"${templateOption:who}: not filled in: left out; the file is a template", "${templateOption:a}: not filled in", "${UNKNOWN}: not filled in: left out", "${localEnv:B}: not given"} {
		if !strings.Contains(r.stderr, part) {
			t.Errorf("stderr lacks %q:\n%s", part, r.stderr)
		}
	}
}
