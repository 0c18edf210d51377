package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

var (
	oneMapped  = api.Boot{UIDMap: []runner.IDRange{{Host: 1000, Size: 1}}, GIDMap: []runner.IDRange{{Host: 1000, Size: 1}}, MapWhy: "why", MapFix: "fix"}
	manyMapped = api.Boot{UIDMap: []runner.IDRange{{Host: 100000, Size: 65536}}, GIDMap: []runner.IDRange{{Host: 100000, Size: 65536}}}
)

func TestAdmitRootfs(t *testing.T) {
	id := "sha256:" + strings.Repeat("a", 64)
	many := slices.Repeat([]string{id}, layersMax+1)
	for _, row := range []struct {
		name  string
		image string
		r     *runner.Rootfs
		want  string // in the error; "": no error
	}{
		{"host", "host", nil, ""},
		{"unknown", "python", nil, "not known"},
		{"layers", "python", &runner.Rootfs{Store: "/s", Layers: []string{id}}, ""},
		{"no layers", "scratch", &runner.Rootfs{Store: "/s"}, ""},
		{"directory", "dir:/r", &runner.Rootfs{Dir: "/r"}, ""},
		{"directory and store", "dir:/r", &runner.Rootfs{Dir: "/r", Store: "/s"}, ""},
		{"both", "x", &runner.Rootfs{Dir: "/r", Layers: []string{id}}, "layers and a directory"},
		{"nothing", "x", &runner.Rootfs{}, "not absolute"},
		{"relative store", "x", &runner.Rootfs{Store: "s", Layers: []string{id}}, "not absolute"},
		{"relative directory", "x", &runner.Rootfs{Dir: "../r"}, "not absolute"},
		{"relative working directory", "x", &runner.Rootfs{Dir: "/r", WorkingDir: "app"}, "working directory"},
		{"bad layer", "x", &runner.Rootfs{Store: "/s", Layers: []string{"../../etc"}}, "layer"},
		{"too many", "x", &runner.Rootfs{Store: "/s", Layers: many}, "501 layers"},
	} {
		err := admitRootfs(&runner.Spec{Image: row.image, Rootfs: row.r})
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
		var e *ipc.Error
		if err != nil && (!errors.As(err, &e) || e.Code != ipc.CodeInvalid) {
			t.Errorf("%s: %v is not invalid", row.name, err)
		}
	}
}

// TestGuestSetupOfImages checks the additional rights of an image's commands.
func TestGuestSetupOfImages(t *testing.T) {
	image := &runner.Rootfs{Dir: "/r"}
	for _, row := range []struct {
		name             string
		spec             runner.Spec
		boot             api.Boot
		fakeRoot, noSUID bool
		caps             bool
	}{
		{"host", runner.Spec{}, oneMapped, false, true, false},
		{"one id", runner.Spec{Rootfs: image}, oneMapped, true, false, true},
		{"many ids", runner.Spec{Rootfs: image}, manyMapped, false, false, true},
		{"exposed", runner.Spec{Rootfs: image, Exposed: true}, manyMapped, false, true, true},
		{"nesting", runner.Spec{Rootfs: image, Nesting: true, Exposed: true}, manyMapped, false, false, true},
	} {
		s := guestSetup(row.spec, row.boot)
		if s.Seccomp.FakeRoot != row.fakeRoot || s.Seccomp.NoSUID != row.noSUID || (len(s.RootCaps) > 0) != row.caps {
			t.Errorf("%s: %+v", row.name, s)
		}
		if slices.Contains(s.RootCaps, capSetfcap) || slices.Contains(s.RootCaps, unix.CAP_SYS_ADMIN) {
			t.Errorf("%s: uid 0 has %v", row.name, s.RootCaps)
		}
	}
	for i, c := range rootCaps {
		if name := rootCapNames[i]; len(rootCapNames) != len(rootCaps) || capNumbers[name] != c {
			t.Errorf("%s is not %d", name, c)
		}
	}
}

var capNumbers = map[string]uint{
	"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3, "CAP_FSETID": 4, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7,
}

func TestPrivileges(t *testing.T) {
	image := runner.Spec{Rootfs: &runner.Rootfs{}}
	var all uint64
	for _, c := range rootCaps {
		all |= 1 << c
	}
	for _, row := range []struct {
		name string
		spec runner.Spec
		want uint64
	}{
		{"host", runner.Spec{}, 0},
		{"image", image, all},
		{"nesting", runner.Spec{Nesting: true}, 1 << capSetfcap},
	} {
		if p := privileges(row.spec); p.Set != row.want || (len(p.Words) > 0) != (row.want != 0) {
			t.Errorf("%s: %+v", row.name, p)
		}
	}
}

// TestRunsAs checks the user of commands, with the host's tree and with an image's.
func TestRunsAs(t *testing.T) {
	host := &sandbox{e: &Engine{boot: manyMapped}, paths: inside}
	image := &sandbox{e: &Engine{boot: manyMapped}, paths: inside, spec: runner.Spec{Rootfs: &runner.Rootfs{}}, tree: &rootfs.Tree{
		Account: rootfs.Account{User: rootfs.User{UID: 9, GID: 9}, Groups: []uint32{4}, Home: "/h"},
	}}
	for _, row := range []struct {
		name   string
		s      *sandbox
		asked  *runner.User
		uid    uint32
		groups int
		home   string
	}{
		{"host", host, nil, 0, 0, "/root"},
		{"host, other", host, &runner.User{UID: 7, GID: 7}, 7, 0, "/workspace"},
		{"image", image, nil, 9, 1, "/h"},
		{"image, root", image, &runner.User{}, 0, 0, "/"},
		{"image, unknown", image, &runner.User{UID: 7, GID: 7}, 7, 0, "/"},
	} {
		a, err := row.s.runsAs(row.asked)
		if err != nil || a.UID != row.uid || len(a.Groups) != row.groups || a.Home != row.home {
			t.Errorf("%s: %+v, %v", row.name, a, err)
		}
	}
	if _, err := image.runsAs(&runner.User{UID: 70000}); err == nil {
		t.Error("an id that is not mapped was taken")
	}
}
