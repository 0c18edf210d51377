package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// workspace is a project with a devcontainer.json.
type workspace struct {
	*site
	dir string
}

// newWorkspace imports the bases of the projects. Each has the tools that its hooks call, as scripts, and a user.
func newWorkspace(t testing.TB, g *gallery) *workspace {
	t.Helper()
	s := newSite(t, g)
	for _, base := range []struct{ name, user, tools string }{
		{"go", "vscode", "go sudo"}, {"node", "node", "npm yarn corepack"}, {"python", "vscode", "pip pip3 pre-commit"},
		{"rust", "vscode", "cargo rustc rustup"}, {"cpp", "vscode", "cmake vcpkg"},
	} {
		file := "FROM local/bb\nENV PATH=/usr/local/bin:/bin\nRUN mkdir -p /usr/local/bin /home/" + base.user + "\n" +
			"RUN echo " + base.user + ":x:1000:1000::/home/" + base.user + ":/bin/sh >> /etc/passwd\n"
		for tool := range strings.FieldsSeq(base.tools) {
			file += "RUN echo 'echo " + tool + " \"$@\"' > /usr/local/bin/" + tool + " && chmod 755 /usr/local/bin/" + tool + "\n"
		}
		s.build(file, "-q", "-t", "local/"+base.name)
	}
	return &workspace{s, s.mkdir("app")}
}

// has replaces the workspace by these files.
func (w *workspace) has(files map[string]string) {
	w.Helper()
	if err := os.RemoveAll(w.dir); err != nil {
		w.Fatal(err)
	}
	w.mkdir("app")
	for name, text := range files {
		if dir := filepath.Dir(name); dir != "." {
			w.mkdir("app/" + dir)
		}
		w.file("app/"+name, text, 0o644)
	}
}

