package integration

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestRunPath checks PATH inside: it has the directories of the caller's PATH that exist there, and no others.
func TestRunPath(t *testing.T) {
	b := newBox(t)
	b.file("tools/own-tool", "#!/bin/sh\n", 0o755)
	const games, lost = "/usr/share", "/usr/nowhere"
	if _, err := os.Stat(games); err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{b.dir + "/tools", "rel", "", games, lost, "/usr/bin", "/bin"}, ":")
	b.extra = append(b.extra, "PATH="+path)
	dirs := strings.Split(strings.TrimSpace(b.sh(`echo "$PATH"`)), ":")
	if at := slices.Index(dirs, games); at < 0 || at > slices.Index(dirs, "/usr/bin") {
		t.Errorf("PATH has %s not before /usr/bin: %q", games, dirs)
	}
	for _, dir := range []string{b.dir + "/tools", lost, "rel", ""} {
		if slices.Contains(dirs, dir) {
			t.Errorf("PATH has %q: %q", dir, dirs)
		}
	}
	for _, dir := range []string{"/usr/local/bin", "/usr/sbin"} {
		if !slices.Contains(dirs, dir) {
			t.Errorf("PATH lacks %q: %q", dir, dirs)
		}
	}
	// Landlock hides it, but lets a process enter it. Python would look for its library beside the program there.
	if r := b.finish(b.refusing("unshare=1")("run", "--", "sh", "-c", `echo "$PATH"`)); strings.Contains(r.stdout, b.dir+"/tools") || !strings.Contains(r.stdout, ":"+games+":") {
		t.Errorf("without namespaces: %+v", r)
	}
	if got := b.sh(`echo "$PATH"`, "--env", "PATH=/usr/bin"); got != "/usr/bin\n" {
		t.Errorf("--env PATH: %q", got)
	}

	r := b.demesne("run", "--", "own-tool")
	if hint := "--mount " + b.dir + "/tools:ro shows that directory"; r.code != 127 || !strings.Contains(r.stderr, hint) {
		t.Errorf("program outside the sandbox: %+v, want %q", r, hint)
	}
	if r := b.demesne("run", "--", "no-such-tool"); r.code != 127 || strings.Contains(r.stderr, "hint") {
		t.Errorf("unknown program: %+v", r)
	}
}
