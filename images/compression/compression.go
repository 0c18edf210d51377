// Package compression has one process of an image store compress the layers of built images, before a push asks for them.
//
//	err := compression.Ask(dir, program, image)   after a build: starts program, which ends by itself
//	err := compression.Work(ctx, dir, do)         in that program: calls do for each image
//	err := compression.End(dir)                   ends that process
//
// A file compress/HEX of the store asks for an image. The process that does the work has the record lock of locks/compress,
// which, unlike flock(2), tells who holds it. It has the lowest priority, which it inherits from the thread that starts it.
// The package compresses nothing itself: images/push does.
package compression

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/images/oci"
	"demesne/internal/fsutil"
)

const (
	asks     = "compress"
	lockFile = "locks/compress"
	// Verb is the command of the program that does the work.
	Verb = "compress"
	// endTime bounds the wait for a process that was told to end.
	endTime = 2 * time.Second
)

// Ask asks for an image, and starts a process that does the work. It does not wait for the process, which ends by itself.
func Ask(dir, program string, d oci.Digest) error {
	if err := os.MkdirAll(filepath.Join(dir, asks), 0o755); err != nil {
		return fmt.Errorf("ask for compression: %w", err)
	}
	if err := fsutil.WriteFile(filepath.Join(dir, asks, d.Encoded()), nil, 0o644); err != nil {
		return fmt.Errorf("ask for compression: %w", err)
	}
	cmd := exec.Command(program, Verb, "--store", dir)
	cmd.Dir, cmd.Env = "/", []string{} // it needs neither secrets nor a home
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	started := make(chan error)
	go func() {
		// A child inherits the priority of the thread that forks it. The thread ends with this goroutine.
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 19)
		_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE, Nice: 19}, 0)
		started <- cmd.Start()
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start compression: %w", err)
	}
	return cmd.Process.Release()
}

// Work calls do for each image that was asked for, until all are done. It returns at once if another process does the work.
// An image for which do fails is not tried again.
func Work(ctx context.Context, dir string, do func(context.Context, oci.Digest) error) error {
	_ = os.WriteFile("/proc/self/autogroup", []byte("19"), 0) // else a session of its own has a full share of the processors
	var errs []error
	for asked(dir) != "" && ctx.Err() == nil {
		lock, err := lockIn(dir)
		if lock == nil || err != nil {
			return errors.Join(append(errs, err)...)
		}
		for d := asked(dir); d != "" && ctx.Err() == nil; d = asked(dir) {
			errs = append(errs, do(ctx, d))
			if ctx.Err() != nil {
				break
			}
			if err := os.Remove(filepath.Join(dir, asks, d.Encoded())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				lock.Close()
				return errors.Join(append(errs, err)...)
			}
		}
		lock.Close() // another process may have given up meanwhile, so the loop looks again
	}
	return errors.Join(append(errs, context.Cause(ctx))...)
}

// asked returns an image that was asked for, or "".
func asked(dir string) oci.Digest {
	f, err := os.Open(filepath.Join(dir, asks))
	if err != nil {
		return ""
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(1)
		if err != nil {
			return ""
		}
		var d oci.Digest
		if d.UnmarshalText([]byte(oci.Algorithm+names[0])) == nil && d != "" {
			return d
		}
	}
}

// lockIn takes the lock. It returns nil if another process holds it.
func lockIn(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock compression: %w", err)
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock compression: %w", err)
}

// End ends the process that does the work, if there is one.
func End(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("end compression: %w", err)
	}
	defer f.Close()
	pid := holder(f)
	if pid <= 0 || pid == os.Getpid() {
		return nil
	}
	p, err := unix.PidfdOpen(pid, 0)
	if err != nil || holder(f) != pid { // it has ended; the pid may be another process's
		return nil
	}
	defer unix.Close(p)
	if err := unix.PidfdSendSignal(p, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end compression: process %d: %w", pid, err)
	}
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(p), Events: unix.POLLIN}}, int(endTime.Milliseconds()))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("end compression: %w", err)
	}
	return nil
}

// holder returns the process that has a record lock of the file, or 0.
func holder(f *os.File) int {
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil || l.Type == unix.F_UNLCK {
		return 0
	}
	return int(l.Pid)
}