// TestDevcontainerShapes runs the files of ten usual projects. Their images are local ones.
func TestDevcontainerShapes(t *testing.T) {
	w := newWorkspace(t, newGallery(t))
	for _, c := range []struct {
		name   string
		files  map[string]string
		flags  []string
		script string
		want   string   // stdout
		says   []string // parts of stderr
	}{
		{name: "go", files: map[string]string{".devcontainer/devcontainer.json": `// For format details, see the reference.
{
	"name": "Go",
	"image": "local/go",
	// "features": {},
	"customizations": {"vscode": {"settings": {}, "extensions": ["streetsidesoftware.code-spell-checker"]}},
	"postCreateCommand": "go version",
	// "remoteUser": "root"
}`}, script: "pwd; id -u", want: "/workspaces/app\n0\n", says: []string{"go version\n"}},
		{name: "node", files: map[string]string{"package.json": "{}", ".devcontainer/devcontainer.json": `{
	"name": "Node.js",
	"image": "local/node",
	"forwardPorts": [3000, "db:5432"],
	"portsAttributes": {"3000": {"label": "app", "onAutoForward": "openPreview"}},
	"postCreateCommand": "yarn install --frozen-lockfile",
	"remoteUser": "node"
}`}, script: "echo $HOME; touch made", want: "/home/node\n", says: []string{
			"yarn install --frozen-lockfile\n", "forwardPorts: 3000 is not forwarded; --publish 3000:3000 does it", "db:5432 is not forwarded", "root takes the place of node",
		}},
		{name: "python", files: map[string]string{"requirements.txt": "", ".devcontainer/devcontainer.json": `{
	"image": "local/python",
	"postCreateCommand": "pip3 install --user -r requirements.txt",
	"customizations": {"vscode": {"settings": {"python.defaultInterpreterPath": "/usr/local/bin/python"}}},
	"containerEnv": {"PYTHONUNBUFFERED": "1"},
	"remoteEnv": {"PYTHONPATH": "${containerWorkspaceFolder}/src", "PATH": "${containerEnv:PATH}:/home/vscode/.local/bin"},
}`}, script: "echo $PYTHONUNBUFFERED $PYTHONPATH $PATH", want: "1 /workspaces/app/src /usr/local/bin:/bin:/home/vscode/.local/bin\n",
			says: []string{"pip3 install --user -r requirements.txt\n"}},
		{name: "rust", files: map[string]string{".devcontainer/devcontainer.json": `{
	"image": "local/rust",
	"mounts": [{"source": "devcontainer-cargo-cache-${devcontainerId}", "target": "/usr/local/cargo", "type": "volume"}],
	"runArgs": ["--cap-add=SYS_PTRACE", "--security-opt", "seccomp=unconfined"],
	"postCreateCommand": "rustc --version",
}`}, script: "touch /usr/local/cargo/x && ls /usr/local/cargo", want: "x\n", says: []string{
			"rustc --version\n", "runArgs: ignored", "--cap-add=SYS_PTRACE --security-opt seccomp=unconfined", "/usr/local/cargo is an empty directory in memory",
		}},
		{name: "cpp", files: map[string]string{".devcontainer/devcontainer.json": `{
	"build": {"dockerfile": "Dockerfile", "args": {"VARIANT": "debian-12", "JOBS": 2}},
	"capAdd": ["SYS_PTRACE"],
	"securityOpt": ["seccomp=unconfined"],
	"postCreateCommand": ["cmake", "-S", ".", "-B", "build dir"],
}`, ".devcontainer/Dockerfile": "ARG VARIANT\nFROM local/cpp\nARG VARIANT\nARG JOBS\nCOPY tools.txt /\nRUN echo $VARIANT $JOBS > /variant\n", ".devcontainer/tools.txt": "gdb\n"},
			script: "cat /variant /tools.txt", want: "debian-12 2\ngdb\n", says: []string{"cmake -S . -B build dir\n", "capAdd: ignored", "securityOpt: ignored"}},
		{name: "the older form", files: map[string]string{".devcontainer/devcontainer.json": `{
	"dockerFile": "../docker/Dockerfile.dev",
	"context": "..",
	"appPort": [8080, "9000"],
	"workspaceMount": "source=${localWorkspaceFolder},target=/workspace,type=bind,consistency=cached",
	"workspaceFolder": "/workspace",
	"extensions": ["ms-vscode.cpptools"],
	"settings": {"terminal.integrated.shell.linux": "/bin/bash"},
}`, "docker/Dockerfile.dev": "FROM local/bb\nCOPY main.c /main.c\n", "main.c": "int main;\n", ".dockerignore": "docker\n"},
			flags: []string{"--publish", freePort(t) + ":8080"}, script: "pwd; cat /main.c main.c", want: "/workspace\nint main;\nint main;\n", says: []string{"forwardPorts: 9000"}},
		{name: "a hidden file", files: map[string]string{".devcontainer.json": `{
	"image": "local/bb",
	"hostRequirements": {"cpus": 1, "memory": "1mb", "storage": "9000tb", "gpu": "optional"},
	"waitFor": "onCreateCommand",
	"otherPortsAttributes": {"onAutoForward": "ignore"},
	"shutdownAction": "none", "overrideCommand": true, "init": true, "userEnvProbe": "loginShell",
}`}, script: "echo ok", want: "ok\n", says: []string{"hostRequirements: storage: 9000tb"}},
		{name: "every hook", files: map[string]string{".devcontainer/web/devcontainer.json": `{
	"image": "local/node",
	"postStartCommand": "echo start; cat log",
	"postCreateCommand": {"server": "echo created >> log", "client": ["npm", "ci", "--prefix", "${containerWorkspaceFolder}/client $x"]},
	"updateContentCommand": "echo updated >> log",
	"onCreateCommand": "echo began > log",
	"postAttachCommand": "npm run dev",
}`}, script: "wc -l < log", want: "3\n", says: []string{"start\nbegan\nupdated\ncreated\n", "npm ci --prefix /workspaces/app/client $x\n", "postAttachCommand: not executed"}},
		{name: "mounts in the workspace", files: map[string]string{"cfg/settings": "s\n", ".devcontainer/devcontainer.json": `{
	"image": "local/node",
	"containerUser": "root",
	"mounts": [
		"source=${localWorkspaceFolder}/cfg,target=/home/node/.config,type=bind",
		"source=${localWorkspaceFolderBasename}-node_modules,target=${containerWorkspaceFolder}/node_modules,type=volume",
		"type=tmpfs,target=/scratch",
	],
}`, "node_modules/here": ""}, script: "cat /home/node/.config/settings; ls node_modules; touch /scratch/x /home/node/.config/new", want: "s\n"},
		{name: "an image with metadata", files: map[string]string{".devcontainer/devcontainer.json": `{
	"build": {"dockerfile": "Containerfile", "context": ".", "target": "dev"},
	"remoteEnv": {"EDITOR": "vi", "HAS": "${containerEnv:KEEP}", "ELSE": "${containerEnv:NONE:else}"},
	"postCreateCommand": "echo second",
}`, ".devcontainer/Containerfile": `FROM local/go AS dev
LABEL devcontainer.metadata='[{"id": "x", "postCreateCommand": "echo first", "privileged": true}, {"remoteUser": "vscode", "containerEnv": {"KEEP": "kept"}, "remoteEnv": {"EDITOR": "ed"}}]'
ENTRYPOINT ["/bin/false"]
FROM scratch
`}, script: "echo $HOME $EDITOR $KEEP $HAS $ELSE", want: "/home/vscode vi kept kept else\n", says: []string{"first\nsecond\n", "the image's metadata: privileged: ignored"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.has(c.files)
			r := w.do(append(append([]string{"run", "--devcontainer=" + w.dir}, c.flags...), "--", "sh", "-c", c.script)...)
			if r.code != 0 || r.stdout != c.want {
				t.Errorf("exit %d\nstdout: %s\nwant: %s\nstderr: %s", r.code, r.stdout, c.want, r.stderr)
			}
			for _, part := range c.says {
				if !strings.Contains(r.stderr, part) {
					t.Errorf("stderr lacks %q:\n%s", part, r.stderr)
				}
			}
		})
	}
}

