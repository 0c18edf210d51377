package integration

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"demesne/integration/fixture"
)

// installAgents copies npm's packages of two programs from /in/agents to where npm install -g puts them.
const installAgents = `set -e
from=/in/agents/node_modules to=/usr/local/lib/node_modules
mkdir -p $to
cp -r $from/@anthropic-ai $from/@openai $to/
(cd $to/@anthropic-ai/claude-code && node install.cjs)
ln -s $to/@anthropic-ai/claude-code/bin/claude.exe /usr/local/bin/claude
ln -s $to/@openai/codex/bin/codex.js /usr/local/bin/codex
rm -rf $to/@anthropic-ai/claude-code-linux-*
`

// agentImage makes the image local/agents from Debian's packages and npm's, for a host that has a model and no program.
func (g *gallery) agentImage(t *testing.T, script func(fixture.ModelRequest) fixture.Answer) *fixture.Model {
	t.Helper()
	programs := filepath.Dir(filepath.Dir(strings.SplitN(programsPath(), ":", 2)[0]))
	if _, err := os.Stat(programs); err != nil {
		need(t, false, "integration/agents.sh")
	}
	img, err := fixture.Debian(fixture.PythonLayer)
	if err != nil {
		need(t, false, err.Error())
	}
	if err := g.reg.Push("docker/library/debian:latest", img); err != nil {
		t.Fatal(err)
	}
	g.ok("create", "--name", "prep", "--image", "debian", "--disk", "none", "--in", programs+":agents")
	g.ok("exec", "prep", "-c", installAgents)
	g.ok("commit", "prep", "local/agents")
	g.ok("rm", "prep")
	m := &fixture.Model{Script: script}
	url, stop := m.Start()
	t.Cleanup(stop)
	g.hostWithoutAgents(url)
	return m
}

// hostWithoutAgents gives the host credentials for the model at url, and no agent's program.
func (g *gallery) hostWithoutAgents(url string) {
	g.extra = append(g.extra, "PATH=/usr/bin:/bin", "ANTHROPIC_BASE_URL="+url, "ANTHROPIC_API_KEY="+realKey, "OPENAI_BASE_URL="+url, "OPENAI_API_KEY="+realKey,
		"DEMESNE_MCP_ALLOWLIST="+g.file("allowlist.json", "{}", 0o644))
}

// TestAgentImage runs agents whose programs come from an image made of Debian's packages and npm, on a host that has no
// installation: turns that write files, whatever the USER of the image, and a first screen.
func TestAgentImage(t *testing.T) {
	g := newGallery(t)
	m := g.agentImage(t, fixture.Steps(
		shell("{ echo made by; id -u; } | xargs > /out/made; echo shared > /workspace/w; command -v claude codex; cat /etc/debian_version"),
		fixture.Answer{Text: "zebra finished"}))
	g.ok("create", "--name", "user", "--image", "local/agents")
	g.ok("exec", "user", "-c", "useradd -m dev")
	g.ok("commit", "--user", "dev", "user", "local/user")
	g.ok("rm", "user")
	for _, c := range []struct{ image, model string }{{"local/agents", "sonnet"}, {"local/agents", "gpt-5.6-sol"}, {"local/user", "opus"}, {"local/user", "gpt-5.5"}} {
		out := g.mkdir(c.model)
		r := g.do("agent", "run", "--image", c.image, "--model", c.model, "--out", out, "make it")
		made, _ := os.ReadFile(out + "/made")
		transcript, _ := os.ReadFile(out + "/transcript.jsonl")
		if r.code != 0 || r.stdout != "zebra finished\n" || string(made) != "made by 0\n" || !strings.Contains(string(transcript), "/usr/local/bin/codex") {
			t.Errorf("%s in %s: made %q, %+v\n%.3000s", c.model, c.image, made, r, transcript)
		}
	}
	for _, r := range m.Log() {
		if key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.Header.Get("X-Api-Key"); key != realKey && r.Method == http.MethodPost {
			t.Errorf("%s %s with the key %q", r.Method, r.Path, key)
		}
	}
	g.nowhere(g.home, realKey)
	g.firstScreen(t)
}

