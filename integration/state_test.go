package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"demesne/integration/fixture"
)

// TestStateWithoutHome checks that commands work for a user whose home is / or cannot be written, and that demesne says
// once where it keeps its files.
func TestStateWithoutHome(t *testing.T) {
	for _, home := range []string{"/", "/proc", "/nonexistent"} {
		b := newBox(t)
		tmp := b.mkdir("t")
		if os.Getuid() == 0 {
			b.as(54321)
			os.Chown(tmp, 54321, 54321)
		}
		b.extra = append(b.extra, "HOME="+home, "TMPDIR="+tmp, "XDG_RUNTIME_DIR=", "DEMESNE_SANDBOX_ROOT=", "DEMESNE_IMAGE_STORE=")
		first := b.demesne("run", "-c", "echo kept > /out/f; echo ran")
		if first.code != 0 || first.stdout != "ran\n" || strings.Count(first.stderr, "state and outputs are in "+tmp+"/demesne-state-") != 1 {
			t.Errorf("HOME %s: %+v", home, first)
		}
		if again := b.demesne("run", "--", "true"); again.code != 0 || again.stderr != "" {
			t.Errorf("HOME %s, second run: %+v", home, again)
		}
		state := names(tmp)
		if len(state) != 1 || !slices.Contains(names(tmp+"/"+state[0]), "out") {
			t.Errorf("HOME %s: state in %q", home, state)
		}
	}
}

// TestEscapeF41Home checks that a checkout which is HOME, as in some CI jobs, can be mounted, and that the sandbox can neither
// write what a later demesne obeys nor read a credential: the home of a person stays refused.
func TestEscapeF41Home(t *testing.T) {
	b := newBox(t)
	p, tmp := b.mkdir("ci/p"), b.mkdir("t")
	b.file("ci/p/.git/HEAD", "ref: refs/heads/main\n", 0o644)
	b.file("ci/p/.npmrc", "save-exact=true\n", 0o644)
	b.file("ci/p/.config/nextest.toml", "\n", 0o644)
	if os.Getuid() == 0 {
		b.as(54321)
		filepath.Walk(b.dir, func(path string, _ os.FileInfo, _ error) error { return os.Lchown(path, 54321, 54321) })
	}
	b.extra = append(b.extra, "HOME="+p, "TMPDIR="+tmp, "XDG_RUNTIME_DIR=", "DEMESNE_SANDBOX_ROOT=", "DEMESNE_IMAGE_STORE=")
	first := b.in(p, "run", "--here", "-c", "cat .config/nextest.toml .npmrc; echo made > made")
	if first.code != 0 || first.stdout != "\nsave-exact=true\n" || read(p+"/made") != "made\n" || !strings.Contains(first.stderr, "is a checkout: state and outputs are in "+tmp+"/demesne-state-") {
		t.Errorf("run: %+v", first)
	}
	attack := `for d in .demesne .config/demesne; do
	echo evil > $d/egress-rules.json; mkdir $d/jobs; rm -rf $d; mv $d gone; ln -s /tmp $d/x; chmod 777 $d; umount $d; done
	mv .config away; rm -rf .config; mkdir -p .config/demesne/y; mv .git aside; echo done`
	// The last one is without .git in its place.
	for _, flags := range [][]string{{"--workspace", p}, {"--workspace", "../p/."}, {"--here"}, {"--here"}} {
		if flags[0] == "--workspace" {
			b.file("ci/p/.git/HEAD", "ref: refs/heads/main\n", 0o644)
		}
		if r := b.in(p, append(append([]string{"run"}, flags...), "-c", attack)...); r.stdout != "" && r.stdout != "done\n" {
			t.Errorf("%q: attack: %+v", flags, r)
		}
		for _, d := range []string{".demesne", ".config/demesne"} {
			if info, err := os.Lstat(p + "/" + d); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 || d != ".demesne" && len(names(p+"/"+d)) > 0 {
				t.Errorf("%s: %v %v %q", d, info, err, names(p+"/"+d))
			}
		}
		if got := names(p + "/.demesne"); slices.Contains(got, "jobs") || slices.Contains(got, "egress-rules.json") {
			t.Errorf("planted: %q", got)
		}
	}
	os.RemoveAll(p + "/.demesne") // the second one kept its files there
	os.Rename(p+"/aside", p+"/.git")
	if r := b.in(p, "run", "--here=cow", "-c", "echo apart > made"); r.code != 0 || read(p+"/made") != "made\n" {
		t.Errorf("cow: %+v", r)
	}
	if r := b.in(p, "apply"); r.code != 0 || read(p+"/made") != "apart\n" {
		t.Errorf("apply: %+v", r)
	}
	refused := func(says string, args ...string) {
		t.Helper()
		if r := b.in(p, append(append([]string{"run"}, args...), "--", "true")...); r.code != 125 || !strings.Contains(r.stderr, says) {
			t.Errorf("%q: %+v", args, r)
		}
	}
	refused("overlaps", "--here", "--nesting")
	refused("overlaps", "--workspace", p, "--nesting")
	for _, f := range []struct{ name, text string }{{".npmrc", "//registry.test/:_authToken=x\n"}, {".netrc", ""}, {".config/gh/hosts.yml", ""}, {".claude/.credentials.json", ""}} {
		old, existed := read(p+"/"+f.name), f.name == ".npmrc"
		b.file("ci/p/"+f.name, f.text, 0o644)
		for _, args := range [][]string{{"--here"}, {"--here=ro"}, {"--here=cow"}, {"--workspace", p}, {"--in", p}, {"--mount", b.dir + "/ci"}} {
			refused("contains the home directory, which has credentials", args...)
		}
		if os.RemoveAll(p + "/" + f.name); existed {
			b.file("ci/p/"+f.name, old, 0o644)
		}
		os.Remove(p + "/.config/gh")
	}
	os.Rename(p+"/.git", p+"/git")
	refused("overlaps demesne's", "--here")
	refused("overlaps demesne's", "--workspace", p)
}