// TestDevcontainerHostile checks that a file of a stranger gets nothing of this machine but the workspace.
func TestDevcontainerHostile(t *testing.T) {
	w := newWorkspace(t, newGallery(t))
	secret := w.file("secret", "hunter2\n", 0o600)
	w.ok("save", "-o", w.dir+"/../i.tar", "local/bb")
	w.extra = append(w.extra, "TOKEN=hunter2")
	file := func(text string) map[string]string {
		return map[string]string{".devcontainer/devcontainer.json": text, ".devcontainer/Dockerfile": "FROM local/bb\n"}
	}
	for _, c := range []struct {
		name, file string
		prepare    string // executed in the workspace
		says       string // the error; empty: the run succeeds
		script     string
	}{
		{name: "home", file: `{"image": "local/bb", "mounts": ["source=/root,target=/h,type=bind"]}`, says: `"/root" is outside of the workspace`},
		{name: "tilde", file: `{"image": "local/bb", "mounts": ["source=~/.ssh,target=/h"]}`, says: "outside of the workspace"},
		{name: "the docker socket", file: `{"image": "local/bb", "mounts": ["source=/var/run/docker.sock,target=/var/run/docker.sock,type=bind"]}`, says: "outside of the workspace"},
		{name: "dots", file: `{"image": "local/bb", "mounts": ["source=${localWorkspaceFolder}/x/../../secret,target=/h,type=bind"]}`, says: "outside of the workspace"},
		{name: "relative", file: `{"image": "local/bb", "mounts": ["source=../secret,target=/h,type=bind"]}`, says: "outside of the workspace"},
		{name: "a link", file: `{"image": "local/bb", "mounts": ["source=${localWorkspaceFolder}/link,target=/h,type=bind"]}`, prepare: "ln -s .. link", says: "leads out of the workspace"},
		{name: "a link within a path", file: `{"image": "local/bb", "mounts": ["source=${localWorkspaceFolder}/link/secret,target=/h,type=bind"]}`, prepare: "ln -s .. link", says: "leads out of the workspace"},
		{name: "a socket", file: `{"image": "local/bb", "mounts": ["source=${localWorkspaceFolder}/fifo,target=/h,type=bind"]}`, prepare: "mkfifo fifo", says: `mount "fifo"`},
		{name: "another workspace", file: `{"image": "local/bb", "workspaceMount": "source=/,target=/w,type=bind", "workspaceFolder": "/w"}`, says: "workspaceMount: \"/\" is outside"},
		{name: "above the workspace", file: `{"image": "local/bb", "workspaceMount": {"source": "${localWorkspaceFolder}/..", "target": "/w", "type": "bind"}}`, says: "outside of the workspace"},
		{name: "mounts over the sandbox's own", file: `{"image": "local/bb", "workspaceFolder": "/proc"}`, says: "belongs to demesne"},
		{name: "a context above", file: `{"build": {"dockerfile": "Dockerfile", "context": "../.."}}`, says: `build: "../.." is outside of the workspace`},
		{name: "a context by a link", file: `{"build": {"dockerfile": "Dockerfile", "context": "up"}}`, prepare: "ln -s ../.. .devcontainer/up", says: `build: context`},
		{name: "a Dockerfile above", file: `{"build": {"dockerfile": "../../secret"}}`, says: "outside of the workspace"},
		{name: "a Dockerfile by a link", file: `{"build": {"dockerfile": "link"}}`, prepare: "ln -s " + secret + " .devcontainer/link", says: "is not a regular file"},
		{name: "a Dockerfile that is a pipe", file: `{"build": {"dockerfile": "pipe"}}`, prepare: "mkfifo .devcontainer/pipe", says: "is not a regular file"},
		{name: "the file by a link", file: `{}`, prepare: "ln -sf " + secret + " .devcontainer/devcontainer.json", says: "devcontainer.json: path escapes"},
		{name: "the file a pipe", file: `{}`, prepare: "rm .devcontainer/devcontainer.json; mkfifo .devcontainer/devcontainer.json", says: "is not a regular file"},
		{name: "flags as words", file: `{"build": {"dockerfile": "Dockerfile", "target": "--secret=id=x,src=` + secret + `"}}`, says: `not built: Dockerfile: no stage "--secret=id=x`},
		{name: "options of the build", file: `{"build": {"dockerfile": "Dockerfile", "options": ["--network=host", "-v", "/:/host"]}}`, says: "options: not supported: --network=host -v /:/host"},
		{name: "the host's files", file: `{"image": "host"}`, says: "can only name an image"},
		{name: "a directory as image", file: `{"image": "dir:/root"}`, says: "can only name an image"},
		{name: "an archive as image", file: `{"image": "oci-archive:` + secret + `"}`, says: "can only name an image"},
		{name: "a Dockerfile from the host's files", file: `{"build": {"dockerfile": "../D"}}`, prepare: "printf 'FROM host\n' > D", says: "not built"},
		{name: "a Dockerfile from a directory", file: `{"build": {"dockerfile": "../D"}}`, prepare: "printf 'FROM scratch\nCOPY --from=dir:/root / /\n' > D", says: "not built"},
		{name: "a Dockerfile from an archive", file: `{"build": {"dockerfile": "../D"}}`, prepare: "printf 'FROM oci-archive:` + w.dir + `/../i.tar\n' > D", says: "not built"},
		{name: "compose", file: `{"dockerComposeFile": "compose.yml", "service": "app"}`, says: `dockerComposeFile "compose.yml": compose.yml: no such file`},
		{name: "no image", file: `{"name": "x"}`, says: "neither an image nor a build"},
		{name: "both", file: `{"image": "local/bb", "build": {"dockerfile": "Dockerfile"}}`, says: "both an image and a build"},
		{name: "a bad variable", file: `{"image": "local/bb", "containerEnv": {"A=B": "1"}}`, says: `variable "A=B"`},
		{name: "no JSON", file: "{\n\"image\": local\n}", says: "line 2, column 10: invalid literal: local"},
		{name: "a list", file: "[]", says: "devcontainer.json: "},
		{name: "depth", file: `{"x": ` + strings.Repeat("[", 100000), says: "more than 30000 brackets"},
		{name: "size", file: `{"x": "` + strings.Repeat("a", 1<<20) + `"}`, says: "longer than 1048576 bytes"},
		{name: "a hook that is a number", file: `{"image": "local/bb", "postCreateCommand": 3}`, says: "postCreateCommand: not a string"},
		{name: "no variables, ports, privileges and commands of this machine", file: `{
	"image": "local/bb", "privileged": true, "initializeCommand": "touch ` + w.dir + `/pwned", "capAdd": ["ALL"],
	"runArgs": ["--privileged", "--network=host", "--pid=host", "-v", "/:/host", "--env-file", "/root/.env"], "forwardPorts": [18124],
	"containerEnv": {"A": "${localEnv:TOKEN}", "B": "${env:TOKEN:none}", "C": "${localWorkspaceFolder}"},
	"postCreateCommand": "echo ${localEnv:TOKEN}", "customizations": {"x": {"initializeCommand": "touch ` + w.dir + `/pwned"}}
}`, script: "test -z \"$A\" && test \"$B\" = none && test $C = /workspaces/app && test ! -e /host && test ! -e pwned && ! nc -w 1 127.0.0.1 18124"},
		{name: "quotes", file: `{"image": "local/bb", "workspaceFolder": "/w/'; touch /x; '", "postCreateCommand": {"a b'; touch /x; '*": "echo 'it'\\''s' > y"}, "remoteUser": "'; touch /x; '",
	"containerEnv": {"A": "'; touch /x; '"}}`, script: "test ! -e /x && test \"$(cat y)\" = \"it's\" && pwd"},
		{name: "bad metadata", file: `{"build": {"dockerfile": "../meta"}}`, prepare: "printf 'FROM local/bb\\nLABEL devcontainer.metadata=[{3]\\n' > meta", script: "true"},
		{name: "mounts of the metadata", file: `{"build": {"dockerfile": "../meta"}}`,
			prepare: `printf 'FROM local/bb\nLABEL devcontainer.metadata={\\"mounts\\":[\\"source=/root,target=/h,type=bind\\"],\\"workspaceFolder\\":\\"/\\"}\n' > meta`, script: "test ! -e /h && pwd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.has(file(c.file))
			if c.prepare != "" {
				cmd := exec.Command("/bin/sh", "-ec", c.prepare)
				cmd.Dir = w.dir
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", c.prepare, err, out)
				}
			}
			r := w.do("run", "--devcontainer="+w.dir, "-c", c.script)
			if c.says != "" && (r.code != 125 || !strings.Contains(lastLines(r.stderr), c.says)) || c.says == "" && r.code != 0 {
				t.Errorf("exit %d\nstdout: %s\nstderr: %s\nwant %q", r.code, r.stdout, short(r.stderr), c.says)
			}
			if strings.Contains(r.stdout+r.stderr, "hunter2") {
				t.Errorf("the secret came out:\n%s\n%s", r.stdout, r.stderr)
			}
		})
	}
}

