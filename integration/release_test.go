package integration

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"demesne/integration/release"
)

// released packs the programs under test, and signs the sums with a key of its own. It returns the directory, and the file
// of the public key.
func (b *box) released() (dir, public string) {
	b.Helper()
	program(b, "gcc")
	program(b, "minisign")
	o := release.Options{Source: "..", Out: b.dir + "/release", Bin: bin, Key: b.dir + "/key", Log: b.Logf}
	public = b.dir + "/key.pub"
	if err := tool("minisign", "-G", "-W", "-p", public, "-s", o.Key); err != nil {
		b.Fatal(err)
	}
	if _, err := release.Make(o); err != nil {
		b.Fatal(err)
	}
	return o.Out, public
}

// wholeRelease skips a test that takes minutes, unless `make test-release` runs it.
func wholeRelease(t *testing.T) {
	t.Helper()
	if os.Getenv("DEMESNE_RELEASE") == "" {
		t.Skip("takes minutes: make test-release")
	}
}

// TestReleaseReproducible builds a release of one commit in two directories. The bytes are equal, the programs are static,
// and they name the commit.
func TestReleaseReproducible(t *testing.T) {
	wholeRelease(t)
	b := newBox(t)
	program(t, "gcc")
	program(t, "git")
	var dirs [2]string
	var commit string
	for i, name := range []string{"one", "a/longer/path/two"} {
		source := b.mkdir(name)
		out, err := exec.Command("sh", "-ec", `tar -C .. --exclude=./.git --exclude=./bin -cf - . | tar -C "$0" -xf -
			cd "$0"; export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
			export GIT_AUTHOR_DATE="1700000000 +0000" GIT_COMMITTER_DATE="1700000000 +0000"
			git init -q; git add -A; git -c user.name=n -c user.email=e -c commit.gpgsign=false commit -qm m; git rev-parse HEAD`, source).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		commit = strings.TrimSpace(string(out))
		dirs[i] = b.dir + "/out" + string(rune('1'+i))
		if _, err := release.Make(release.Options{Source: source, Out: dirs[i], Arch: []string{runtime.GOARCH}, Log: t.Logf}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names(dirs[0]) {
		one, err := os.ReadFile(filepath.Join(dirs[0], name))
		if err != nil {
			t.Fatal(err)
		}
		if two, err := os.ReadFile(filepath.Join(dirs[1], name)); err != nil || !bytes.Equal(one, two) {
			t.Errorf("%s differs: %v", name, err)
		}
	}
	archives, _ := filepath.Glob(dirs[0] + "/*.tar.gz")
	if len(archives) != 1 || tool("tar", "-xf", archives[0], "-C", b.dir) != nil {
		t.Fatal(archives)
	}
	tree := b.dir + "/" + strings.TrimSuffix(filepath.Base(archives[0]), ".tar.gz")
	if r := b.finish(b.command(tree+"/bin/demesne", "version")); !strings.Contains(r.stdout, "(commit "+commit[:12]+", go") {
		t.Errorf("version: %+v, want commit %s", r, commit)
	}
	programs, _ := filepath.Glob(tree + "/libexec/demesne/*")
	for _, p := range append(programs, tree+"/bin/demesne") {
		f, err := elf.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 {
			t.Errorf("%s is not static: %v %v", p, libs, err)
		}
		f.Close()
	}
	if len(programs) != 5 {
		t.Errorf("programs %q", programs)
	}
}

// verifies checks the signature and the sums of a release by their own programs.
func (b *box) verifies(dir, public string) {
	b.Helper()
	if r := b.finish(b.command(program(b, "minisign"), "-V", "-p", public, "-m", dir+"/SHA256SUMS")); r.code != 0 || !strings.Contains(r.stdout, "Trusted comment: demesne 0.1.0") {
		b.Errorf("%+v", r)
	}
	sums := b.command("/bin/sh", "-c", "cd "+dir+" && sha256sum --quiet --strict -c SHA256SUMS && ls | grep -v SHA256SUMS | wc -l && wc -l <SHA256SUMS")
	if r := b.finish(sums); r.code != 0 || r.stdout != "3\n3\n" {
		b.Errorf("%+v", r)
	}
	b.file("other/SHA256SUMS", "other\n", 0o644)
	if r := b.finish(b.command(program(b, "minisign"), "-V", "-p", public, "-x", dir+"/SHA256SUMS.minisig", "-m", b.dir+"/other/SHA256SUMS")); r.code == 0 {
		b.Errorf("other sums verify: %+v", r)
	}
}