// TestEscapeF41Agents checks the same for agents: at a terminal in that checkout, and without one that have it as their
// workspace. Their own homes are elsewhere, so the checkout stays one.
func TestEscapeF41Agents(t *testing.T) {
	const attack = `for d in .demesne .config/demesne; do (echo x > $d/agents.json; mkdir $d/jobs; mv $d gone; rm -rf $d) 2> /dev/null; done; ls -A .demesne .config/demesne; echo made >> made`
	const nothing = ".config/demesne:\n\n.demesne:\n"
	checkout := func(b *box) string {
		p := b.mkdir("ci/p")
		b.file("ci/p/.git/HEAD", "ref: refs/heads/main\n", 0o644)
		if os.Getuid() == 0 {
			b.as(54321)
			filepath.Walk(b.dir, func(path string, _ os.FileInfo, _ error) error { return os.Lchown(path, 54321, 54321) })
		}
		b.extra = append(b.extra, "HOME="+p, "TMPDIR="+b.mkdir("t"), "XDG_RUNTIME_DIR=", "DEMESNE_SANDBOX_ROOT=", "DEMESNE_IMAGE_STORE=")
		if os.Getuid() == 0 {
			os.Chown(b.dir+"/t", 54321, 54321)
		}
		return p
	}
	holds := func(p string, n int) {
		t.Helper()
		if len(names(p+"/.demesne")) > 0 || len(names(p+"/.config/demesne")) > 0 || read(p+"/made") != strings.Repeat("made\n", n) {
			t.Errorf("%q %q, made %q", names(p+"/.demesne"), names(p+"/.config/demesne"), read(p+"/made"))
		}
	}
	t.Run("terminal", func(t *testing.T) {
		b, _, _ := newScriptBox(t)
		p := checkout(b)
		for n := range 2 {
			if r := b.agentIn(p, attack+"; echo $n >> ~/kept; cat ~/kept"); r.code != 0 || r.stdout != nothing+strings.Repeat("\n", n+1) {
				t.Errorf("%+v", r)
			}
			holds(p, n+1)
		}
		b.file("ci/p/.netrc", "", 0o644)
		if r := b.agentIn(p, "true"); r.code == 0 || !strings.Contains(r.stderr, "contains the home directory, which has credentials") {
			t.Errorf("with a credential: %+v", r)
		}
		os.Remove(p + "/.netrc")
		os.Rename(p+"/.git", p+"/git")
		if r := b.agentIn(p, "true"); r.code == 0 || !strings.Contains(r.stderr, "contains your home directory") {
			t.Errorf("no checkout: %+v", r)
		}
	})
	t.Run("workspace", func(t *testing.T) {
		b, _ := newAgentBox(t, fixture.Steps(shell("cd /workspace; "+attack), fixture.Answer{Text: "Done."}))
		p := checkout(b)
		for n := range 2 {
			if r := b.demesne("agent", "run", "--workspace", p, "Attack."); r.code != 0 {
				t.Errorf("%+v", r)
			}
			holds(p, n+1)
		}
		b.file("ci/p/.netrc", "", 0o644)
		if r := b.demesne("agent", "run", "--workspace", p, "Attack."); r.code == 0 || !strings.Contains(r.stderr, "contains the home directory, which has credentials") {
			t.Errorf("with a credential: %+v", r)
		}
	})
}

// TestStateShortName checks that a user without a usable home can pull a short name.
func TestStateShortName(t *testing.T) {
	g := newGallery(t)
	g.push("docker/team/app:1", v1.Config{Env: []string{"PATH=/bin"}}, g.busybox())
	tmp := g.mkdir("t")
	if os.Getuid() == 0 {
		g.as(54321)
		os.Chown(tmp, 54321, 54321)
		os.Chown(g.store, 54321, 54321)
	}
	g.extra = append(g.extra, "HOME=/", "TMPDIR="+tmp, "XDG_RUNTIME_DIR=", "XDG_CACHE_HOME=", "DEMESNE_SANDBOX_ROOT=")
	if r := g.demesne("pull", "team/app:1"); r.code != 0 {
		t.Errorf("pull: %+v", r)
	}
	if r := g.demesne("run", "--image", "team/app:1", "--", "echo", "ran"); r.code != 0 || r.stdout != "ran\n" {
		t.Errorf("run: %+v", r)
	}
	if left, _ := filepath.Glob(tmp + "/demesne-aliases.*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestStateAgent checks that agents work for a user without a usable home: in a run, and on the terminal with a project.
func TestStateAgent(t *testing.T) {
	b, m := newAgentBox(t, func(fixture.ModelRequest) fixture.Answer { return fixture.Answer{Text: "Done."} })
	tmp := b.mkdir("t")
	if os.Getuid() == 0 {
		b.as(54321)
		filepath.Walk(b.dir, func(path string, _ os.FileInfo, _ error) error { return os.Lchown(path, 54321, 54321) })
	}
	b.extra = append(b.extra, "HOME=/", "TMPDIR="+tmp, "XDG_RUNTIME_DIR=", "DEMESNE_SANDBOX_ROOT=")
	if r := b.demesne("agent", "run", "--json", "Work."); r.code != 0 || len(m.Log()) == 0 {
		t.Errorf("agent run: %+v", r)
	}
	project := b.mkdir("project")
	if r := b.in(project, "agent", "fake", "Work."); r.code != 0 {
		t.Errorf("agent: %+v", r)
	}
}
