package integration

import (
	"os"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// publish puts a feature into the registry, with these files, and returns its name.
func (w *workspace) publish(name string, entries ...fixture.Entry) string {
	w.Helper()
	raw, err := fixture.Tar(entries...)
	if err != nil {
		w.Fatal(err)
	}
	return w.publishAs(name, fixture.FeatureType, raw)
}

func (w *workspace) publishAs(name, mediaType string, raw []byte) string {
	w.Helper()
	img, err := fixture.Artifact(mediaType, raw)
	if err == nil {
		err = w.reg.Push(name, img)
	}
	if err != nil {
		w.Fatal(err)
	}
	return w.reg.Ref(name)
}

// says is an install.sh that appends a line to /log.
func says(text string) fixture.Entry {
	return fixture.File("install.sh", "#!/bin/sh\necho \""+text+"\" >> /log\n")
}

// TestDevcontainerFeatures installs features of a registry and of a directory, in the order that they need, with their
// options, users and variables. A second run asks no registry, and the image records the digests.
func TestDevcontainerFeatures(t *testing.T) {
	w := newWorkspace(t, newGallery(t))
	lib := w.publish("f/lib:1", fixture.File("devcontainer-feature.json", `{"id": "lib", "version": "1.0.0"}`), says("lib"))
	tool := w.publish("f/tool:2", fixture.File("devcontainer-feature.json", `{"id": "tool", "version": "2.1.0", "dependsOn": {"`+lib+`": {}},
		"options": {"version": {"type": "string", "default": "latest"}, "with-extras": {"type": "boolean", "default": false}, "text": {"type": "string", "default": "d"}},
		"containerEnv": {"TOOL_HOME": "/opt/tool", "PATH": "/opt/tool/bin:${PATH}"}, "entrypoint": "/opt/tool/start.sh", "privileged": true,
		"mounts": [{"source": "tool-cache", "target": "/var/tool", "type": "volume"}], "postCreateCommand": "echo hook of tool in $PWD"}`),
		says(`tool $VERSION $WITH_EXTRAS $TEXT $_REMOTE_USER $_REMOTE_USER_HOME $_CONTAINER_USER $(id -u) $TOOL_HOME`), fixture.File("bin/helper", "x\n"))
	w.has(map[string]string{".devcontainer/devcontainer.json": `{"image": "local/go", "remoteUser": "vscode", "postCreateCommand": "echo own hook",
			"features": {"` + tool + `": {"version": "1.2", "with-extras": true, "text": "it's \"$HOME\" and\n<more>\nINSTALL"}, "./own": "3", "./first": {}},
			"overrideFeatureInstallOrder": ["./first"]}`,
		".devcontainer/own/devcontainer-feature.json":   `{"id": "own", "installsAfter": ["` + strings.TrimSuffix(tool, ":2") + `"], "options": {"version": {"default": "1"}}}`,
		".devcontainer/own/install.sh":                  "#!/bin/sh\necho own $VERSION >> /log\ntouch made-beside\n",
		".devcontainer/first/devcontainer-feature.json": `{"id": "first", /* a comment */}`, ".devcontainer/first/install.sh": "echo first >> /log\n"})
	const log = "first\nlib\ntool 1.2 true it's \"$HOME\" and\n<more>\nINSTALL vscode /home/vscode root 0 /opt/tool\nown 3\n"
	see := []string{"run", "--devcontainer=" + w.dir, "-c", "cat /log; echo $PATH $TOOL_HOME; ls /tmp /var/tool /run/devcontainer-feature; id -u"}
	r := w.do(see...)
	if !strings.HasPrefix(r.stdout, log+"/opt/tool/bin:/usr/local/bin:/bin /opt/tool\n") || r.code != 0 {
		t.Errorf("%+v", r)
	}
	for _, part := range []string{"hook of tool in /workspaces/app\nown hook\n", "feature " + tool + ": entrypoint: not executed", "privileged: ignored", "/var/tool is an empty directory"} {
		if !strings.Contains(r.stderr, part) {
			t.Errorf("stderr lacks %q:\n%s", part, r.stderr)
		}
	}
	if _, err := os.Stat(w.dir + "/.devcontainer/own/made-beside"); err == nil {
		t.Error("install.sh wrote into the workspace")
	}
	w.reg.Reset()
	if again := w.do(see...); !strings.HasPrefix(again.stdout, log) || len(w.reg.Requests()) > 0 {
		t.Errorf("again: %+v, %d requests", again, len(w.reg.Requests()))
	}
	w.pins(t, tool)
}

// pins checks that an image records the digest of a feature, and that a lock file decides.
func (w *workspace) pins(t *testing.T, tool string) {
	t.Helper()
	name := strings.TrimSuffix(tool, ":2")
	found := ""
	for _, blob := range names(w.store + "/blobs/sha256") {
		if text, err := os.ReadFile(w.store + "/blobs/sha256/" + blob); err == nil && len(text) < 100_000 && strings.Contains(string(text), "demesne.features") {
			found = string(text)
		}
	}
	_, digest, ok := strings.Cut(found, name+"@")
	if !ok {
		t.Fatalf("no image has the digest of %s: %s", name, found)
	}
	digest = digest[:len("sha256:")+64]
	w.publish("f/tool:2", fixture.File("devcontainer-feature.json", `{"id": "tool"}`), says("new"))
	file := map[string]string{".devcontainer/devcontainer.json": `{"image": "local/go", "features": {"` + tool + `": {}}}`,
		".devcontainer/devcontainer-lock.json": `{"features": {"` + tool + `": {"version": "2.1.0", "resolved": "` + name + "@" + digest + `", "integrity": "` + digest + `"}}}`}
	w.has(file)
	run := []string{"run", "--devcontainer=" + w.dir, "--pull", "always", "--", "cat", "/log"}
	file[".devcontainer/devcontainer.json"] = strings.Replace(file[".devcontainer/devcontainer.json"], "local/go", w.reg.Ref("base:1"), 1)
	w.ok("push", "--tls-verify=false", "local/go", w.reg.Ref("base:1"))
	w.has(file)
	if got := w.ok(run...); !strings.HasPrefix(got, "lib\ntool latest false d root /root root 0 /opt/tool\n") {
		t.Errorf("pinned: %q", got)
	}
	delete(file, ".devcontainer/devcontainer-lock.json")
	w.has(file)
	if got := w.ok(run...); got != "new\n" {
		t.Errorf("with --pull always: %q", got)
	}
}

// TestDevcontainerFeaturesOverBuild installs a feature over an image that the file builds, whose user stays.
func TestDevcontainerFeaturesOverBuild(t *testing.T) {
	needIDs(t)
	w := newWorkspace(t, newGallery(t))
	w.has(map[string]string{".devcontainer/devcontainer.json": `{"build": {"dockerfile": "Dockerfile"}, "features": {"./f": {}}}`,
		".devcontainer/Dockerfile":                  "FROM local/node\nRUN echo base > /log\nUSER node\n",
		".devcontainer/f/devcontainer-feature.json": `{"id": "f"}`, ".devcontainer/f/install.sh": "echo $_REMOTE_USER $_CONTAINER_USER $(id -u) >> /log\n"})
	if got := w.ok("run", "--devcontainer="+w.dir+":ro", "-c", "cat /log; id -u"); got != "base\nnode node 0\n1000\n" {
		t.Errorf("%q", got)
	}
}

// TestDevcontainerFeaturesHostile checks features of strangers that are wrong.
func TestDevcontainerFeaturesHostile(t *testing.T) {
	w := newWorkspace(t, newGallery(t))
	description := fixture.File("devcontainer-feature.json", `{"id": "x"}`)
	big, err := fixture.Tar(description, says("x"))
	if err != nil {
		t.Fatal(err)
	}
	many := []fixture.Entry{description, says("x")}
	for range 10_001 {
		many = append(many, fixture.File("f", ""))
	}
	secret := w.file("secret", "hunter2\n", 0o600)
	for _, c := range []struct{ name, feature, says string }{
		{"another type", w.publishAs("h/type:1", "application/vnd.oci.image.layer.v1.tar", big), "not a feature"},
		{"no archive", w.publishAs("h/noise:1", fixture.FeatureType, []byte(strings.Repeat("x", 2000))), "read \"sha256:"},
		{"a cut archive", w.publishAs("h/cut:1", fixture.FeatureType, big[:300]), "unexpected EOF"},
		{"no description", w.publish("h/none:1", says("x")), "has no devcontainer-feature.json"},
		{"a link as description", w.publish("h/link:1", fixture.Link("devcontainer-feature.json", "/etc/passwd"), says("x")), "not a regular file"},
		{"a bad description", w.publish("h/bad:1", fixture.File("devcontainer-feature.json", `{"id": 3`), says("x")), "devcontainer-feature.json: line 2"},
		{"many files", w.publish("h/many:1", many...), "more than 10000 files"},
		{"no install.sh", w.publish("h/install:1", description), "has no install.sh"},
		{"a failing install.sh", w.publish("h/fails:1", description, fixture.File("install.sh", "exit 7\n")), "install.sh: exit 7"},
		{"a bad variable", w.publish("h/env:1", fixture.File("devcontainer-feature.json", `{"id": "x", "containerEnv": {"A": "1\nRUN touch /pwned"}}`), says("x")), "not a variable of an image"},
		{"a bad name of a variable", w.publish("h/name:1", fixture.File("devcontainer-feature.json", `{"id": "x", "containerEnv": {"A B": "1"}}`), says("x")), "not a variable of an image"},
		{"a mount of this machine", w.publish("h/mount:1", fixture.File("devcontainer-feature.json", `{"id": "x", "mounts": ["source=/root,target=/h,type=bind"]}`), says("x")), "outside of the workspace"},
		{"itself", w.publish("h/self:1", fixture.File("devcontainer-feature.json", `{"id": "x", "dependsOn": {"`+w.reg.Ref("h/self:1")+`": {}}}`), says("x")), "wait for each other"},
		{"an endless chain", w.publish("h/chain:1", fixture.File("devcontainer-feature.json", `{"id": "x", "dependsOn": {"./chain": {}}}`), says("x")), "no such file"},
		{"an unknown feature", w.reg.Ref("h/unknown:1"), "not found"},
		{"an address", "https://example.test/feature.tgz", "not supported"},
		{"no registry", "go", "names no registry"},
		{"a directory above", "../../secret", "outside of the directory"},
		{"a directory of this machine", secret, "outside of the directory"},
		{"a link out", "./out", "escapes"},
		{"a description by a link", "./linked", "escapes"},
		{"no directory", "./none", "no such file"},
		{"a digest", w.reg.Ref("h/install") + "@sha256:" + strings.Repeat("0", 64), "not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.has(map[string]string{".devcontainer/devcontainer.json": `{"image": "local/bb", "features": {"` + c.feature + `": {}}}`, ".devcontainer/linked/install.sh": "true\n"})
			for at, to := range map[string]string{"out": "../..", "linked/devcontainer-feature.json": secret} {
				if err := os.Symlink(to, w.dir+"/.devcontainer/"+at); err != nil {
					t.Fatal(err)
				}
			}
			r := w.do("run", "--devcontainer="+w.dir, "--", "true")
			if r.code == 0 || r.stdout != "" || !strings.Contains(r.stderr, c.says) || strings.Contains(r.stderr, "hunter2") {
				t.Errorf("exit %d\nstderr: %s\nwant %q", r.code, short(r.stderr), c.says)
			}
		})
	}
}
