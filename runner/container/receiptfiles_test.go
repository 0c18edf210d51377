package container

import (
	"errors"
	"strings"
	"testing"
	"time"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/userns"
)

var oneMapped, manyMapped = boot(1), boot(65536)

func boot(ids uint32) api.Boot {
	m := []runner.IDRange{{Size: ids}}
	return api.Boot{UIDMap: m, GIDMap: m}
}

func TestImageReceipt(t *testing.T) {
	image := &runner.Rootfs{Layers: []string{"a", "b"}}
	for _, row := range []struct {
		name   string
		layer  runner.Layer
		status runner.Status
		detail string
	}{
		{"tmpfs", imageLayer(image, &rootfs.Tree{Upper: rootfs.UpperTmpfs}, api.Boot{}), runner.Held, "2 layers, read-only; writes go to a tmpfs"},
		{"disk", imageLayer(image, &rootfs.Tree{Upper: rootfs.UpperDisk}, api.Boot{}), runner.Degraded, "disk"},
		{"chroot", imageLayer(image, &rootfs.Tree{Upper: rootfs.UpperChroot}, api.Boot{ModeWhy: "no mounts"}), runner.Degraded, "copied to a directory that chroot(2) made the root; no /proc"},
		{"copied", imageLayer(&runner.Rootfs{Dir: "/r"}, &rootfs.Tree{Upper: rootfs.UpperCopied}, api.Boot{}), runner.Degraded, "a directory, copied"},
		{"user", userLayer(manyMapped, &rootfs.Tree{Account: rootfs.Account{User: rootfs.User{UID: 5, GID: 6}}}), runner.Held, "5:6"},
		{"only user", userLayer(oneMapped, &rootfs.Tree{}), runner.Held, "0:0, the only id"},
		{"other user", userLayer(oneMapped, &rootfs.Tree{Unmapped: &rootfs.User{UID: 5, GID: 6}}), runner.Degraded, "0:0 instead of the image's 5:6"},
	} {
		if row.layer.Status != row.status || !strings.Contains(row.layer.Detail, row.detail) {
			t.Errorf("%s: %+v", row.name, row.layer)
		}
	}
	limits := []runner.LimitReceipt{{Name: "pids", Mechanism: "RLIMIT_NPROC", Status: runner.Held}, {Name: "disk", Mechanism: "tmpfs size", Status: runner.Held}}
	for upper, want := range map[rootfs.Upper]runner.Status{rootfs.UpperTmpfs: runner.Held, rootfs.UpperDisk: runner.Degraded} {
		got := imageLimits(limits, upper)
		if got[0].Status != runner.Held || got[1].Status != want || limits[1].Status != runner.Held {
			t.Errorf("%s: %+v", upper, got)
		}
	}
	if off := imageLimits([]runner.LimitReceipt{{Name: "disk", Status: runner.Off}}, rootfs.UpperDisk); off[0].Status != runner.Off {
		t.Errorf("%+v", off)
	}
}

func TestFilesLayer(t *testing.T) {
	if l := filesLayer(true, nil); l.Status != runner.Held || l.Why != "" {
		t.Errorf("%+v", l)
	}
	if l := filesLayer(false, errors.New("why")); l.Status != runner.Degraded || l.Why != "why" || l.Fix == "" {
		t.Errorf("%+v", l)
	}
	limits := keptLimits([]runner.LimitReceipt{{Name: "pids", Mechanism: "m"}, {Name: "disk", Mechanism: "tmpfs"}})
	if limits[0].Mechanism != "m" || limits[1].Mechanism == "tmpfs" {
		t.Errorf("%+v", limits)
	}
	of := NewReceipt(ReceiptFacts{Spec: runner.Spec{Lifetime: runner.Persistent, PauseIdle: runner.Duration(time.Minute)}, Limits: limits, Tree: &rootfs.Tree{}})
	if l := of.Limits[len(of.Limits)-1]; l.Name != "pause-idle" || l.Value != "1m0s" || l.Status != runner.Held || !strings.HasPrefix(l.Mechanism, "SIGSTOP") || len(limits) != 2 {
		t.Errorf("%+v", l)
	}
	if l := idleLimit(1, userns.ModeMinimal); l.Status != runner.Missing || l.Mechanism != "" || l.Why == "" {
		t.Errorf("%+v", l)
	}
	if off := keptLimits([]runner.LimitReceipt{{Name: "disk", Status: runner.Off}}); off[0].Mechanism != "" {
		t.Errorf("%+v", off)
	}
}
