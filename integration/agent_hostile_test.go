package integration

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// intruder is a child that has its parent's token. It asks its own route with both tokens, and then every address and
// port near its own, and every socket that it finds.
const intruder = `
import os, re, socket, stat, urllib.error, urllib.request
own, stolen = os.environ["FAKE_TOKEN"], open("/workspace/token").read().strip()
urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))
def ask(url, token):
    body = b'{"model":"m","max_tokens":5,"tools":[{"name":"INTRUDER"}],"messages":[{"role":"user","content":"hi"}]}'
    req = urllib.request.Request(url + "/v1/messages", body, {"X-Api-Key": token, "Content-Type": "application/json"})
    try: return urllib.request.urlopen(req, timeout=3).status
    except urllib.error.HTTPError as e: return e.code
    except Exception as e: return type(e).__name__
print("different", own != stolen, "own", ask(os.environ["FAKE_URL"], own), "stolen", ask(os.environ["FAKE_URL"], stolen))
near = set()
for a in re.findall(r"(\d+\.\d+\.\d+)\.(\d+)", open("/proc/net/fib_trie").read()):
    if not a[0].startswith(("127.", "0.")): near |= {"%s.%d" % (a[0], n) for n in range(max(0, int(a[1]) - 3), min(256, int(a[1]) + 4))}
for host in sorted(near) + ["127.0.0.1"]:
    for port in (8083, 8084, 8085, 8086, 8088, 8089, 8090):
        url = "http://%s:%d" % (host, port)
        if url == os.environ["FAKE_URL"]: continue
        try: socket.create_connection((host, port), 0.3).close()
        except OSError: continue
        for token in (own, stolen):
            if ask(url, token) == 200: print("REACHED", url)
        try: print("OTHER-TREE" if b"wait" in urllib.request.urlopen(url + "/mcp", timeout=1).read(200) else "", url)
        except Exception: pass
for dir, dirs, files in os.walk("/"):
    dirs[:] = [d for d in dirs if os.path.join(dir, d) not in ("/proc", "/sys", "/usr", "/var/lib")]
    for f in files:
        p = os.path.join(dir, f)
        try:
            if stat.S_ISSOCK(os.lstat(p).st_mode): print("SOCKET", p)
        except OSError: pass
for line in open("/proc/net/unix"):
    if "@" in line: print("ABSTRACT", line.strip())
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        for fd in os.listdir("/proc/%s/fd" % pid):
            to = os.readlink("/proc/%s/fd/%s" % (pid, fd))
            if "demesne" in to and "/.demesne-init" not in to: print("DESCRIPTOR", pid, to)
    except OSError: pass
print("searched", len(near) > 0)
`

// TestAgentIntruder runs a child agent that has its parent's token: it uses it on no route, and reaches neither the
// routes and MCP server of another sandbox nor a socket of the runner or the proxy.
func TestAgentIntruder(t *testing.T) {
	child := fixture.Steps(shell("echo "+base64.StdEncoding.EncodeToString([]byte(intruder))+" | base64 -d > /tmp/i.py; python3 /tmp/i.py > /out/found 2>&1"), fixture.Answer{Text: "Child done."})
	b, m := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if strings.Contains(r.Prompt, "CHILD") {
			return child(r)
		}
		return fixture.Steps(shell("echo $FAKE_TOKEN > /workspace/token"),
			childTool("agent", map[string]any{"name": "intruder", "prompt": "CHILD", "egress": "package-managers"}), fixture.Answer{Text: "Done."})(r)
	})
	r := b.agentTree("Work.", "--egress", "package-managers")
	found := r.file(t, "out/child/intruder/found")
	if r.code != 0 || !strings.HasPrefix(found, "different True own 200 stolen 401\n") || !strings.HasSuffix(found, "searched True\n") {
		t.Errorf("%+v: it found\n%s", r.result, found)
	}
	for _, bad := range []string{"REACHED", "OTHER-TREE", "SOCKET", "ABSTRACT", "DESCRIPTOR"} {
		if strings.Contains(found, bad) {
			t.Errorf("it found\n%s", found)
		}
	}
	n := 0
	for _, q := range m.Log() {
		if strings.Contains(string(q.Body), "INTRUDER\"}]") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d requests of the intruder reached the model", n)
	}
}

