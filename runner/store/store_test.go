package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

func open(t *testing.T) *Store {
	t.Helper()
	d, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// add creates a sandbox that expires after life. It is still locked.
func add(t *testing.T, d *Store, id, name string, life time.Duration) *Dir {
	t.Helper()
	b, err := d.New(id)
	if err != nil {
		t.Fatal(err)
	}
	i := runner.Info{ID: id, Name: name, State: runner.Running, PID: 7, Created: time.Now(), Expires: time.Now().Add(life)}
	if err := b.Write(Record{Info: i, Map: "map", Base: []string{"sha256:x"}}); err != nil {
		t.Fatal(err)
	}
	return b
}

func list(t *testing.T, d *Store) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(d.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestRoundTrip(t *testing.T) {
	d := open(t)
	b := add(t, d, "aa", "web", time.Hour)
	if all, err := d.All(); err != nil || len(all) != 1 || all[0].Info.State != runner.Running {
		t.Errorf("while a runner has it: %+v", all)
	}
	if others, err := d.Others(map[string]bool{"aa": true}); err != nil || len(others) > 0 {
		t.Errorf("in addition to it: %+v", others)
	}
	if _, _, err := d.Take("aa"); !errors.Is(err, ErrBusy) {
		t.Errorf("take what a runner has: %v", err)
	}
	tree, err := b.OpenTree()
	if err != nil || tree.Close() != nil {
		t.Error(err)
	}
	if err := os.WriteFile(b.Tree()+"/f", nil, 0o600); err != nil {
		t.Error(err)
	}
	b.Close()
	for _, who := range []string{"aa", "web"} {
		r, err := d.Find(who, nil)
		if err != nil || r.Info.ID != "aa" || r.Info.State != runner.Stopped || r.Info.PID != 0 || r.Map != "map" || !slices.Equal(r.Base, []string{"sha256:x"}) {
			t.Errorf("find %q: %+v, %v", who, r, err)
		}
	}
	b, r, err := d.Take("aa")
	if err != nil || r.Info.Name != "web" {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := b.Remove(); err != nil {
		t.Error(err)
	}
	if left := list(t, d); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	for _, who := range []string{"aa", "web", "", "../" + filepath.Base(d.path)} {
		if _, err := d.Find(who, nil); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("find %q: %v", who, err)
		}
		if _, _, err := d.Take(who); err == nil {
			t.Errorf("took %q", who)
		}
	}
}

// TestNewest: of two sandboxes with one name the newer has it. A runner with another id map may have made the second.
func TestNewest(t *testing.T) {
	d := open(t)
	add(t, d, "aa", "web", time.Hour).Close()
	add(t, d, "bb", "web", time.Hour).Close()
	if r, err := d.Find("web", nil); err != nil || r.Info.ID != "bb" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRenew(t *testing.T) {
	d := open(t)
	b := add(t, d, "aa", "", time.Hour)
	defer b.Close()
	until := time.Now().Add(5 * time.Hour).Truncate(time.Second)
	if err := b.Renew(until); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Find("aa", nil); err != nil || !r.Info.Expires.Equal(until) {
		t.Errorf("expires %v, %v; want %v", r.Info.Expires, err, until)
	}
}

func TestSweep(t *testing.T) {
	d := open(t)
	add(t, d, "stays", "", time.Hour).Close()
	add(t, d, "expired", "", -time.Second).Close()
	defer add(t, d, "expired-and-had", "", -time.Second).Close()
	made, err := d.New("being-made")
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	left, err := d.New("left-half-made")
	if err != nil {
		t.Fatal(err)
	}
	left.Close()
	for _, dir := range []string{".old-removed/tree/up/" + strings.Repeat("d/", 300)} {
		if err := os.MkdirAll(filepath.Join(d.path, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	add(t, d, ".old-and-expired", "", -time.Second).Close()
	if err := os.Symlink("/", d.path+"/link"); err != nil {
		t.Fatal(err)
	}
	other := add(t, d, "other-version", "", time.Hour)
	other.replace(specFile, []byte(`{"version":99}`))
	other.Close()
	if _, err := d.Find("expired", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what expired is found: %v", err)
	}
	removed, err := d.Sweep()
	if err != nil || !slices.Equal(removed, []string{"expired"}) {
		t.Errorf("removed %q, %v", removed, err)
	}
	want := []string{"being-made", "expired-and-had", "link", "other-version", "stays"}
	if got := list(t, d); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}

// TestTorn: an incomplete record is not a sandbox and disturbs no other operation.
func TestTorn(t *testing.T) {
	d := open(t)
	for id, text := range map[string]string{
		"empty": "", "garbage": "\x00\x01", "another": `{"version":1,"info":{"id":"aa"}}`, "no-until": `{"version":1,"info":{"id":"no-until"}}`,
	} {
		b, err := d.New(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.replace(specFile, []byte(text)); err != nil {
			t.Fatal(err)
		}
		b.Close()
		if _, _, err := d.Take(id); err == nil {
			t.Errorf("took %q", id)
		}
	}
	if all, err := d.All(); err != nil || len(all) > 0 {
		t.Errorf("%+v, %v", all, err)
	}
	others, err := d.Others(map[string]bool{"empty": true})
	if err != nil || len(others) != 3 {
		t.Errorf("%+v, %v", others, err)
	}
	for _, r := range others {
		if r.Info.ID == "" || r.Info.State != runner.Unreadable {
			t.Errorf("%+v", r)
		}
	}
	if removed, err := d.Sweep(); err != nil || len(removed) > 0 {
		t.Errorf("removed %q, %v", removed, err)
	}
	if left, want := list(t, d), []string{"another", "garbage", "no-until"}; !slices.Equal(left, want) { // a power cut leaves empty
		t.Errorf("left %q, want %q", left, want)
	}
}

// TestAtOnce: many goroutines create and remove sandboxes during sweeps. A sweep removes none that is being created.
func TestAtOnce(t *testing.T) {
	d := open(t)
	var all sync.WaitGroup
	stop := make(chan struct{})
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				d.Sweep()
				d.All()
			}
		}
	})
	var makers sync.WaitGroup
	for n := range 8 {
		makers.Go(func() {
			for i := range 20 {
				id := fmt.Sprintf("%d-%d", n, i)
				b, err := d.New(id)
				if err != nil {
					t.Error(err)
					return
				}
				info := runner.Info{ID: id, Expires: time.Now().Add(time.Hour)}
				if err := b.Write(Record{Info: info}); err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					b.Close()
				} else if err := b.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	makers.Wait()
	close(stop)
	all.Wait()
	if err := os.WriteFile(filepath.Join(d.path, "stray"), nil, 0o600); err != nil { // no sandbox
		t.Fatal(err)
	}
	if got, err := d.All(); err != nil || len(got) != 80 {
		t.Errorf("%d sandboxes, want 80, %v", len(got), err)
	}
}

// TestStoreUnreadable checks that a store that cannot be listed is not taken for an empty one: no base counts as unused.
func TestStoreUnreadable(t *testing.T) {
	d := open(t)
	add(t, d, "aa", "", time.Hour).Close()
	d.root.Close()
	if all, err := d.All(); err == nil {
		t.Errorf("listed %+v", all)
	}
	if !d.used()("base-0") || !d.hasSpec("aa") {
		t.Error("an unreadable record counts as absent")
	}
}

// TestCloseUnlocks checks that a sandbox is free once it is closed, also while a child process that is being started has a
// copy of the lock's descriptor.
func TestCloseUnlocks(t *testing.T) {
	d := open(t)
	b := add(t, d, "aa", "", time.Hour)
	inherited, err := unix.Dup(int(b.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Find("aa", nil); err != nil || r.Info.State == runner.Running {
		t.Errorf("%q, %v", r.Info.State, err)
	}
}

// TestProcess: a pid alone does not identify a process.
func TestProcess(t *testing.T) {
	me, err := Identify(os.Getpid())
	if err != nil || !me.Alive() {
		t.Fatalf("%+v, %v", me, err)
	}
	for name, p := range map[string]Process{
		"later": {me.Boot, me.PID, me.Start + 1}, "of another boot": {"x", me.PID, me.Start}, "none": {},
	} {
		if p.Alive() {
			t.Errorf("%s: alive", name)
		}
	}
}

// write fills the tree of a sandbox like an overlay.
func write(t *testing.T, b *Dir, name string) {
	t.Helper()
	tree, err := b.OpenTree()
	if err == nil {
		err = errors.Join(tree.Close(), os.MkdirAll(b.Tree()+"/up", 0o755), os.WriteFile(b.Tree()+"/up/"+name, nil, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestFreeze(t *testing.T) {
	d := open(t)
	add(t, d, "aa", "", time.Hour).Close()
	b, r, err := d.Take("aa")
	if err != nil {
		t.Fatal(err)
	}
	r.Base = nil
	for i := range 3 {
		write(t, b, fmt.Sprint(i))
		for range 2 { // the second time nothing has changed
			if err := b.Pause(&r); err != nil || len(r.Base) != i+1 || r.Freezing != "" {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	}
	h, err := b.Hold(r.Base)
	if err != nil {
		t.Fatal(err)
	}
	for i, up := range h.Uppers {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d/%d", up.Fd(), i)); err != nil {
			t.Error(err)
		}
	}
	h.CloseUppers()
	if err := b.Remove(); err != nil {
		t.Error(err)
	}
	if left := list(t, d); len(left) != 3 {
		t.Errorf("what is held is gone: %q", left)
	}
	h.Close()
	if _, err := d.Sweep(); err != nil || len(list(t, d)) > 0 {
		t.Errorf("left %q, %v", list(t, d), err)
	}
}

// TestNewBase: a base is complete or absent, and remains while it is held or used.
func TestNewBase(t *testing.T) {
	d := open(t)
	fill := func(tree *os.File) error {
		if _, err := d.Sweep(); err != nil {
			t.Error(err)
		}
		return os.MkdirAll(fmt.Sprintf("/proc/self/fd/%d/up/d", tree.Fd()), 0o700)
	}
	failed := errors.New("disk full")
	if _, _, err := d.NewBase(func(tree *os.File) error { return errors.Join(fill(tree), failed) }); !errors.Is(err, failed) || len(list(t, d)) > 0 {
		t.Errorf("%v; left %q", err, list(t, d))
	}
	base, release, err := d.NewBase(fill)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Sweep(); err != nil || len(list(t, d)) != 1 {
		t.Errorf("held: %q, %v", list(t, d), err)
	}
	b, err := d.New("aa")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Write(Record{Info: runner.Info{ID: "aa", Expires: time.Now().Add(time.Hour)}, Base: []string{base}}); err != nil {
		t.Fatal(err)
	}
	release()
	if _, err := d.Sweep(); err != nil || len(list(t, d)) != 2 {
		t.Errorf("used: %q, %v", list(t, d), err)
	}
	if err := b.Remove(); err != nil || len(list(t, d)) > 0 {
		t.Errorf("left %q, %v", list(t, d), err)
	}
}

// TestFreezeKilled covers a kill before and after the rename, when the record names a missing or an existing base.
func TestFreezeKilled(t *testing.T) {
	const base = basePrefix + "0123"
	for _, moved := range []bool{false, true} {
		d := open(t)
		b := add(t, d, "aa", "", time.Hour)
		write(t, b, "f")
		info := runner.Info{ID: "aa", Expires: time.Now().Add(time.Hour)}
		if err := b.Write(Record{Info: info, Base: nil, Freezing: base}); err != nil {
			t.Fatal(err)
		}
		if moved {
			if err := os.Rename(b.Tree(), d.path+"/"+base); err != nil {
				t.Fatal(err)
			}
		}
		b.Close()
		if _, err := d.Sweep(); err != nil {
			t.Error(err)
		}
		b, r, err := d.Take("aa")
		if err != nil || r.Freezing != "" || (len(r.Base) == 1) != moved {
			t.Fatalf("moved %t: %+v, %v", moved, r, err)
		}
		_, err = os.Stat(b.Tree() + "/up/f")
		if moved {
			_, err = os.Stat(d.path + "/" + base + "/up/f")
		}
		if err != nil {
			t.Error(err)
		}
		b.Close()
	}
}

// TestOrphan: an ephemeral snapshot is removed when its maker has ended, and not before.
func TestOrphan(t *testing.T) {
	d := open(t)
	self, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	gone := self
	gone.Start++
	for id, maker := range map[string]Process{"mine": self, "dead": gone, "none": {}} {
		b, err := d.New(id)
		if err != nil {
			t.Fatal(err)
		}
		r := Record{Info: runner.Info{ID: id, Expires: time.Now().Add(time.Hour)}, Snapshot: true, Maker: maker}
		if err := errors.Join(b.Write(r), b.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if removed, err := d.Sweep(); err != nil || len(removed) != 1 || removed[0] != "dead" || len(list(t, d)) != 2 {
		t.Errorf("removed %q, %v; left %q", removed, err, list(t, d))
	}
}

func TestHoldRefuses(t *testing.T) {
	d := open(t)
	b := add(t, d, "aa", "", time.Hour)
	defer b.Close()
	for _, name := range []string{"base-none", "aa", "..", "/", ""} {
		if _, err := b.Hold([]string{name}); err == nil {
			t.Errorf("holds %q", name)
		}
	}
}

// TestRemovedDirectory checks that a store whose directory was removed has no sandboxes: a runner must still answer, and end.
func TestRemovedDirectory(t *testing.T) {
	dir := t.TempDir() + "/sandboxes"
	err := os.Mkdir(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if all, err := d.All(); len(all) > 0 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
}
