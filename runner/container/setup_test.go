package container

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/userns"
)

// TestSetupOfImages checks the additional rights of an image's commands.
func TestSetupOfImages(t *testing.T) {
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
		{"exposed", runner.Spec{Rootfs: image, Handover: runner.Handover{Exposed: true}}, manyMapped, false, true, true},
		{"nesting", runner.Spec{Rootfs: image, Nesting: true, Handover: runner.Handover{Exposed: true}}, manyMapped, false, false, true},
	} {
		s := Setup(row.spec, row.boot)
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

func TestPrivilegesOf(t *testing.T) {
	image := runner.Spec{Rootfs: &runner.Rootfs{}}
	var all uint64
	for _, c := range rootCaps {
		all |= 1 << c
	}
	for _, row := range []struct {
		name string
		spec runner.Spec
		boot api.Boot
		want uint64
	}{
		{"host", runner.Spec{}, api.Boot{}, 0},
		{"image", image, api.Boot{}, all},
		{"copied image", image, api.Boot{Mode: userns.ModeMinimal}, 0},
		{"nesting", runner.Spec{Nesting: true}, api.Boot{}, 1 << capSetfcap},
	} {
		if p := PrivilegesOf(row.spec, row.boot); p.Set != row.want || (len(p.Words) > 0) != (row.want != 0) {
			t.Errorf("%s: %+v", row.name, p)
		}
	}
}
