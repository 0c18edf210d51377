package integration

import (
	"encoding/base64"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"demesne/integration/fixture"
)

// scriptAgent is the row of a user's file whose program runs its argument as shell text: the agent of these tests does
// what a test says, good or bad.
const scriptAgent = `{"agents":[{"name":"script","command":"script-agent","models":["script/claude-sonnet-5"],"prefix":"script/",
"interactive":["{args}"],"continue":["--go-on","last"],"headless":["{prompt}"],"format":"claude","context":"CONTEXT.txt","env":{"AGENT_URL":"{url}"},
"home":{".script.json":"{\"seeded\":true,\"tokens\":[\"{token20}\"]}",".settings/plain":"seeded"},
"settings":{"skills":[".script/skills"],"memory":[".script/memory"]},
"api":{"port":8083,"usage":"messages","allow":["POST /v1/messages"]},
"credentials":[{"env":"SCRIPT_KEY","base":"http://127.0.0.1:1","base_env":"SCRIPT_BASE","header":"X-Api-Key","inside":{"SCRIPT_TOKEN":"{token}"}}]}]}`

// newScriptBox returns a box whose agent "script-agent" runs shell text, and an empty project in its home.
func newScriptBox(t *testing.T) (b *box, m *fixture.Model, project string) {
	t.Helper()
	b = newBox(t)
	b.file("prog/script-agent", "#!/bin/sh\nexec sh -c \"$1\"\n", 0o755)
	m = &fixture.Model{}
	url, stop := m.Start()
	t.Cleanup(stop)
	b.extra = append(b.extra, "PATH="+b.dir+"/prog:"+os.Getenv("PATH"), "DEMESNE_AGENTS_FILE="+b.file("agents.json", scriptAgent, 0o644),
		"SCRIPT_KEY="+realKey, "SCRIPT_BASE="+url, "DEMESNE_CODEX_ENABLED=false", "DEMESNE_CLAUDE_CODE_ENABLED=false")
	b.prepareHome()
	return b, m, b.mkdir("h/proj")
}

// prepareHome makes a configuration of git, without the maintenance that later versions begin at the end of a commit: it has a file in
// the repository for a moment more. Before the check for leftovers it removes the test's own files in the home, and
// the agents' kept homes.
func (b *box) prepareHome() {
	b.extra = append(b.extra, "GIT_CONFIG_NOSYSTEM=1")
	b.file("h/.gitconfig", "[user]\n\tname = A User\n\temail = user@example.test\n[safe]\n\tdirectory = *\n[maintenance]\n\tauto = false\n", 0o644)
	b.Cleanup(func() {
		os.RemoveAll(b.home + "/.demesne/agents")
		for _, name := range names(b.home) {
			if name != ".demesne" {
				os.RemoveAll(b.home + "/" + name)
			}
		}
	})
}

func needGit(t testing.TB) { program(t, "git") }

// repository makes a git repository with one commit, and returns its path.
func (b *box) repository(dir string) string {
	b.Helper()
	needGit(b)
	b.host(b.mkdir("h/"+dir), "git init -q -b main . && echo base > base.txt && git add . && git commit -q -m first")
	return b.home + "/" + dir
}

