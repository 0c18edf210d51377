package integration

import (
	"archive/tar"
	"os"
	"slices"
	"strings"
	"testing"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// hostileLayer is a malicious layer, and a script that tries to exploit it.
type hostileLayer struct {
	name    string
	entries func(victim string) []fixture.Entry
	try     string // must print nothing
}

func special(name string, kind byte, major, minor int64) fixture.Entry {
	return fixture.Entry{Header: tar.Header{Typeflag: kind, Name: name, Mode: 0o666, Devmajor: major, Devminor: minor}}
}

func withXattr(e fixture.Entry, pairs ...string) fixture.Entry {
	e.PAXRecords = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		e.PAXRecords["SCHILY.xattr."+pairs[i]] = pairs[i+1]
	}
	e.Format = tar.FormatPAX
	return e
}

func entries(e ...fixture.Entry) func(string) []fixture.Entry {
	return func(string) []fixture.Entry { return e }
}

const up = "../../../../../../../../../../../.."

var hostileLayers = []hostileLayer{
	{"dot dot", func(v string) []fixture.Entry { return []fixture.Entry{fixture.File(up+v+"/written", "x")} }, ""},
	{"absolute", func(v string) []fixture.Entry { return []fixture.Entry{fixture.File(v+"/written", "x")} }, ""},
	{"link, then through it", func(v string) []fixture.Entry {
		return []fixture.Entry{fixture.Link("l", v), fixture.File("l/written", "x")}
	}, ""},
	{"link up, then through it", func(v string) []fixture.Entry {
		return []fixture.Entry{fixture.Link("l", up+v), fixture.File("l/written", "x"), fixture.Dir("l/dir")}
	}, ""},
	{"link to a file, then over it", func(v string) []fixture.Entry {
		return []fixture.Entry{fixture.Link("l", v+"/secret"), fixture.File("l", "overwritten")}
	}, ""},
	{"hard link out", func(v string) []fixture.Entry { return []fixture.Entry{fixture.Hard("stolen", v+"/secret")} }, "cat /stolen"},
	{"hard link up", func(v string) []fixture.Entry { return []fixture.Entry{fixture.Hard("stolen", up+v+"/secret")} }, "cat /stolen"},
	{"hard link through a link", func(v string) []fixture.Entry {
		return []fixture.Entry{fixture.Link("l", v), fixture.Hard("stolen", "l/secret")}
	}, "cat /stolen"},
	{"whiteout up", func(v string) []fixture.Entry { return []fixture.Entry{fixture.Gone(up + v + "/secret")} }, ""},
	{"whiteout through a link", func(v string) []fixture.Entry {
		return []fixture.Entry{fixture.Link("l", v), fixture.Gone("l/secret"), fixture.File("l/.wh..wh..opq", "")}
	}, ""},
	{"whiteout of dot", entries(fixture.File("d/.wh..", "")), ""},
	{"whiteout of dot dot", entries(fixture.File("d/.wh...", "")), ""},
	{"opaque directory", entries(fixture.Dir("d/.wh..wh..opq"), fixture.File("d/.wh..wh..opq/x", "x")), ""},
	// It hides everything below it, including the shell. An image may do that.
	{"opaque link", func(v string) []fixture.Entry { return []fixture.Entry{fixture.Link(".wh..wh..opq", v)} }, ""},
	{"disk", entries(special("sda", tar.TypeBlock, 8, 0), special("vda", tar.TypeBlock, 254, 0)), "for d in sda vda; do head -c 1 /$d | wc -c | grep -v '^0$'; done; test -b /sda && echo block"},
	{"memory", entries(special("mem", tar.TypeChar, 1, 1), special("zero", tar.TypeChar, 1, 5)), "head -c 1 /zero | wc -c | grep -v '^0$'"},
	{"overlay attributes", entries(withXattr(fixture.Dir("d"), "user.overlay.opaque", "y", "trusted.overlay.opaque", "y"),
		withXattr(fixture.File("f", ""), "user.overlay.redirect", "/etc/passwd", "user.overlay.metacopy", "", "trusted.overlay.metacopy", "", "user.overlay.origin", "x"),
		withXattr(fixture.Dir("bin"), "user.overlay.redirect", up+"/etc")), "cat /f; ls /bin | grep -E 'shadow|passwd'"},
	{"types that change", entries(fixture.File("a", "x"), fixture.Dir("a"), fixture.Link("a", "/etc"), fixture.File("a/written", "x"), fixture.Dir("a")), ""},
	{"setuid", entries(fixture.Mode("suid", "#!/bin/sh\n", 0o6755)), "grep ' / / ' /proc/self/mountinfo | grep -v nosuid"},
	{"resolv.conf leads out", func(v string) []fixture.Entry {
		return []fixture.Entry{fixture.Link("etc/resolv.conf", v+"/written"), fixture.Link("etc/hosts", up+v+"/secret"), fixture.Link("etc/hostname", "/proc/self/root"+v+"/secret")}
	}, "cat /etc/hosts | grep canary"},
	{"places lead out", func(v string) []fixture.Entry {
		return []fixture.Entry{fixture.Link("in", v), fixture.Link("out", v), fixture.Link("workspace", up+v), fixture.Link("tmp", v), fixture.Link("dev", v), fixture.Link("sys", "proc"), fixture.Link("proc", up+v)}
	}, "cat /in/secret /tmp/secret /workspace/secret"},
	// F10: masks and terminals are made from files in /dev.
	{"dev/null leads into proc", entries(fixture.Link("dev/null", "/proc/sys/kernel/core_pattern"), fixture.Link("dev/console", "/proc/sysrq-trigger"),
		fixture.Link("dev/pts", "/proc/sys/kernel"), fixture.Link("dev/ptmx", "/proc/kcore"), fixture.Link("dev/shm", "/proc/sys")),
		`test -c /dev/null || echo no null; for f in /proc/kcore /proc/keys /proc/timer_list; do head -c 1 $f | wc -c | grep -v '^0$'; done
		for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/kernel/hostname; do (echo x > $f) && echo "wrote $f"; done; test -L /dev/pts && echo link`},
	{"dev of files", entries(fixture.File("dev/null", "kept"), fixture.File("dev/console", "x"), fixture.File("dev/ptmx", "x"), fixture.Mode("dev/tty", "x", 0o666),
		special("dev/zero", tar.TypeFifo, 0, 0), fixture.Dir("dev/urandom"), fixture.File("dev/pts", "x"), fixture.File("dev/fd", "x")),
		`for d in null zero urandom tty; do test -c /dev/$d || echo no $d; done; grep kept /dev/null; test -d /dev/pts || echo no pts; head -c 1 /dev/zero | wc -c | grep -v '^1$'`},
	{"dev leads out", func(v string) []fixture.Entry { return []fixture.Entry{fixture.Link("dev", v)} }, "cat /dev/secret; test -c /dev/null || echo no null"},
	{"dev leads up", func(v string) []fixture.Entry { return []fixture.Entry{fixture.Link("dev", up+v)} }, "cat /dev/secret; test -c /dev/null || echo no null"},
	{"ld.so", entries(fixture.File("etc/ld.so.preload", "/nosuch.so\n"), fixture.Link("lib64", "/proc/self/fd")), ""},
}