// TestAgentForged checks that an agent cannot enlarge its budget: it forges its records of usage in /out, changes its own
// configuration, and starts a child with a bigger budget.
func TestAgentForged(t *testing.T) {
	forge := shell(`for f in usage.json usage.jsonl results.json transcript.jsonl; do echo '{"own_usage_usd":-1000,"total_usage_usd":-1000,"cost_usd":-1000,"max_cost_usd":1000}' > /out/$f; done
for f in /in/.agent/*; do echo '{}' > $f && echo changed $f >> /out/changed; done; ln -sf /etc/passwd /in/.agent/x && echo linked >> /out/changed; true`)
	b, _ := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		switch {
		case strings.Contains(r.Prompt, "CHILD") && len(r.Results) == 0, len(r.Results) == 0:
			return forge
		case strings.Contains(r.Prompt, "CHILD"):
			return endless(r)
		}
		return childTool("agent", map[string]any{"name": "greedy", "prompt": "CHILD", "max_cost_usd": 100, "max_turns": 1000})
	})
	r := b.agentTree("Orchestrate.", "--max-cost", "0.004")
	if r.code != 137 || !strings.HasPrefix(r.results.Reason, "budget: cost: $") || len(r.results.Children) != 1 || r.results.Children[0].ExitCode != 137 {
		t.Errorf("%+v", r)
	}
	if r.results.Own <= 0 || r.results.Total <= 0.004 || r.results.Total > 0.01 || r.results.Children[0].Total <= 0 {
		t.Errorf("the forged usage counts: %+v", r.results)
	}
	for _, name := range []string{"out/usage.json", "out/usage.jsonl", "out/results.json", "out/transcript.jsonl", "out/child/greedy/usage.json"} {
		for line := range strings.Lines(r.file(t, name)) {
			if strings.HasPrefix(line, `{"own_usage_usd":-1000`) {
				t.Errorf("%s has the forged line", name)
			}
		}
	}
	for _, name := range []string{"/out/changed", "/out/child/greedy/changed"} {
		if text, err := os.ReadFile(r.dir + name); err == nil {
			t.Errorf("its configuration was writable: %s", text)
		}
	}
}

