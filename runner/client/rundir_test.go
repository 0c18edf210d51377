package client

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRunDirLinks: runners without root's uid own a part of real root's run directory. A link that one makes there
// must not make root chown its target.
func TestRunDirLinks(t *testing.T) {
	if os.Getuid() != 0 {
		return // only root can chown
	}
	victim := filepath.Join(t.TempDir(), "root's")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(dir, "state", "ended")); err != nil {
		t.Fatal(err)
	}
	err := takeRunDir(dir, 0o711, true)
	st, _ := os.Stat(victim)
	if uid := st.Sys().(*syscall.Stat_t).Uid; uid != 0 || err != nil {
		t.Errorf("the file it leads to is %#x's (%v)", uid, err)
	}
}

// TestConfinement checks that each kind of confinement makes another key, and that a process without one has the same key
// as others without one.
func TestConfinement(t *testing.T) {
	const status = "Name:\ta\nUmask:\t0022\nCapInh:\t0\nCapEff:\t0\nCapBnd:\t1ff\nNoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\nThreads:\t1\n"
	of := func(status string, labels map[string]string) string {
		t.Helper()
		dir := t.TempDir()
		for name, text := range labels {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, "attr", name)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "attr", name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "status"), []byte(status), 0o600); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%q", confinement(dir))
	}
	plain := of(status, nil)
	if other := of(strings.NewReplacer("Name:\ta", "Name:\tb", "Umask:\t0022", "Umask:\t0077", "Threads:\t1", "Threads:\t7").Replace(status), nil); other != plain {
		t.Errorf("%s and %s", plain, other)
	}
	seen := map[string]string{plain: "plain"}
	for _, c := range []struct {
		what   string
		from   string
		to     string
		labels map[string]string
	}{
		{"AppArmor, unconfined", "", "", map[string]string{"current": "unconfined\n"}},
		{"AppArmor", "", "", map[string]string{"current": "docker-default (enforce)\n"}},
		{"AppArmor that complains", "", "", map[string]string{"current": "docker-default (complain)\n"}},
		{"AppArmor beside another module", "", "", map[string]string{"current": "unconfined\n", "apparmor/current": "docker-default (enforce)\n"}},
		{"SELinux", "", "", map[string]string{"current": "system_u:system_r:container_t:s0:c1,c2\x00"}},
		{"SELinux of another category", "", "", map[string]string{"current": "system_u:system_r:container_t:s0:c1,c3\x00"}},
		{"Smack", "", "", map[string]string{"smack/current": "Label"}},
		{"strict seccomp", "Seccomp:\t0", "Seccomp:\t1", nil},
		{"a filter", "Seccomp:\t0\nSeccomp_filters:\t0", "Seccomp:\t2\nSeccomp_filters:\t1", nil},
		{"two filters", "Seccomp:\t0\nSeccomp_filters:\t0", "Seccomp:\t2\nSeccomp_filters:\t2", nil},
		{"a bounding set", "CapBnd:\t1ff", "CapBnd:\t0ff", nil},
		{"capabilities", "CapEff:\t0", "CapEff:\t1", nil},
	} {
		got := of(strings.Replace(status, c.from, c.to, 1), c.labels)
		if other, found := seen[got]; found {
			t.Errorf("%s and %s: %s", c.what, other, got)
		}
		seen[got] = c.what
	}
	if got := of(status, map[string]string{"current": "a\n"}); got != of(status, map[string]string{"current": "a"}) {
		t.Errorf("a line break: %s", got)
	}
}
