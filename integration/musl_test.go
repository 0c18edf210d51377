package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMusl builds demesne-runner, the program with C, with a static musl, and runs sandboxes with it. The other programs have no
// C library.
func TestMusl(t *testing.T) {
	b := newBox(t)
	cc, programs := program(t, "musl-gcc"), b.mkdir("musl")
	for _, p := range []string{"demesne", "demesne-init", "demesne-proxy"} { // demesne finds the others beside itself
		b.file("musl/"+p, readFile(t, filepath.Join(bin, p)), 0o755)
	}
	build := exec.Command(program(t, "go"), "build", "-o", programs+"/demesne-runner", "-ldflags", "-linkmode external -extldflags -static", "../cmd/demesne-runner")
	// Debian's musl-gcc has no headers of the kernel, which libcontainer includes.
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "CC="+cc+" -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	level := b.parse(b.demesne("run", "--json", "--", "true")).Receipt.Level
	b.extra = append(b.extra, "XDG_RUNTIME_DIR="+b.mkdir("r2"))
	demesne := func(args ...string) result {
		return b.finish(b.command(programs+"/demesne", args...))
	}
	p := b.parse(demesne("run", "--json", "--", "sh", "-c", "echo hi; exit 3"))
	if p.ExitCode != 3 || p.Stdout != "hi\n" || p.Receipt.Level != level {
		t.Errorf("level %q with glibc: %+v", level, p)
	}
	if r := demesne("run", "--allow-domain", "example.test", "--", "echo", "ran"); r.stdout != "ran\n" {
		t.Errorf("with a network: %+v", r)
	}
	if p := b.parse(b.finish(b.command(tools+"/nons", programs+"/demesne", "run", "--json", "--", "echo", "hi"))); p.Stdout != "hi\n" || p.Receipt.Level != "minimal" {
		t.Errorf("without namespaces: %+v", p)
	}
}