// firstScreen starts the interactive program of the image in a project, and gives it a task.
func (g *gallery) firstScreen(t *testing.T) {
	t.Helper()
	proj := g.mkdir("h/proj")
	t.Cleanup(func() { os.RemoveAll(proj); os.RemoveAll(g.home + "/.demesne/agents") })
	cmd := g.cli("agent", "--image", "local/agents", "claude")
	cmd.Dir = proj
	term := g.terminalOf(cmd)
	term.resize(40, 110)
	term.quiet()
	term.typ("make the file")
	term.quiet()
	term.typ("\r")
	eventually(t, "the answer", func() bool { return strings.Contains(unstyled(term.screen()), "zebra") })
	if code := term.leave("\x03"); code != 0 && code != 130 {
		t.Errorf("exit %d: %q", code, unstyled(term.screen()))
	}
}

// TestAgentImageLacking checks the errors for an image without the shell that the program needs, without the program, and
// that does not exist, and for a host without an installation.
func TestAgentImageLacking(t *testing.T) {
	g := newGallery(t)
	g.hostWithoutAgents("http://127.0.0.1:1")
	bare, _ := g.simple("bare:1")
	g.push("bash:1", v1.Config{Env: []string{"PATH=/bin"}}, g.busybox(), []fixture.Entry{fixture.Mode("bin/bash", "#!/bin/sh\nexec sh \"$@\"\n", 0o755)})
	withBash, missing := g.reg.Ref("bash:1"), g.reg.Ref("none:1")
	proj := g.mkdir("h/proj")
	t.Cleanup(func() { os.RemoveAll(proj); os.RemoveAll(g.home + "/.demesne/agents") })
	for _, c := range []struct {
		model, command, image string
		code                  int
		want                  []string
	}{
		{"sonnet", "claude", bare, 127, []string{`image "` + bare + `" has no "bash"`, "hint: "}},
		{"sonnet", "claude", withBash, 127, []string{"the image has no program 'claude'"}},
		{"gpt-5.5", "codex", bare, 127, []string{`image "` + bare + `" has no "codex"`, "hint: "}},
		{"gpt-5.5", "codex", missing, 125, []string{`image "` + missing + `"`}},
		{"opencode/gpt-5.5", "opencode", "", 125, []string{`the program is missing: find program "opencode" in PATH`, "--image NAME"}},
		{"sonnet", "claude", "host", 125, []string{`the program is missing: find program "claude" in PATH`, "--image NAME"}},
		{"gpt-5.5", "codex", "host", 125, []string{`the program is missing: find program "codex" in PATH`, "--image NAME"}},
	} {
		var flags []string
		if c.image != "" {
			flags = []string{"--image", c.image}
		}
		headless := g.do(append(append([]string{"agent", "run", "--model", c.model}, flags...), "x")...)
		cmd := g.cli(append(append([]string{"agent"}, flags...), c.command, "-p", "x")...)
		cmd.Dir = proj
		for door, r := range map[string]result{"run": headless, "terminal": g.finish(cmd)} {
			if r.code != c.code && door == "terminal" || r.code == 0 {
				t.Errorf("%s of %s in %q: exit %d, want %d", door, c.command, c.image, r.code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(r.stderr, want) {
					t.Errorf("%s of %s in %q: no %q in %s", door, c.command, c.image, want, r.stderr)
				}
			}
		}
	}
}

// TestAgentImageUser runs an agent in images with different users, with and without subordinate ids: it can write to its
// home, the workspace, the output and the project, and what it writes belongs to the user.
func TestAgentImageUser(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, _ bool) {
		g.hostWithoutAgents("http://127.0.0.1:1")
		g.extra = append(g.extra, "DEMESNE_AGENTS_FILE="+g.file("agents.json", scriptAgent, 0o644), "SCRIPT_KEY="+realKey)
		program := fixture.Mode("bin/script-agent", "#!/bin/sh\nexec sh -c \"$1\"\n", 0o755)
		passwd := fixture.File("etc/passwd", "root:x:0:0::/root:/bin/sh\ndev:x:1000:1000::/home/dev:/bin/sh\n")
		const work = `id -u; pwd; echo kept > ~/kept && echo new > made && echo more >> old && ls -d /out /workspace`
		for i, user := range []string{"", "0", "dev", "1000:1000", "4321"} {
			g.push("agent:"+strconv.Itoa(i), v1.Config{Env: []string{"PATH=/bin"}, User: user}, g.busybox(), []fixture.Entry{program, passwd})
			proj := g.home + "/proj" + strconv.Itoa(i)
			g.host(g.home, "mkdir "+proj+" && echo old > "+proj+"/old && chmod 644 "+proj+"/old")
			cmd := g.cli("agent", "--image", g.reg.Ref("agent:"+strconv.Itoa(i)), "script-agent", work)
			cmd.Dir = proj
			if r := g.finish(cmd); r.code != 0 || !strings.HasPrefix(r.stdout, "0\n"+proj+"\n") {
				t.Errorf("user %q: %+v", user, r)
			}
			for name, want := range map[string]string{"made": "new\n", "old": "old\nmore\n"} {
				var st syscall.Stat_t
				got, _ := os.ReadFile(proj + "/" + name)
				if err := syscall.Stat(proj+"/"+name, &st); err != nil || string(got) != want || int(st.Uid) != max(g.uid, os.Getuid()) {
					t.Errorf("user %q: %s is %q of user %d: %v", user, name, got, st.Uid, err)
				}
			}
			os.RemoveAll(proj)
		}
		os.RemoveAll(g.home + "/.demesne/agents")
	})
}