// TestDevcontainerGiven checks what the command line gives: a variable, a directory, a user and a mode.
func TestDevcontainerGiven(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		w := newWorkspace(t, g)
		given := w.mkdir("given")
		w.file("given/file", "given\n", 0o644)
		w.has(map[string]string{".devcontainer/devcontainer.json": `{"image": "local/go", "remoteUser": "vscode",
			"containerEnv": {"A": "${localEnv:TOKEN}"}, "mounts": ["source=${localEnv:HOME}/.ssh,target=/given,type=bind"]}`})
		w.extra = append(w.extra, "TOKEN=told")
		flags := []string{"run", "--devcontainer=" + w.dir, "--env", "TOKEN", "--mount", given + ":/given"}
		r := w.do(append(flags, "-c", "cat /given/file; echo $A $(id -u) $HOME; touch made")...)
		if r.code != 0 || r.stdout != "given\ntold 0 /home/vscode\n" {
			t.Errorf("%+v", r)
		}
		if _, err := os.Stat(w.dir + "/made"); err != nil {
			t.Error(err)
		}
		if r := w.do(append(flags, "--user", "0", "--workdir", "/", "-c", "pwd; echo $HOME")...); r.code != 0 || !strings.HasPrefix(r.stdout, "/\n") || strings.Contains(r.stdout, "vscode") {
			t.Errorf("--user: %+v", r)
		}
		flags[1] += ":ro"
		if r := w.do(append(flags, "-c", "touch more")...); r.code == 0 || !strings.Contains(r.stderr, "Read-only") {
			t.Errorf("ro: %+v", r)
		}
		if r := w.do(append(flags, "-c", "id -u")...); !one && r.stdout != "1000\n" {
			t.Errorf("the user of a workspace that is not writable: %+v", r)
		}
		w.told(t, "cannot be combined", append(flags, "--image", "local/bb", "-c", "true")...)
	})
}

