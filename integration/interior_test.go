package integration

import (
	"strings"
	"testing"
)

// TestRunInterior checks --hostname, --add-host and --tmpfs on a sandbox.
func TestRunInterior(t *testing.T) {
	b := newBox(t)
	work := b.mkdir("work")
	b.mkdir("work/cache")
	got := b.sh(`hostname; getent hosts db.test six.test
stat -fc %T /cache /workspace/cache; stat -c %a /cache; df -B1 --output=size /cache | tail -1
echo x > /cache/f && cat /cache/f; echo y > /workspace/cache/g; ls /workspace/cache
dd if=/dev/zero of=/cache/big bs=1M count=2 2>/dev/null || echo full`,
		"--hostname", "box", "--add-host", "db.test:192.0.2.7", "--add-host", "six.test:[2001:db8::7]",
		"--tmpfs", "/cache:1m", "--workspace", work, "--tmpfs", "/workspace/cache")
	want := []string{"box", "192.0.2.7", "db.test", "2001:db8::7", "six.test", "tmpfs", "tmpfs", "1777", "1048576", "x", "g", "full"}
	if fields := strings.Fields(got); strings.Join(fields, " ") != strings.Join(want, " ") {
		t.Errorf("got %q, want %q", fields, want)
	}
	if r := b.demesne("run", "--workspace", work, "-c", "ls -A /workspace/cache"); r.stdout != "" {
		t.Errorf("the directory below the tmpfs has %q", r.stdout)
	}

	for flag, want := range map[string]string{"/proc/x": "belongs to demesne", "/in/x": "belongs to demesne", "/out": "belongs to demesne", "/workspace/missing": "the mount point does not exist"} {
		if r := b.demesne("run", "--workspace", work, "--tmpfs", flag, "--", "true"); r.code != 125 || !strings.Contains(r.stderr, want) {
			t.Errorf("--tmpfs %s: %+v, want %q", flag, r, want)
		}
	}
}

// TestSessionInterior checks that a restarted sandbox has the same names and an empty tmpfs, and that its changes do not
// include the mount point.
func TestSessionInterior(t *testing.T) {
	b := newBox(t)
	id := b.create("--key", "k", "--hostname", "box", "--add-host", "db.test:192.0.2.7", "--tmpfs", "/cache")
	if r := b.demesne("exec", id, "-c", "echo x > /cache/f; echo y > /kept"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := b.demesne("stop", id); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := b.demesne("exec", id, "-c", "ls -A /cache; cat /kept; hostname; getent hosts db.test"); r.code != 0 || strings.Join(strings.Fields(r.stdout), " ") != "y box 192.0.2.7 db.test" {
		t.Errorf("after a restart: %+v", r)
	}
	if r := b.demesne("diff", id); strings.Contains(r.stdout, "cache") || !strings.Contains(r.stdout, "/kept") {
		t.Errorf("diff: %+v", r)
	}
	if r := b.demesne("create", "--key", "k", "--hostname", "other"); r.code != 125 || !strings.Contains(r.stderr, "hostname") {
		t.Errorf("another hostname: %+v", r)
	}
	if r := b.demesne("inspect", id); !strings.Contains(r.stdout, "db.test is 192.0.2.7") || !strings.Contains(r.stdout, "/cache, 2.0 GiB") {
		t.Errorf("inspect: %+v", r)
	}
}

// TestRunFiles checks that --files sets the limit of open descriptors, above and below the default.
func TestRunFiles(t *testing.T) {
	b := newBox(t)
	for _, n := range []string{"8192", "100"} {
		if got := b.sh("ulimit -n; ulimit -Hn", "--files", n); got != n+"\n"+n+"\n" {
			t.Errorf("--files %s: %q", n, got)
		}
	}
	for _, wrong := range []string{"10", "none", "-1"} {
		if r := b.demesne("run", "--files", wrong, "--", "true"); r.code != 125 || !strings.Contains(r.stderr, `files "`+wrong+`"`) {
			t.Errorf("--files %s: %+v", wrong, r)
		}
	}
}