// host runs shell text outside, in a directory, and returns its output.
func (b *box) host(dir, script string) string {
	b.Helper()
	cmd := b.command("/bin/sh", "-c", script)
	cmd.Dir = dir
	r := b.finish(cmd)
	if r.code != 0 {
		b.Fatalf("%s: exit %d: %s%s", script, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// agentIn runs the agent in a directory; the last argument is its shell text. It returns what it printed.
func (b *box) agentIn(dir string, args ...string) result {
	b.Helper()
	args, script := args[:len(args)-1], args[len(args)-1]
	cmd := b.command("demesne", append(append([]string{"agent"}, args...), "script-agent", script)...)
	cmd.Dir = dir
	return b.finish(cmd)
}

// works is agentIn for an agent that must succeed.
func (b *box) works(dir string, args ...string) result {
	b.Helper()
	r := b.agentIn(dir, args...)
	if r.code != 0 {
		b.Fatalf("%q: exit %d\n%s%s", args, r.code, r.stdout, r.stderr)
	}
	return r
}

// TestAgentProject checks what an agent sees of the user's directory, in each place where users start it.
func TestAgentProject(t *testing.T) {
	b, _, plain := newScriptBox(t)
	repo := b.repository("repo")
	b.mkdir("h/repo/a/b")
	b.host(repo, "git worktree add -q ../tree")
	const work = `pwd; echo by the agent > made.txt; git add -A >/dev/null 2>&1 && git commit -q -m 'by the agent'; git log -1 --format='%an <%ae> %s' 2>/dev/null; ls -A ~ /in/.agent >/dev/null; exit 0`
	for _, dir := range []string{repo, repo + "/a/b", b.home + "/tree", plain} {
		r := b.works(dir, work)
		lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
		if lines[0] != dir {
			t.Errorf("%s: it works in %q", dir, lines[0])
		}
		if made, _ := os.ReadFile(dir + "/made.txt"); string(made) != "by the agent\n" {
			t.Errorf("%s: made.txt is %q", dir, made)
		}
		if dir == plain {
			continue
		}
		if want := "A User <user@example.test> by the agent"; lines[len(lines)-1] != want {
			t.Errorf("%s: the commit is %q, want %q\n%s", dir, lines[len(lines)-1], want, r.stderr)
		}
		if said := b.host(dir, "git log -1 --format=%s; git status --short; git fsck --strict 2>&1"); !strings.HasPrefix(said, "by the agent\n") {
			t.Errorf("%s: outside git says %q", dir, said)
		}
	}
	var st syscall.Stat_t
	if err := syscall.Stat(repo+"/made.txt", &st); err != nil || int(st.Uid) != os.Getuid() {
		t.Errorf("made.txt belongs to %d: %v", st.Uid, err)
	}
	for _, dir := range []string{b.home, b.dir, "/"} {
		if r := b.agentIn(dir, "touch /here"); r.code == 0 || !strings.Contains(r.stderr, "contains your home directory") || !strings.Contains(r.stderr, "hint: ") {
			t.Errorf("in %s: %+v", dir, r)
		}
	}
}

// TestAgentHome checks that each project keeps a home of its own, that --fresh has none, and that what a session left
// there does no harm in the next one.
func TestAgentHome(t *testing.T) {
	b, _, one := newScriptBox(t)
	two := b.mkdir("h/two")
	b.works(one, "cat ~/.script.json ~/.settings/plain; echo kept > ~/session")
	if r := b.agentIn(one, "cat ~/session ~/.script.json"); !strings.HasPrefix(r.stdout, "kept\n{\"seeded\":true,") {
		t.Errorf("the second session: %+v", r)
	}
	for name, r := range map[string]result{"another project": b.agentIn(two, "ls ~/session"), "--fresh": b.agentIn(one, "--fresh", "ls ~/session")} {
		if r.code == 0 {
			t.Errorf("%s has the home: %+v", name, r)
		}
	}
	// A hostile home: links and a fifo where the host writes next time.
	victim := b.mkdir("victim")
	b.works(one, "rm -rf ~/.script.json ~/.settings; ln -s "+victim+"/f ~/.script.json; ln -s "+victim+" ~/.settings; mkfifo ~/.script.json.demesne")
	r := b.agentIn(one, "true")
	if left := names(victim); len(left) > 0 {
		t.Errorf("the host followed a link: %q", left)
	}
	if r.code == 0 || !strings.Contains(r.stderr, "hint: ") {
		t.Errorf("a home that cannot be used: %+v", r)
	}
	if left := b.sessions(); len(left) > 0 {
		t.Errorf("directories of sessions: %q", left)
	}
	kept, _ := filepath.Glob(b.home + "/.demesne/agents/script/*")
	for _, dir := range kept {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("home %s: %v %v", dir, st.Mode(), err)
		}
	}
	if len(kept) != 2 {
		t.Errorf("homes %q", kept)
	}
}

// TestAgentContinue checks that a session on a terminal ends with the command that continues it, if its home remains.
func TestAgentContinue(t *testing.T) {
	b, _, dir := newScriptBox(t)
	repo := b.repository("repo")
	for _, c := range []struct {
		dir, want string
		args      []string
	}{
		{dir, "hint: to continue this session: demesne agent script-agent --go-on last\r\n", nil},
		{repo, "hint: to continue this session: demesne agent --branch script-agent --go-on last\r\n", []string{"--branch"}},
		{dir, "", []string{"--fresh"}},
	} {
		term := b.agentTerminal(c.dir, append(c.args, "script-agent", "echo ended")...)
		if code := term.wait(); code != 0 || !strings.HasSuffix(term.screen(), c.want) || strings.Contains(term.screen(), "hint: ") != (c.want != "") {
			t.Errorf("%v: exit %d: %q", c.args, code, term.screen())
		}
	}
	if r := b.works(dir, "true"); strings.Contains(r.stderr, "hint: ") {
		t.Errorf("without a terminal: %+v", r)
	}
}

// TestAgentProtects checks that files that the host executes later stay as they are, and that new ones are named.
func TestAgentProtects(t *testing.T) {
	b, _, _ := newScriptBox(t)
	repo := b.repository("repo")
	b.host(repo, "echo old > .envrc; mkdir .vscode; echo '{}' > .vscode/tasks.json; ls -RA . > ../before")
	tries := []string{
		"echo bad > .git/hooks/pre-commit", "echo bad >> .git/config", "git config core.fsmonitor bad", "mv .git .old", "rm -rf .git/hooks",
		"mv .git/hooks .git/h", "echo bad > .envrc", "mv .envrc x", "rm -f .envrc", "ln -sf /etc/passwd .envrc", "echo bad > .vscode/tasks.json",
		"echo bad > .vscode/settings.json", "mv .vscode old", "mount -o remount,rw .git/config", "umount .git/config",
	}
	r := b.works(repo, strings.Join(quoted(tries), "\n"))
	if got := strings.Count(r.stdout, "refused"); got != len(tries) {
		t.Errorf("%d of %d tries were refused:\n%s", got, len(tries), r.stdout)
	}
	b.host(repo, "ls -RA . > ../after")
	if diff := b.host(b.home, "diff before after || :"); diff != "" {
		t.Errorf("changed in the project:\n%s", diff)
	}
	if strings.Contains(r.stderr, "review before use") {
		t.Errorf("it named %s", r.stderr)
	}
	r = b.works(repo, `echo '[alias]' > .git/commondir; echo x > .bashrc; mkdir -p sub/.vscode; echo x > sub/.vscode/tasks.json; git init -q inner; echo x > inner/.git/hooks/post-checkout; ln -s /etc Makefile; echo n > ordinary`)
	for _, want := range []string{".git/commondir (new), which git", ".bashrc (new), which bash", "sub/.vscode/tasks.json (new)", "inner/.git/hooks/post-checkout (new)", "Makefile (new)"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("%q is not named in:\n%s", want, r.stderr)
		}
	}
	if strings.Contains(r.stderr, "ordinary") {
		t.Errorf("an ordinary file is named:\n%s", r.stderr)
	}
}

// quoted makes each command print whether it was refused.
func quoted(tries []string) (lines []string) {
	for _, s := range tries {
		lines = append(lines, "if ( "+s+" ) 2>/dev/null; then echo done: '"+s+"'; else echo refused; fi")
	}
	return lines
}

// TestAgentHostile runs an agent that looks for the credential, and for whatever else its sandbox could reach.
func TestAgentHostile(t *testing.T) {
	b, m, _ := newScriptBox(t)
	repo := b.repository("repo")
	b.file("h/.ssh/id", "ssh "+canary, 0o600)
	b.file("h/other/file", canary, 0o644)
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("needs python3")
	}
	const client = `
import os, urllib.request, urllib.error
def ask(method, path, token):
    req = urllib.request.Request(os.environ["AGENT_URL"] + path, method=method, data=b'{"model":"m"}' if method == "POST" else None, headers={"X-Api-Key": token, "Content-Type": "application/json"})
    try: r = urllib.request.urlopen(req, timeout=10)
    except urllib.error.HTTPError as e: r = e
    print(method, path, r.status, flush=True); print(r.headers, r.read()[:4000])
t = os.environ["SCRIPT_TOKEN"]
ask("POST", "/v1/messages", t)
ask("POST", "/v1/messages", "wrong")
for method, path in [("GET", "/v1/models"), ("DELETE", "/v1/messages"), ("POST", "/v1/organizations"), ("POST", "/v1/messages/../keys"), ("POST", "//v1/messages"), ("GET", "/")]:
    ask(method, path, t)
`
	script := `echo ` + base64.StdEncoding.EncodeToString([]byte(client)) + ` | base64 -d > /tmp/c.py; python3 /tmp/c.py
env; cat /proc/*/environ /proc/*/cmdline /proc/*/maps 2>/dev/null | tr '\0' '\n'; cat ` + b.home + `/.ssh/id ` + b.home + `/other/file
find / -xdev -type f -size -200k \( -path '/proc/*' -o -path '/sys/*' -o -path '/usr/*' -o -path '/var/lib/*' \) -prune -o -type f -size -200k -newer /proc/1 -print0 2>/dev/null | xargs -0 grep -sal 'sk-real\|` + canary + `' 
ls -la ` + b.home + ` ` + b.dir + ` /run /in; true`
	r := b.works(repo, script)
	for _, secret := range []string{realKey, canary} {
		if all := r.stdout + r.stderr; strings.Contains(strings.ReplaceAll(all, script, ""), secret) {
			t.Errorf("%q reached the sandbox or the user's terminal:\n%s", secret, all)
		}
	}
	for _, want := range []string{"POST /v1/messages 200", "POST /v1/messages 401", "GET /v1/models 403", "DELETE /v1/messages 403", "POST /v1/organizations 403", "GET / 403"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
	for _, q := range m.Log() {
		if q.Path != "/v1/messages" || q.Header.Get("X-Api-Key") != realKey {
			t.Errorf("the server had %s %s with the key %q", q.Method, q.Path, q.Header.Get("X-Api-Key"))
		}
	}
	b.nowhere(b.home+"/.demesne", realKey)
	b.nowhere(repo, realKey)
}

// TestAgentKilled checks that a sandbox ends with the demesne that made it, and that the terminal's end ends it.
func TestAgentKilled(t *testing.T) {
	b, _, dir := newScriptBox(t)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // demesne does not ignore it then, even if nohup started the tests
	defer signal.Stop(hup)
	for name, sig := range map[string]syscall.Signal{"KILL": syscall.SIGKILL, "HUP": syscall.SIGHUP, "TERM": syscall.SIGTERM} {
		os.Remove(dir + "/alive")
		cmd := b.command("demesne", "agent", "script-agent", "while :; do date +%s%N > alive; sleep 0.05; done")
		cmd.Dir = dir
		cmd.SysProcAttr.Setsid = true
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the agent's file", func() bool { _, err := os.Stat(dir + "/alive"); return err == nil })
		cmd.Process.Signal(sig)
		began := time.Now()
		cmd.Wait()
		if d := time.Since(began); d > time.Minute {
			t.Errorf("%s ends it after %s", name, d)
		}
		eventually(t, name+" to end the sandbox", func() bool { return len(named("demesne-init")) == 0 })
	}
}

// sessions returns the directories of sessions of agents.
func (b *box) sessions() []string { return names(b.home + "/.demesne/agents/.sessions") }

// TestAgentKilledLeaves checks that the next session, and demesne gc, remove what a killed session left.
func TestAgentKilledLeaves(t *testing.T) {
	b, _, dir := newScriptBox(t)
	tmp := b.mkdir("tmp")
	b.extra = append(b.extra, "TMPDIR="+tmp)
	kill := func(args ...string) {
		os.Remove(dir + "/begun")
		cmd := b.command("demesne", append(append([]string{"agent"}, args...), "script-agent", "echo secret > ~/x; touch begun; sleep 60")...)
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the agent's file", func() bool { _, err := os.Stat(dir + "/begun"); return err == nil })
		if len(b.sessions()) == 0 {
			t.Fatal("a session has no directory")
		}
		if r := b.demesne("gc"); r.code != 0 || len(b.sessions()) == 0 {
			t.Errorf("gc beside a session: %+v, left %q", r, b.sessions())
		}
		cmd.Process.Kill()
		cmd.Wait()
	}
	for _, args := range [][]string{nil, {"--fresh"}} {
		kill(args...)
		eventually(t, "gc to remove the directory", func() bool {
			r := b.demesne("gc")
			return r.code == 0 && len(b.sessions()) == 0
		})
		kill(args...)
		eventually(t, "the next session to remove the directory", func() bool {
			b.works(dir, "true")
			return len(b.sessions()) == 0
		})
	}
	if left := names(tmp); len(left) > 0 {
		t.Errorf("temporary files: %q", left)
	}
}

// TestAgentTwice runs several sessions of one project at the same time. Each finds its token in the shared home until it ends.
func TestAgentTwice(t *testing.T) {
	b, _, dir := newScriptBox(t)
	script := `n=6; echo $$ >> both; while [ $(wc -l < both) -lt $n ]; do sleep 0.05; done; wc -l < both; cat ~/.script.json
grep -q "${SCRIPT_TOKEN#"${SCRIPT_TOKEN%????????????????????}"}" ~/.script.json || echo no token; sleep 0.3`
	cmds := []*exec.Cmd{}
	for range 6 {
		cmd := b.command("demesne", "agent", "script-agent", script)
		cmd.Dir = dir
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	for _, cmd := range cmds {
		err := cmd.Wait()
		if out := cmd.Stdout.(*strings.Builder).String(); err != nil || !strings.HasPrefix(out, "6\n{\"seeded\":true,") || strings.Contains(out, "no token") {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// TestAgentRefused checks the errors and hints of sessions that cannot start.
func TestAgentRefused(t *testing.T) {
	b, _, dir := newScriptBox(t)
	for _, c := range []struct{ name, env, agent, want string }{
		{"no credential", "SCRIPT_KEY=", "script-agent", `credential`},
		{"no program", "PATH=/usr/bin:/bin", "script-agent", `find program "script-agent"`},
		{"unknown", "A=b", "scirpt-agent", "unknown agent"},
		{"disabled", "DEMESNE_CODEX_ENABLED=false", "codex", "is disabled"},
	} {
		cmd := b.command("demesne", "agent", c.agent, "true")
		cmd.Dir, cmd.Env = dir, append(cmd.Env, c.env)
		if r := b.finish(cmd); r.code == 0 || !strings.Contains(r.stderr, c.want) || !strings.Contains(r.stderr, "hint: ") {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
	if r := b.finish(b.command("demesne", "agent")); r.code == 0 || !strings.Contains(r.stderr, "hint: ") {
		t.Errorf("no name: %+v", r)
	}
}