// TestEscapeHostileImages checks F7, F8, F9 and F18 end to end. A hostile image is refused in one line, or runs
// and reaches no host file. The host never changes.
func TestEscapeHostileImages(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		victim := g.mkdir("victim")
		g.file("victim/secret", canary, 0o644)
		g.file("victim/ptmx", canary, 0o644) // CVE-2026-41579 removed a file of this name
		for _, h := range hostileLayers {
			base := g.busybox()
			g.push("evil:1", v1.Config{Env: []string{"PATH=/bin"}}, base, h.entries(victim))
			r := g.do("run", "--pull", "always", "--image", g.reg.Ref("evil:1"), "--in", g.file("data", "data", 0o644), "-c", "{ "+orTrue(h.try)+"; } 2>/dev/null; touch /tmp/x /workspace/x /out/x; echo end")
			refused := r.code == 125 && r.stdout == "" && strings.HasPrefix(lastLines(r.stderr), "demesne: ")
			empty := r.code == 127 && r.stdout == ""
			if ran := r.code == 0 && r.stdout == "end\n"; !ran && !empty && !refused {
				t.Errorf("%s: %+v", h.name, r)
			}
			t.Logf("%s: refused %v %s", h.name, refused, lastLines(r.stderr))
			if n := names(victim); len(n) != 2 || read(victim+"/secret") != canary || read(victim+"/ptmx") != canary {
				t.Fatalf("%s: the host has changed: %q", h.name, n)
			}
		}
	})
}

func orTrue(s string) string {
	if s == "" {
		return "true"
	}
	return s
}

// TestEscapeF11Workdir checks that a working directory in an image cannot lead to descriptors or directories of
// the runner (F11).
func TestEscapeF11Workdir(t *testing.T) {
	g := newGallery(t)
	for _, dir := range []string{"/proc/self/fd/3", "/proc/self/fd/7", "/proc/1/root", "/proc/self/fd/7/../../..", "../../..", "/dev/fd/5"} {
		g.push("evil:1", v1.Config{WorkingDir: dir, Env: []string{"PATH=/bin"}, Cmd: []string{"sh", "-c", "cat ../../../etc/hostname ../../../../root/.profile etc/shadow; ls"}}, g.busybox())
		r := g.do("run", "--pull", "always", "--image", g.reg.Ref("evil:1"))
		host, _ := os.Hostname()
		if slices.Contains(strings.Fields(r.stdout), host) || strings.Contains(r.stdout, "registries.conf") || strings.Contains(r.stdout, "$") {
			t.Errorf("workdir %s: %+v", dir, r)
		}
	}
}

// TestEscapeImageEnvironment checks that the environment of an image affects only the sandbox, and no program of
// demesne.
func TestEscapeImageEnvironment(t *testing.T) {
	g := newGallery(t)
	g.push("evil:1", v1.Config{Env: []string{"PATH=/bin", "LD_PRELOAD=/evil.so", "GODEBUG=inittrace=1", "DEMESNE_IMAGE_STORE=/", "NOVALUE", "=x", "A=\x00b"}, Cmd: []string{"sh", "-c", "echo $LD_PRELOAD"}}, g.busybox())
	r := g.do("run", "--image", g.reg.Ref("evil:1"))
	if ran := r.code == 0 && r.stdout == "/evil.so\n" && !strings.Contains(r.stderr, "init "); !ran && r.code != 125 {
		t.Errorf("%+v", r)
	}
}
