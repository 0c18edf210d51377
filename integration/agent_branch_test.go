package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"demesne/integration/fixture"
)

var branchName = regexp.MustCompile(`branch (demesne[/-]script-[0-9-]+) has`)

// branchOf returns the branch that a session reported.
func branchOf(t *testing.T, r result) string {
	t.Helper()
	found := branchName.FindStringSubmatch(r.stderr)
	if r.code != 0 || found == nil {
		t.Fatalf("no branch: %+v", r)
	}
	return found[1]
}

// TestAgentBranch checks that the work of a session comes back as a branch, and that nothing else changes.
func TestAgentBranch(t *testing.T) {
	b, _, plain := newScriptBox(t)
	repo := b.repository("repo")
	b.mkdir("h/repo/sub")
	b.host(repo, "git tag v1; git worktree add -q ../tree; echo uncommitted > dirty.txt; echo changed > base.txt")
	before := b.host(repo, "git status --porcelain; cat .git/config; ls .git/hooks")
	work := `test "$PWD" = ` + repo + `/sub || pwd; git tag | grep -q v1 || exit 3; test ! -e ../dirty.txt || exit 4; grep -q base ../base.txt || exit 5
echo a > a.txt; git add a.txt; git commit -q -m one; echo b > ../b.txt; echo '#!/bin/sh' > ../.git/hooks/pre-push; git config core.fsmonitor /bad`
	r := b.works(repo+"/sub", "--branch", work)
	name := branchOf(t, r)
	if !strings.Contains(r.stderr, "has 2 new commits") || !strings.Contains(r.stderr, "not committed are not in it") {
		t.Errorf("it said %s", r.stderr)
	}
	if got := b.host(repo, "git log --format='%an %s' main.."+name+"; git ls-tree -r --name-only "+name+"; git fsck --strict"); got !=
		"A User Keep work that the agent did not commit\nA User one\nb.txt\nbase.txt\nsub/a.txt\n" && !strings.HasPrefix(got, "A User Keep work that the agent did not commit\nA User one\n") {
		t.Errorf("the branch: %q", got)
	}
	if after := b.host(repo, "git status --porcelain; cat .git/config; ls .git/hooks"); after != before {
		t.Errorf("the repository changed: %q, before %q", after, before)
	}
	if r := b.works(b.home+"/tree", "--branch", "echo c > c.txt"); !strings.Contains(r.stderr, "has 1 new commit;") {
		t.Errorf("in a worktree: %+v", r)
	}
	b.host(repo, "git checkout -q --detach -f HEAD && git commit -q --allow-empty -m detached")
	if name := branchOf(t, b.works(repo, "--branch", "echo d > d.txt")); b.host(repo, "git merge-base HEAD "+name) != b.host(repo, "git rev-parse HEAD") {
		t.Error("the branch of a detached HEAD starts elsewhere")
	}
	if r := b.works(repo, "--branch", "true"); !strings.Contains(r.stderr, "there is no branch") {
		t.Errorf("no work: %+v", r)
	}
	if r := b.agentIn(plain, "--branch", "true"); r.code == 0 || !strings.Contains(r.stderr, "in no git repository") {
		t.Errorf("no repository: %+v", r)
	}
	b.host(plain, "git init -q")
	if r := b.agentIn(plain, "--branch", "true"); r.code == 0 || !strings.Contains(r.stderr, "has no commit") {
		t.Errorf("an empty repository: %+v", r)
	}
	b.host(repo, "git for-each-ref --format='%(refname:short)' refs/heads/demesne | xargs git branch -q -D; git branch demesne")
	if name := branchOf(t, b.works(repo, "--branch", "echo e > e.txt")); !strings.HasPrefix(name, "demesne-script-") {
		t.Errorf("beside a branch \"demesne\" the name is %q", name)
	}
	if left := names(b.out); len(left) > 1 {
		t.Errorf("directories of output remain: %q", left)
	}
}