// TestAgentDevcontainer runs an agent in the image that the project's devcontainer.json builds, with its variables.
func TestAgentDevcontainer(t *testing.T) {
	g := newGallery(t)
	g.hostWithoutAgents("http://127.0.0.1:1")
	g.extra = append(g.extra, "DEMESNE_AGENTS_FILE="+g.file("agents.json", scriptAgent, 0o644), "SCRIPT_KEY="+realKey)
	program := fixture.Mode("bin/script-agent", "#!/bin/sh\nexec sh -c \"$1\"\n", 0o755)
	g.push("agent:dev", v1.Config{Env: []string{"PATH=/bin"}, User: "1000"}, g.busybox(), []fixture.Entry{program})
	proj := g.mkdir("h/proj")
	t.Cleanup(func() { os.RemoveAll(proj); os.RemoveAll(g.home + "/.demesne/agents") })
	g.file("h/proj/.devcontainer/Dockerfile", "FROM "+g.reg.Ref("agent:dev")+"\nARG WHO\nUSER 0\nRUN echo $WHO > /made\n", 0o644)
	g.file("h/proj/.devcontainer/devcontainer.json", `{"build": {"dockerfile": "Dockerfile", "args": {"WHO": "world"}}, "containerEnv": {"GREETING": "hello"},
		"postCreateCommand": "touch /workspaces/x", "initializeCommand": "touch `+g.dir+`/outside"}`, 0o644)
	agent := func(args ...string) result {
		cmd := g.cli(append([]string{"agent"}, args...)...)
		cmd.Dir = proj
		return g.finish(cmd)
	}
	r := agent("--devcontainer", "script-agent", `echo "$GREETING $(cat /made) $(id -u)"; pwd; echo new > new; ls /workspaces`)
	if r.stdout != "hello world 0\n"+proj+"\n" || !strings.Contains(r.stderr, "its commands are not executed for an agent") || !strings.Contains(r.stderr, "initializeCommand: not executed") {
		t.Errorf("%+v", r)
	}
	if got, _ := os.ReadFile(proj + "/new"); string(got) != "new\n" || exists(g.dir+"/outside") {
		t.Errorf("the project has %q", got)
	}
	for flag, want := range map[string]string{"--devcontainer=.:ro": "always mounted for writing", "--devcontainer=nosuch": "devcontainer"} {
		if r := agent(flag, "script-agent", "true"); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", flag, r)
		}
	}
	if r := agent("--devcontainer", "--image", "bare", "script-agent", "true"); r.code == 0 || !strings.Contains(r.stderr, "cannot be combined") {
		t.Errorf("with --image: %+v", r)
	}
}

