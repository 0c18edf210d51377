package integration

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// install runs install.sh of a release, as the user of the box, from a directory that the user cannot write.
func (b *box) install(dir string, args ...string) result {
	b.Helper()
	return b.finish(b.command("/bin/sh", append([]string{dir + "/install.sh"}, args...)...))
}

// archive returns the path of the archive in a release.
func (b *box) archive(dir string) string {
	b.Helper()
	found, err := filepath.Glob(dir + "/*.tar.gz")
	if err != nil || len(found) != 1 {
		b.Fatalf("archives in %s: %q, %v", dir, found, err)
	}
	return found[0]
}

// filesBelow counts everything except directories.
func filesBelow(dir string) (n int) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return nil
	})
	return n
}

// TestInstall makes a signed release and verifies it. It installs the release below the home of an ordinary user, upgrades it
// while a command runs in a sandbox, and removes it.
func TestInstall(t *testing.T) {
	b := newBox(t)
	dir, key := b.released()
	b.verifies(dir, key)
	b.refuses(dir)
	b.interrupted(dir)
	if os.Getuid() == 0 {
		b.as(4711)
	}
	b.installs(dir, key)
}

// installs is the part of TestInstall that needs no rights.
func (b *box) installs(dir, key string) {
	b.Helper()
	archive, prefix := b.archive(dir), b.home+"/.local"
	if r := b.install(dir, "--public-key", key, archive); r.code != 0 || !strings.Contains(r.stdout, "installed demesne 0.1.0 ") ||
		!strings.Contains(r.stdout, prefix+"/bin is not in PATH") || strings.Contains(r.stdout, "no signature") {
		b.Fatalf("%+v", r)
	}
	installed := filesBelow(prefix)
	b.extra = append(b.extra, "PATH="+prefix+"/bin:"+os.Getenv("PATH"))
	demesne := func(args ...string) result { return b.finish(b.command(prefix+"/bin/demesne", args...)) }
	if r := demesne("run", "--", "echo", "ok"); r.stdout != "ok\n" {
		b.Errorf("run: %+v", r)
	}
	if r := b.finish(b.command(prefix+"/bin/demesne-mcp", "--version")); r.code != 0 {
		b.Errorf("demesne-mcp: %+v", r)
	}
	for name, want := range map[string]string{
		"share/systemd/user/demesne.service": "ExecStart=" + prefix + "/bin/demesne serve\n", "share/demesne/apparmor": "profile demesne " + prefix + "/libexec/demesne/demesne-runner ",
		"share/man/man1/demesne-run.1": "demesne run", "share/bash-completion/completions/demesne": "demesne", "share/doc/demesne/licences.txt": "Landlock",
	} {
		if text, err := os.ReadFile(prefix + "/" + name); err != nil || !strings.Contains(strings.ToLower(string(text)), strings.ToLower(want)) {
			b.Errorf("%s lacks %q: %v", name, want, err)
		}
	}

	demesne("create", "--name", "live")
	cmd := b.command(prefix+"/bin/demesne", "exec", "-i", "live", "--", "sh", "-c", "echo started; cat")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		b.Fatal(err1, err2)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "started" {
		b.Fatalf("%q", lines.Text())
	}
	b.file("h/.local/bin/demesne-runner", "a program of make install", 0o755)
	b.file("h/.local/share/demesne/former", "", 0o644)
	os.Chmod(prefix+"/share/demesne/files", 0o666)
	list, err := os.OpenFile(prefix+"/share/demesne/files", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	list.WriteString("share/demesne/former\n")
	list.Close()
	if r := b.install(dir, b.archive(dir)); r.code != 0 || !strings.Contains(r.stdout, "no signature") {
		b.Errorf("upgrade: %+v", r)
	}
	if n := filesBelow(prefix); n != installed {
		b.Errorf("%d files after the upgrade, %d before", n, installed)
	}
	in.Write([]byte("still here\n"))
	in.Close()
	if !lines.Scan() || lines.Text() != "still here" {
		b.Errorf("the command printed %q", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		b.Error(err)
	}
	if r := demesne("exec", "live", "--", "echo", "again"); r.stdout != "again\n" {
		b.Errorf("exec after the upgrade: %+v", r)
	}
	if r := demesne("run", "--", "echo", "ok"); r.stdout != "ok\n" {
		b.Errorf("run after the upgrade: %+v", r)
	}
	demesne("rm", "live")
	if r := b.install(dir, "--uninstall"); r.code != 0 || filesBelow(prefix) != 0 {
		b.Errorf("%d files remain: %+v", filesBelow(prefix), r)
	}
	defer os.RemoveAll(prefix)
	if r := b.install(dir, "--uninstall"); r.code != 1 {
		b.Errorf("a second --uninstall: %+v", r)
	}
}

// refuses checks that install.sh changes nothing when a file is not of the release, or not for this machine.
func (b *box) refuses(dir string) {
	b.Helper()
	archive := b.archive(dir)
	if err := tool("minisign", "-G", "-W", "-p", b.dir+"/other.pub", "-s", b.dir+"/other.key"); err != nil {
		b.Fatal(err)
	}
	const alien = "demesne-0.1.0-linux-riscv64.tar.gz"
	b.file(alien, "", 0o644)
	b.mkdir("sums")
	b.file("sums/"+filepath.Base(archive), "", 0o644)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{}, "usage: "},
		{[]string{archive + ".missing"}, "does not exist"},
		{[]string{"--force", archive}, "unknown flag --force"},
		{[]string{"--prefix", "/a b", archive}, "the prefix has a character"},
		{[]string{"--prefix=", archive}, "the prefix is empty"},
		{[]string{b.dir + "/" + alien}, "is not for this machine"},
		{[]string{b.dir + "/sums/" + filepath.Base(archive)}, "SHA256SUMS is missing"},
		{[]string{"--public-key", b.dir + "/other.pub", archive}, "not signed by this key"},
	} {
		if r := b.install(dir, append([]string{"--prefix=" + b.dir + "/prefix"}, c.args...)...); r.code == 0 || !strings.Contains(r.stderr, c.want) {
			b.Errorf("%q: %+v, want %q", c.args, r, c.want)
		}
	}
	changed := b.file("sums/"+filepath.Base(archive), "other content", 0o644)
	if err := os.Link(dir+"/SHA256SUMS", b.dir+"/sums/SHA256SUMS"); err != nil {
		b.Fatal(err)
	}
	if r := b.install(dir, "--prefix", b.dir+"/prefix", changed); r.code != 1 || !strings.Contains(r.stderr, "does not have the checksum") {
		b.Errorf("changed archive: %+v", r)
	}
	cmd := b.command("/bin/sh", dir+"/install.sh", "--prefix", "relative", archive)
	cmd.Dir = b.mkdir("a,b")
	if r := b.finish(cmd); r.code == 0 || !strings.Contains(r.stderr, "the prefix has a character") {
		b.Errorf("a relative prefix: %+v", r)
	}
	if n := filesBelow(b.dir + "/prefix"); n != 0 {
		b.Errorf("%d files after refusals", n)
	}
}

