package doctor

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/doctor/diagnose"
)

// probeIDMapped tests the mounts by which real root's directories enter a sandbox. The caller makes those
// mounts, not the runner; a tmpfs shows whether the kernel supports them.
func probeIDMapped(ctx context.Context, e *Env) []answer {
	child, _, err := e.startNested(ctx)
	if err != nil {
		return []answer{e.judge(runner.Missing, "", diagnose.Userns, fmt.Errorf("start child: %w", err))}
	}
	defer stop(child)
	if err := idmapTmpfs(child.Process.Pid); err != nil {
		return []answer{{status: runner.Missing, why: err.Error()}}
	}
	return []answer{held("tmpfs")}
}

// idmapTmpfs makes a detached tmpfs mount and maps it with pid's user namespace.
func idmapTmpfs(pid int) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	ctx, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigCreate(ctx); err != nil {
		return os.NewSyscallError("fsconfig", err)
	}
	mnt, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("fsmount", err)
	}
	defer unix.Close(mnt)
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	return os.NewSyscallError("mount_setattr", unix.MountSetattr(mnt, "", unix.AT_EMPTY_PATH, attr))
}