// TestAgentBranchSubmodule checks that the clone has the submodules that the repository has.
func TestAgentBranchSubmodule(t *testing.T) {
	b, _, _ := newScriptBox(t)
	b.repository("library")
	repo := b.repository("repo")
	b.host(repo, "git -c protocol.file.allow=always submodule --quiet add ../library lib && git commit -q -m library")
	if r := b.works(repo, "--branch", "cat lib/base.txt; echo a > a"); r.stdout != "base\n" || !strings.Contains(r.stderr, "1 new commit;") {
		t.Errorf("%+v", r)
	}
}

// TestAgentBranchHostile checks bundles that a hostile agent writes, and a repository whose configuration an earlier
// session wrote: the host executes nothing, and changes no other reference.
func TestAgentBranchHostile(t *testing.T) {
	b, _, _ := newScriptBox(t)
	repo := b.repository("repo")
	mark := b.home + "/executed"
	bad := b.file("h/bad", "#!/bin/sh\ntouch "+mark+"\n", 0o755)
	b.host(repo, `for k in core.fsmonitor core.sshCommand core.alternateRefsCommand core.pager diff.external gpg.program filter.x.clean filter.x.smudge filter.x.process `+
		`remote.origin.uploadpack credential.helper core.askPass core.editor uploadpack.packObjectsHook alias.fetch; do git config $k `+bad+`; done
mkdir evil; cp `+bad+` evil/reference-transaction; cp `+bad+` evil/post-checkout; git config core.hooksPath $PWD/evil; git config fetch.recurseSubmodules true; git config gc.auto 1
git config extensions.partialClone origin; git config core.repositoryFormatVersion 1; git config remote.origin.promisor true; git config remote.origin.url `+b.home+`; git config maintenance.auto true
mkdir -p other/objects; echo $PWD/other/objects > .git/objects/info/alternates`)
	os.Remove(mark)
	refs := b.host(repo, "cat .git/refs/heads/* .git/packed-refs 2>/dev/null || :")
	for name, script := range map[string]string{
		"junk":        "head -c 100000 /dev/urandom > /out/branch.bundle; chmod 444 /out/branch.bundle; kill -9 $PPID",
		"a link":      "ln -s " + repo + "/.git/config /out/branch.bundle; kill -9 $PPID",
		"a directory": "mkdir /out/branch.bundle; kill -9 $PPID",
		"a fifo":      "mkfifo /out/branch.bundle; kill -9 $PPID",
		"huge":        "truncate -s 3G /out/branch.bundle; kill -9 $PPID",
		"other refs":  "git commit -q --allow-empty -m x; git bundle create -q /out/branch.bundle HEAD --all; kill -9 $PPID",
		"bad objects": `t=$(printf '100644 .git\000%s' "$(printf '\125%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20)" | git hash-object -t tree --literally -w --stdin)
c=$(printf 'tree %s\nauthor a <a> 0 +0000\ncommitter a <a> 0 +0000\n\nx' $t | git hash-object -t commit --literally -w --stdin); git update-ref --no-deref HEAD $c
p=$(printf '%s\n%s\n' $t $c | git pack-objects -q --stdout | base64 -w0); b=$(git symbolic-ref HEAD); { printf '# v2 git bundle\n%s %s\n\n' $c $b; echo $p | base64 -d; } > /out/branch.bundle; kill -9 $PPID`,
	} {
		r := b.agentIn(repo, "--branch", script)
		if r.code == 0 || name != "other refs" && strings.Contains(r.stderr, "review with") {
			t.Errorf("%s: %+v", name, r)
		}
		if _, err := os.Lstat(mark); err == nil {
			t.Fatalf("%s: the host executed a program of the repository's configuration", name)
		}
		b.host(repo, "ls .git/refs/heads/demesne 2>/dev/null | xargs -I{} rm .git/refs/heads/demesne/{}; rm -rf .git/refs/heads/demesne")
		if now := b.host(repo, "cat .git/refs/heads/* .git/packed-refs 2>/dev/null || :"); now != refs {
			t.Errorf("%s: references changed:\n%s", name, now)
		}
	}
	if r := b.agentIn(repo, "--branch", "echo fine > fine"); !strings.Contains(r.stderr, "1 new commit;") {
		t.Errorf("an honest session: %+v", r)
	}
	if _, err := os.Lstat(mark); err == nil {
		t.Error("the host executed a program of the repository's configuration")
	}
}

