package sandbox

import (
	"testing"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/api"
)

var manyMapped = api.Boot{UIDMap: []runner.IDRange{{Host: 100000, Size: 65536}}, GIDMap: []runner.IDRange{{Host: 100000, Size: 65536}}}

// TestRunsAs checks the user of commands, with the host's tree and with an image's.
func TestRunsAs(t *testing.T) {
	m := &Machine{Boot: manyMapped}
	host, image := newFiles(&state{identity: &identity{machine: m}}), newFiles(&state{identity: &identity{machine: m, spec: runner.Spec{Rootfs: &runner.Rootfs{}}}})
	image.tree = &rootfs.Tree{Account: rootfs.Account{User: rootfs.User{UID: 9, GID: 9}, Groups: []uint32{4}, Home: "/h"}}
	for _, row := range []struct {
		name   string
		f      files
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
		a, err := row.f.runsAs(row.asked)
		if err != nil || a.UID != row.uid || len(a.Groups) != row.groups || a.Home != row.home {
			t.Errorf("%s: %+v, %v", row.name, a, err)
		}
	}
	if _, err := image.runsAs(&runner.User{UID: 70000}); err == nil {
		t.Error("an id that is not mapped was taken")
	}
}
