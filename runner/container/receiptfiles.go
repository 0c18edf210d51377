package container

import (
	"fmt"
	"slices"
	"time"

	"demesne/rootfs"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/userns"
)

// imageLayer describes how / is built.
func imageLayer(r *runner.Rootfs, t *rootfs.Tree, b api.Boot) runner.Layer {
	of := "a directory"
	if r.Dir == "" {
		of = fmt.Sprintf("%d layers", len(r.Layers))
	}
	l := runner.Layer{Name: "rootfs", Status: runner.Held, Detail: of + ", read-only; writes go to a tmpfs"}
	switch t.Upper {
	case rootfs.UpperTmpfs:
		return l
	case rootfs.UpperKept:
		l.Detail = of + ", read-only; writes go to a disk and persist"
		return l
	}
	if t.Upper == rootfs.UpperChroot {
		l.Status, l.Why, l.Fix = runner.Degraded, b.ModeWhy, b.ModeFix
		l.Detail = of + ", copied to a directory that chroot(2) made the root; no /proc, no /sys, no terminals"
		return l
	}
	l.Status, l.Why = runner.Degraded, "no overlay on a tmpfs, which needs Linux 6.6: "+errText(t.UpperWhy)
	l.Detail = of + ", read-only; writes go to the image store's disk"
	if t.Upper == rootfs.UpperCopied {
		l.Detail = of + ", copied"
	}
	return l
}

// userLayer names the user that commands run as, and reports whether the image asked for that user.
func userLayer(b api.Boot, t *rootfs.Tree) runner.Layer {
	l := runner.Layer{Name: "user", Status: runner.Held, Detail: fmt.Sprintf("%d:%d", t.Account.UID, t.Account.GID)}
	if b.OneID() {
		l.Detail += ", the only id: calls that change owner or user succeed without effect"
	}
	if t.Unmapped != nil {
		l.Status, l.Why, l.Fix = runner.Degraded, b.MapWhy, b.MapFix
		l.Detail = fmt.Sprintf("0:0 instead of the image's %d:%d, which is not mapped", t.Unmapped.UID, t.Unmapped.GID)
	}
	return l
}

// imageLimits adjusts the disk limit to the place of an image's upper.
func imageLimits(l []runner.LimitReceipt, u rootfs.Upper) []runner.LimitReceipt {
	l = slices.Clone(l)
	for i := range l {
		if l[i].Name == "disk" && l[i].Status != runner.Off && u == rootfs.UpperDisk {
			l[i].Status, l[i].Why = runner.Degraded, "writes over the image go to a disk, under a watchdog"
			l[i].Mechanism = "watchdog, RLIMIT_FSIZE"
		}
	}
	return l
}

// filesLayer reports whether the writes of a persistent sandbox outlive its processes.
func filesLayer(onDisk bool, why error) runner.Layer {
	l := runner.Layer{Name: "files", Status: runner.Held, Detail: "on disk, except /dev/shm"}
	if !onDisk {
		l.Status, l.Detail, l.Why = runner.Degraded, "not on disk: lost when the runner ends", errText(why)
		l.Fix = "export DEMESNE_SANDBOX_ROOT=DIR   # on a disk that overlayfs can write to: ext4, xfs or btrfs"
	}
	return l
}

// keptLimits names the mechanism of the disk limit for files kept on disk.
func keptLimits(l []runner.LimitReceipt) []runner.LimitReceipt {
	for i := range l {
		if l[i].Name == "disk" && l[i].Status != runner.Off {
			l[i].Mechanism = "watchdog on /, /out and /workspace, RLIMIT_FSIZE"
		}
	}
	return l
}

// idleLimit describes the mechanism that pauses an unused sandbox; package sandbox explains the choice.
func idleLimit(after runner.Duration, mode string) runner.LimitReceipt {
	l := runner.LimitReceipt{
		Name: "pause-idle", Value: time.Duration(after).String(), Status: runner.Held,
		Mechanism: "SIGSTOP to all but PID 1; the workload can undo it",
	}
	if mode == userns.ModeMinimal {
		l.Status, l.Mechanism, l.Why = runner.Missing, "", "without a pid namespace its processes cannot be listed"
	}
	return l
}