// TestAgentFork checks that several attempts at one task start from one preparation, and come back as branches of their own.
func TestAgentFork(t *testing.T) {
	b, m, _ := newScriptBox(t)
	repo := b.repository("repo")
	b.host(repo, "echo ignored > .gitignore && git add . && git commit -q -m second")
	const setup = `echo once >&2; curl -s -o model -d '{}' -H "X-Api-Key: $SCRIPT_TOKEN" $AGENT_URL/v1/messages; rm -f model; test "$(cat ~/.script.json | wc -c)" -gt 0 || exit 3; cat /proc/sys/kernel/random/uuid | tee ignored > 'left [x]'; mkdir d; touch d/f ~/y`
	r := b.works(repo, "--branch", "--fork", "3", "--setup", setup, `cat /proc/sys/kernel/random/uuid > mine; cmp ignored 'left [x]' || exit 4; test ! -e ~/x && test -e ~/y -a -e d/f || exit 5; touch ~/x; echo more >> ignored
grep -q "${SCRIPT_TOKEN#"${SCRIPT_TOKEN%????????????????????}"}" ~/.script.json || exit 6; git branch --show-current
code=$(curl -so /dev/null -w '%{http_code}' -d '{"model":"claude-sonnet-5","messages":[]}' -H "X-Api-Key: $SCRIPT_TOKEN" $AGENT_URL/v1/messages); test $code = 200 || exit 7; echo said $SCRIPT_TOKEN; cat ignored; test $(wc -l < ignored) = 2`)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(lines) != 4 || strings.Count(r.stderr, "once\n") != 1 || strings.Contains(r.stderr, "without its secrets") {
		t.Fatalf("%+v", r)
	}
	seen, tokens := map[string]bool{}, map[string]bool{}
	for i, line := range lines[1:] {
		f := strings.Fields(line)
		if len(f) != 6 || f[0] != string(rune('1'+i)) || f[1] != "0" || f[3] == "$0.0000" || f[4] != "1" || !strings.HasPrefix(f[5], "demesne/script-") || !strings.HasSuffix(f[5], "/attempt-"+f[0]) {
			t.Errorf("attempt %q", line)
			continue
		}
		seen[b.host(repo, "git show "+f[5]+":mine")] = true
		if got := b.host(repo, "git diff --name-only main "+f[5]); got != "mine\n" {
			t.Errorf("attempt %s changed %q", f[0], got)
		}
	}
	said, _ := filepath.Glob(b.out + "/*/*.stdout")
	for _, path := range said {
		text, _ := os.ReadFile(path)
		_, token, _ := strings.Cut(string(text), "said ")
		tokens[strings.Split(token, "\n")[0]] = true
	}
	if len(seen) != 3 || len(tokens) != 3 || len(withCredential(m)) != 3 {
		t.Errorf("%d different results, %d tokens, %d requests", len(seen), len(tokens), len(m.Log()))
	}
	term := b.agentTerminal(repo, "--branch", "--fork", "2", "--setup", "test ! -t 0 -a ! -t 1 && echo prepared", "script-agent", "test ! -t 0")
	if code, shown := term.wait(), term.screen(); code != 0 || !strings.Contains(shown, "prepared\r\n") || !strings.Contains(shown, "ATTEMPT") {
		t.Errorf("on a terminal: exit %d: %q", code, shown)
	}
	if r := b.agentIn(repo, "--fork", "2", "true"); r.code == 0 || !strings.Contains(r.stderr, "needs --branch") {
		t.Errorf("without --branch: %+v", r)
	}
	if r := b.agentIn(repo, "--setup", "true", "true"); r.code == 0 || !strings.Contains(r.stderr, "needs --branch") {
		t.Errorf("--setup without --branch: %+v", r)
	}
	if r := b.agentIn(repo, "--branch", "--fork", "2", "--setup", "exit 9", "true"); r.code != 9 || !strings.Contains(r.stderr, "--setup: exit code 9") || r.stdout != "" {
		t.Errorf("a setup that fails: %+v", r)
	}
	if r := b.agentIn(repo, "--branch", "--fork", "2", "exit 7"); r.code != 7 || strings.Count(r.stdout, " 7 ") != 2 {
		t.Errorf("attempts that fail: %+v", r)
	}
	if r := b.works(repo, "--branch", "--setup", "touch made", "test -e made; echo a > a"); !strings.Contains(r.stderr, "has 1 new commit;") {
		t.Errorf("--setup without --fork: %+v", r)
	}
	b.noForks(t)
	if r := b.demesne("gc", "--outputs", "--older-than", "1ns"); r.code != 0 || len(directories(b.out)) > 0 {
		t.Errorf("gc: %+v, left %q", r, directories(b.out))
	}
}