// TestAgentImageTree runs agents of an image that the MCP server was asked for: a child inherits the image, and models
// without a program on this machine are offered only where there is an image.
func TestAgentImageTree(t *testing.T) {
	g := newGallery(t)
	debian, err := fixture.Debian(fixture.NodeLayer)
	if err != nil {
		need(t, false, err.Error())
	}
	program, err := os.ReadFile("testdata/agent/agent.py")
	if err != nil {
		t.Fatal(err)
	}
	img, err := fixture.With(debian, fixture.Mode("usr/bin/fake-agent", string(program), 0o755))
	if err == nil {
		err = g.reg.Push("agent:1", img)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := &fixture.Model{Script: func(r fixture.ModelRequest) fixture.Answer {
		if strings.Contains(r.Prompt, "CHILD") {
			return fixture.Steps(shell("cat /etc/debian_version > /workspace/child; which fake-agent >> /workspace/child"), fixture.Answer{Text: "Child."})(r)
		}
		return fixture.Steps(childTool("agent", map[string]any{"name": "one", "prompt": "CHILD"}), shell("cat /workspace/child > /out/child-said"), fixture.Answer{Text: "Done."})(r)
	}}
	url, stop := m.Start()
	t.Cleanup(stop)
	g.hostWithoutAgents(url)
	g.extra = append(g.extra, "DEMESNE_AGENTS_FILE="+g.file("agents.json", fakeAgent, 0o644), "FAKE_KEY="+realKey, "FAKE_BASE="+url, "DEMESNE_ALLOWED_IMAGES="+g.reg.Ref("agent:1"))
	c := g.mcp()
	model := args{"prompt": "x", "model": "fake/claude-sonnet-5"}
	if r := c.call("sandbox_agent", model); !r.IsError || !strings.Contains(r.Text, `agent "fake": the program is missing: find program "fake-agent" in PATH`) || !strings.Contains(r.Text, "hint: ") {
		t.Errorf("without an image: %+v", r)
	}
	model["image"] = g.reg.Ref("agent:1")
	r := c.must("sandbox_agent", model)
	if got := readFile(t, r.field("output_dir")+"/child-said"); r.field("stdout") != "Done." || !strings.HasSuffix(got, "/usr/bin/fake-agent\n") {
		t.Errorf("the child has %q, %s", got, r.Result)
	}
}

// TestAgentImageBranch checks that a clone, and attempts on forks of a prepared one, work in an image with git, and that an
// image without git is an error.
func TestAgentImageBranch(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, _ bool) {
		g.prepareHome()
		g.hostWithoutAgents("http://127.0.0.1:1")
		g.extra = append(g.extra, "DEMESNE_AGENTS_FILE="+g.file("agents.json", scriptAgent, 0o644), "SCRIPT_KEY="+realKey)
		program := []fixture.Entry{fixture.Mode("bin/script-agent", "#!/bin/sh\nexec sh -c \"$1\"\n", 0o755), fixture.File("image", "yes")}
		g.push("plain:1", v1.Config{Env: []string{"PATH=/bin"}}, g.busybox(), program)
		g.push("git:1", v1.Config{Env: []string{"PATH=/usr/bin:/bin"}, User: "1000"}, g.busybox(), program, gitEntries(t))
		repo := g.home + "/repo"
		needGit(t)
		g.host(g.home, "git init -q -b main repo && cd repo && echo base > base.txt && git add . && git commit -q -m first")
		agent := func(image string, args ...string) result {
			cmd := g.cli(append([]string{"agent", "--branch", "--image", g.reg.Ref(image)}, args...)...)
			cmd.Dir = repo
			return g.finish(cmd)
		}
		const work = "cat /image base.txt > made && id -u >> made"
		r := agent("git:1", "script-agent", work)
		if got := g.host(repo, "git show "+branchOf(t, r)+":made"); got != "yesbase\n0\n" {
			t.Errorf("the branch has %q, %+v", got, r)
		}
		r = agent("git:1", "--fork", "2", "--setup", "cat /image > prepared", "script-agent", "grep -q yes prepared && "+work)
		for _, n := range []string{"1", "2"} {
			name := regexp.MustCompile(`demesne/\S+/attempt-` + n).FindString(r.stdout)
			if r.code != 0 || name == "" {
				t.Fatalf("attempt %s: %+v", n, r)
			}
			if got := g.host(repo, "git diff --name-only main "+name+"; git show "+name+":made"); got != "made\nyesbase\n0\n" {
				t.Errorf("attempt %s has %q", n, got)
			}
		}
		if r := agent("plain:1", "script-agent", work); r.code != 127 || !strings.Contains(r.stderr, "--branch needs git in the sandbox") {
			t.Errorf("without git: %+v", r)
		}
	})
}

// gitEntries returns this machine's git with its libraries.
func gitEntries(t *testing.T) (all []fixture.Entry) {
	t.Helper()
	git := program(t, "git")
	libraries, err := exec.Command("ldd", git).Output()
	if err != nil {
		t.Fatal(err)
	}
	core, err := exec.Command(git, "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	paths := append(regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1), git)
	for _, name := range []string{"git", "git-upload-pack"} {
		paths = append(paths, strings.TrimSpace(string(core))+"/"+name)
	}
	for _, path := range paths {
		all = append(all, fixture.Mode(path[1:], readFile(t, path), 0o755))
	}
	return all
}