// TestDevcontainerPersistent checks that hooks that make a sandbox are executed once, and postStartCommand once a start.
func TestDevcontainerPersistent(t *testing.T) {
	w := newWorkspace(t, newGallery(t))
	w.has(map[string]string{".devcontainer/devcontainer.json": `{"image": "local/go",
		"onCreateCommand": "sleep 1; echo made >> log", "postStartCommand": "echo started >> log"}`})
	run := func(want string) {
		t.Helper()
		if r := w.do("run", "--key", "k", "--devcontainer="+w.dir, "--", "cat", "log"); r.code != 0 || r.stdout != want {
			t.Errorf("%+v\nwant %q", r, want)
		}
	}
	other := make(chan result)
	go func() { other <- w.do("run", "--key", "k", "--devcontainer="+w.dir, "--", "cat", "log") }()
	run("made\nstarted\n")
	if r := <-other; r.code != 0 || r.stdout != "made\nstarted\n" {
		t.Errorf("at the same time: %+v", r)
	}
	run("made\nstarted\n")
	w.ok("stop", strings.TrimSpace(w.ok("ls", "-q")))
	run("made\nstarted\nstarted\n")
	w.ok("rm", strings.TrimSpace(w.ok("ls", "-q")))

	id := strings.TrimSpace(w.ok("create", "--devcontainer="+w.dir))
	if got := w.ok("exec", id, "-c", "pwd; tail -n 2 log"); got != "/workspaces/app\nmade\nstarted\n" {
		t.Errorf("create: %q", got)
	}
	w.ok("rm", id)
	w.file("app/.devcontainer/devcontainer.json", `{"image": "local/go", "postCreateCommand": "exit 7"}`, 0o644)
	r := w.do("create", "--devcontainer="+w.dir)
	if r.code != 7 || r.stdout != "" || !strings.Contains(r.stderr, "demesne: devcontainer.json: postCreateCommand: exit 7") {
		t.Errorf("a hook that fails: %+v", r)
	}
	if left := w.ok("ls", "-q"); left != "" {
		t.Errorf("a hook that failed left %s", left)
	}
	if r := w.do("run", "--devcontainer="+w.dir, "-c", "echo no"); r.code != 7 || r.stdout != "" {
		t.Errorf("a hook that fails: %+v", r)
	}
}

