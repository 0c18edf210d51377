package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
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

// TestOtherRunDirs checks that a program finds the run directories of this user's other programs, and that no sandbox gets one.
func TestOtherRunDirs(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir+"/home")
	t.Setenv("XDG_RUNTIME_DIR", dir+"/session")
	d := &runDir{path: dir + "/session/demesne", key: "k-r", sandboxRoot: dir + "/s", lists: &lists{}}
	cron := dir + "/home/.demesne/run"
	if err := errors.Join(os.MkdirAll(d.path, 0o700), os.MkdirAll(cron, 0o700)); err != nil {
		t.Fatal(err)
	}
	same, err := sameKey(cron, d.sandboxRoot)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]string{}
	for _, o := range d.others() {
		at[o.path] = o.key
	}
	if at[cron] != same+keySeparator || at[d.path] != "" {
		t.Errorf("others: %q", at)
	}
	if err := os.WriteFile(cron+"/"+same+"-x.sock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if all := d.siblings(); len(all) != 1 || all[0].path != cron || all[0].key != same+"-x" {
		t.Errorf("siblings: %+v", all)
	}
	if err := apart(cron, d.private()); err == nil {
		t.Error("a sandbox gets the other run directory")
	}
	if os.Getuid() == 0 { // another user's is not used
		if err := os.Chown(cron, 1, 1); err != nil {
			t.Fatal(err)
		}
		if all := d.siblings(); len(all) != 0 {
			t.Errorf("siblings: %+v", all)
		}
	}
}

// TestListsSeeChanges: a kept list is not used after its directory has changed, however soon.
func TestListsSeeChanges(t *testing.T) {
	dir, l := t.TempDir(), &lists{}
	for i := range 300 {
		if i%10 == 0 {
			old := time.Now().Add(-time.Hour - time.Duration(i)*time.Second)
			if err := os.Chtimes(dir, old, old); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if names := l.names(dir); len(names) != i {
				t.Fatalf("%d names, want %d", len(names), i)
			}
		}
		if _, kept := l.seen[dir]; kept != (i%10 == 0) {
			t.Fatalf("kept %v after change %d", kept, i)
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if names := l.names(filepath.Join(dir, "none")); names != nil {
		t.Errorf("names %q", names)
	}
}