// withCredential returns the requests that had the credential.
func withCredential(m *fixture.Model) (all []fixture.ModelRequest) {
	for _, q := range m.Log() {
		if q.Header.Get("X-Api-Key") == realKey {
			all = append(all, q)
		}
	}
	return all
}

// directories returns the output directories below a root.
func directories(root string) (all []string) {
	for _, name := range names(root) {
		if !strings.HasPrefix(name, ".") {
			all = append(all, name)
		}
	}
	return all
}

// noForks checks that no sandbox of attempts remains.
func (b *box) noForks(t *testing.T) {
	t.Helper()
	list := ""
	eventually(t, "the end of all sandboxes", func() bool {
		list = b.demesne("ls", "--json").stdout
		return !strings.Contains(list, `"id"`)
	})
	if left := b.sessions(); len(left) > 0 {
		t.Errorf("directories of sessions: %q", left)
	}
}

// TestAgentForkEnds checks that a signal ends the preparation and the attempts, that nothing remains, and that the work of
// interrupted attempts comes back.
func TestAgentForkEnds(t *testing.T) {
	b, _, _ := newScriptBox(t)
	repo := b.repository("repo")
	slow := `echo work > work; trap 'exit 130' INT TERM; touch /out/begun; while :; do sleep 0.05; done`
	for _, c := range []struct {
		sig          syscall.Signal
		setup, agent string
	}{
		{syscall.SIGINT, slow, "true"}, {syscall.SIGTERM, slow, "true"}, {syscall.SIGKILL, slow, "true"},
		{syscall.SIGINT, "true", slow}, {syscall.SIGTERM, "true", slow}, {syscall.SIGKILL, "true", slow},
		{syscall.SIGINT, "true", "test ! -e /out/../quick; case $(git branch --show-current) in *-1) exit 0;; esac; " + slow},
	} {
		cmd := b.command("demesne", "agent", "--branch", "--fork", "2", "--setup", c.setup, "script-agent", c.agent)
		var out strings.Builder
		cmd.Dir, cmd.Stdout, cmd.Stderr = repo, &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		want := 1
		if c.agent == slow {
			want = 2
		}
		eventually(t, "a command in each fork", func() bool { found, _ := filepath.Glob(b.out + "/*/*/begun"); return len(found) == want })
		cmd.Process.Signal(c.sig)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); c.sig != syscall.SIGKILL && code == 0 && !strings.Contains(c.agent, "exit 0") {
			t.Errorf("%v: exit %d: %s", c, code, out.String())
		}
		if c.setup != slow && c.sig != syscall.SIGKILL && !strings.Contains(out.String(), "/attempt-2\n") {
			t.Errorf("%v: no work came back: %s", c, out.String())
		}
		if c.sig == syscall.SIGKILL {
			eventually(t, "gc to remove the directory", func() bool { return b.demesne("gc").code == 0 && len(b.sessions()) == 0 })
		}
		b.noForks(t)
		b.host(b.out, "rm -rf ./*")
	}
}