// TestDevcontainerRebuilt checks that a build whose steps are all kept makes the same image again, and so leaves nothing.
func TestDevcontainerRebuilt(t *testing.T) {
	w := newWorkspace(t, newGallery(t))
	w.has(map[string]string{".devcontainer/devcontainer.json": `{"build": {"dockerfile": "Dockerfile"}}`,
		".devcontainer/Dockerfile": "FROM local/go\nENV A=b\nRUN echo made > /made\nLABEL c=d\nCMD sh\n"})
	var counts []int
	for range 3 {
		w.ok("run", "--devcontainer="+w.dir, "--", "true")
		counts = append(counts, len(w.listed()))
		nextSecond()
	}
	if counts[0] != counts[2] {
		t.Errorf("images after each run: %v", counts)
	}
	w.file("app/.devcontainer/Dockerfile", "FROM local/go\nRUN echo other > /made\n", 0o644)
	if got := w.ok("run", "--devcontainer="+w.dir, "--", "cat", "/made"); got != "other\n" {
		t.Errorf("a changed Dockerfile: %q", got)
	}
}

// TestDevcontainerFound checks which file is taken.
func TestDevcontainerFound(t *testing.T) {
	w := newWorkspace(t, newGallery(t))
	file := func(name string) string {
		return `{"image": "local/bb", "containerEnv": {"WHICH": "` + name + `"}}`
	}
	w.has(map[string]string{".devcontainer/a/devcontainer.json": file("a"), ".devcontainer/b/devcontainer.json": file("b")})
	w.told(t, "has several: .devcontainer/a, .devcontainer/bhint: --devcontainer="+w.dir+"/.devcontainer/a names one", "run", "--devcontainer="+w.dir, "--", "true")
	for at, want := range map[string]string{"/.devcontainer/b": "b", "/.devcontainer/a/devcontainer.json": "a"} {
		if got := w.ok("run", "--devcontainer="+w.dir+at, "-c", "echo $WHICH $PWD"); got != want+" /workspaces/app\n" {
			t.Errorf("%s: %q", at, got)
		}
	}
	w.file("app/.devcontainer.json", file("hidden"), 0o644)
	if got := w.ok("run", "--devcontainer="+w.dir, "-c", "echo $WHICH"); got != "hidden\n" {
		t.Errorf("%q", got)
	}
	w.told(t, "no .devcontainer/devcontainer.json, .devcontainer.json or .devcontainer/NAME/devcontainer.json", "run", "--devcontainer="+w.ctx, "--", "true")
	w.told(t, "is a directoryhint: --devcontainer="+w.dir+" -- CMD", "run", "--devcontainer", w.dir, "--", "true")
	w.told(t, "no such file", "run", "--devcontainer="+w.dir+"/none", "--", "true")
}