// TestAgentPlantedBetween checks runs that use the output directory and the workspace files of an earlier one: links and
// fifos at the names of the host's own files lead it nowhere.
func TestAgentPlantedBetween(t *testing.T) {
	victims := t.TempDir() + "/victims"
	b, _ := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if strings.Contains(r.Prompt, "PLANT") {
			return fixture.Steps(shell(`cd /out; rm -rf results.json usage.json usage.jsonl stderr.log transcript.jsonl child
for f in results.json usage.json usage.jsonl stderr.log; do ln -s `+victims+`/$f $f; done; mkfifo transcript.jsonl; ln -s `+victims+` child; mkdir -p sub; ln -s `+victims+`/secret sub/link; ls -l > /dev/null`), fixture.Answer{Text: "Planted."})(r)
		}
		return fixture.Steps(shell("cat /in/*/sub/link /in/*/results.json; echo x > /out/x"),
			childTool("script", map[string]any{"name": "a", "command": "echo x > /out/planted"}), fixture.Answer{Text: "Done."})(r)
	})
	if err := os.Mkdir(victims, 0o777); err != nil {
		t.Fatal(err)
	}
	os.Chmod(victims, 0o777)
	for _, name := range []string{"results.json", "secret"} {
		if err := os.WriteFile(victims+"/"+name, []byte("mine "+canary), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	out := b.dir + "/again"
	if r := b.demesne("agent", "run", "--out", out, "PLANT"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	r := b.demesne("agent", "run", "--out", out, "--in", out, "Work.")
	for _, name := range []string{"results.json", "secret"} {
		if got, _ := os.ReadFile(victims + "/" + name); string(got) != "mine "+canary {
			t.Errorf("%s is now %q", name, got)
		}
	}
	if got := names(victims); len(got) != 2 {
		t.Errorf("the host wrote %q", got)
	}
	if r.code != 0 || r.stdout != "Done.\n" {
		t.Errorf("the second run: %+v", r)
	}
	b.nowhere(out, canary)
	var results treeResults
	if text, err := os.ReadFile(out + "/results.json"); err != nil || json.Unmarshal(text, &results) != nil || results.Total <= 0 {
		t.Errorf("results: %s, %v", text, err)
	}
	if said, err := os.ReadFile(out + "/transcript.jsonl"); !strings.Contains(string(said), "a sandbox made an entry of this name") {
		t.Errorf("the child was not refused: %s, %v", said, err)
	}
}

// TestAgentGitBetween checks that a repository that an agent prepared in one session runs nothing on this machine in the
// next ones, and shows nothing from outside the project.
func TestAgentGitBetween(t *testing.T) {
	b, _, dir := newScriptBox(t)
	pwned := b.dir + "/pwned"
	b.mkdir("pwned")
	os.Chmod(pwned, 0o777)
	b.file("h/.ssh/id", "ssh "+canary, 0o600)
	evil := `touch ` + pwned + `/$$ ; false`
	b.works(dir, `git init -q -b main .; echo x > f; echo '* filter=x diff=x' > .gitattributes; git add . && git commit -q -m one
printf '#!/bin/sh\n`+evil+`\n' > evil; chmod 755 evil; for h in pre-commit post-checkout post-merge reference-transaction post-index-change fsmonitor-watchman; do cp evil .git/hooks/$h; done
for k in core.fsmonitor core.sshCommand core.pager core.editor core.alternateRefsCommand filter.x.clean filter.x.smudge filter.x.process diff.x.command diff.external credential.helper gpg.program uploadpack.packObjectsHook; do git config $k $PWD/evil; done
git config alias.rev-parse '!`+evil+`'; git config core.worktree `+b.home+`/.ssh; git config include.path ../evil.inc; printf '[core]\n\thooksPath = ../\n' > evil.inc; echo y > f
mkdir -p .git/objects/info; echo `+b.home+`/.ssh > .git/objects/info/alternates; cp evil pre-push; mkdir -p .git/worktrees/w; echo `+b.home+`/.ssh > .git/worktrees/w/commondir; echo `+b.home+`/.ssh/.git > .git/worktrees/w/gitdir`)
	for _, args := range [][]string{{}, {"--branch"}} {
		r := b.agentIn(dir, append(args, "cat "+b.home+"/.ssh/id; echo c > f; git add f; git commit -q -m two; true")...)
		if got := names(pwned); len(got) > 0 {
			t.Fatalf("%q: this machine ran the repository's programs: %q", args, got)
		}
		if strings.Contains(r.stdout+r.stderr, canary) {
			t.Errorf("%q: %+v", args, r)
		}
	}
	// Links in place of the repository's data, and of the project's files.
	for _, plant := range []string{"ln -s " + b.home + "/.ssh .git", "echo 'gitdir: " + b.home + "/.ssh' > .git", "mkdir .git; ln -s " + b.home + "/.ssh .git/hooks; ln -s " + b.home + "/.ssh/id .git/config", "ln -s " + b.home + "/.ssh .vscode; ln -s " + b.home + "/.ssh/id .envrc"} {
		other := b.mkdir("h/other")
		b.works(other, plant)
		r := b.agentIn(other, "cat .git/id .git/config .git/hooks/id .vscode/id .envrc "+b.home+"/.ssh/id; echo w > .envrc; true")
		if id, _ := os.ReadFile(b.home + "/.ssh/id"); strings.Contains(r.stdout+r.stderr, canary) || string(id) != "ssh "+canary {
			t.Errorf("%s: %+v, the file is %q", plant, r, id)
		}
		os.RemoveAll(other)
	}
}

// TestAgentNewHooks checks that files in directories that did not exist are named at the end.
func TestAgentNewHooks(t *testing.T) {
	b, _, _ := newScriptBox(t)
	repo := b.repository("repo")
	b.host(repo, "rm -rf .git/hooks")
	r := b.works(repo, "mkdir -p .git/hooks .vscode .idea/runConfigurations; for f in .git/hooks/pre-commit .envrc .vscode/tasks.json .idea/runConfigurations/x.xml; do echo x > $f; done")
	for _, want := range []string{".git/hooks/pre-commit (new), which git", ".envrc (new), which direnv", ".vscode/tasks.json (new), which VS Code", ".idea/runConfigurations/x.xml (new), which JetBrains"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("%q is not named in:\n%s", want, r.stderr)
		}
	}
}