// interrupted checks that --uninstall removes all files of an installation that failed halfway, and that HOME is not needed
// with a prefix.
func (b *box) interrupted(dir string) {
	b.Helper()
	b.file("mv/mv", "#!/bin/sh\ncase $3 in */bin/demesne) exit 1 ;; esac\nexec /bin/mv \"$@\"\n", 0o755)
	at := "--prefix=" + b.dir + "/prefix"
	r := b.finish(b.command("/usr/bin/env", "PATH="+b.dir+"/mv:/usr/bin:/bin", "/bin/sh", dir+"/install.sh", at, b.archive(dir)))
	if n := filesBelow(b.dir + "/prefix"); r.code == 0 || n == 0 {
		b.Errorf("%d files, %+v", n, r)
	}
	if r := b.finish(b.command("/usr/bin/env", "-u", "HOME", "/bin/sh", dir+"/install.sh", at, "--uninstall")); r.code != 0 || filesBelow(b.dir+"/prefix") != 0 {
		b.Errorf("%d files remain, %+v", filesBelow(b.dir+"/prefix"), r)
	}
}

// TestInstallCI runs the script that GitHub's action and GitLab's template have in common.
func TestInstallCI(t *testing.T) {
	program(t, "curl")
	b := newBox(t)
	dir, key := b.released()
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	scripts := map[string]string{}
	for path, start := range map[string]string{"../.github/actions/install/action.yml": "      run: |\n", "../examples/ci-install/gitlab.yml": "    - |\n"} {
		script, err := literal(path, start)
		if err != nil {
			t.Fatal(err)
		}
		scripts[path] = script
	}
	script := scripts["../examples/ci-install/gitlab.yml"]
	if script != scripts["../.github/actions/install/action.yml"] {
		t.Error("the action and the template run different scripts")
	}
	if os.Getuid() == 0 {
		b.as(4712)
	}
	defer os.RemoveAll(b.home + "/.local")
	b.extra = append(b.extra, "DEMESNE_RELEASE=file://"+dir, "DEMESNE_VERSION=0.1.0", "DEMESNE_REQUIRE=degraded", "TMPDIR="+b.mkdir("tmp"))
	run := func(key string) result {
		return b.finish(b.command("/bin/bash", "-c", "export DEMESNE_PUBLIC_KEY="+key+"\n"+script+"echo $PATH"))
	}
	signer := strings.Fields(string(text))
	if r := run(signer[len(signer)-1]); r.code != 0 || !strings.Contains(r.stdout, "installed demesne 0.1.0 ") || !strings.Contains(r.stdout, b.home+"/.local/bin:") {
		t.Errorf("%+v", r)
	}
	if r := run("RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"); r.code == 0 || strings.Contains(r.stdout, "installed") {
		t.Errorf("with another key: %+v", r)
	}
}

// literal returns the block of text that follows a line in a YAML file, without its indentation.
func literal(path, start string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	_, block, found := strings.Cut(string(text), "\n"+start)
	if !found {
		return "", fmt.Errorf("%s has no line %q", path, start)
	}
	indent := block[:len(block)-len(strings.TrimLeft(block, " "))]
	var script strings.Builder
	for line := range strings.Lines(block) {
		if !strings.HasPrefix(line, indent) {
			break
		}
		script.WriteString(strings.TrimPrefix(line, indent))
	}
	return script.String(), nil
}
