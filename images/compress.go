package images

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// Compression is the work of compressing the layers of built images before a push asks for them. A file compress/HEX asks
// for an image. One process of a store does the work. It has the record lock of locks/compress, which, other than
// flock(2), tells who has it.
type Compression struct{ Dir string } // of the store

const (
	compressDir  = "compress"
	compressLock = "locks/compress"
	// CompressVerb is the command of demesne-images that does the work.
	CompressVerb = "compress"
	// formLife is how long a compressed form is kept after its last use.
	formLife = 7 * 24 * time.Hour
	// endTime bounds the wait for a process that was told to end.
	endTime = 2 * time.Second
)

// Ask asks for an image, and starts a process that does the work. It does not wait for the process, which ends by itself.
func (c Compression) Ask(program string, d oci.Digest) error {
	s := files{c.Dir}
	if err := makeDir(s.path(compressDir), 0o755); err != nil {
		return fmt.Errorf("ask for compression: %w", err)
	}
	if err := fsutil.WriteFile(s.path(compressDir+"/"+d.Encoded()), nil, 0o644); err != nil {
		return fmt.Errorf("ask for compression: %w", err)
	}
	cmd := exec.Command(program, CompressVerb, "--store", c.Dir)
	cmd.Dir, cmd.Env = "/", plainEnv(os.Environ())
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

// Work calls do for each image that was asked for, until no request is left. It returns at once if another process does the work.
// An image for which do fails is not tried again.
func (c Compression) Work(ctx context.Context, do func(context.Context, oci.Digest) error) error {
	_ = os.WriteFile("/proc/self/autogroup", []byte("19"), 0) // else a session of its own has a full share of the processors
	var errs []error
	for c.asked() != "" && ctx.Err() == nil {
		lock, err := c.lock()
		if lock == nil || err != nil {
			return errors.Join(append(errs, err)...)
		}
		for d := c.asked(); d != "" && ctx.Err() == nil; d = c.asked() {
			errs = append(errs, do(ctx, d))
			if ctx.Err() != nil {
				break
			}
			if err := os.Remove(filepath.Join(c.Dir, compressDir, d.Encoded())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				lock.Close()
				return errors.Join(append(errs, err)...)
			}
		}
		lock.Close() // another process may have given up meanwhile, so the loop looks again
	}
	return errors.Join(append(errs, context.Cause(ctx))...)
}

// asked returns an image that was asked for, or "".
func (c Compression) asked() oci.Digest {
	f, err := os.Open(filepath.Join(c.Dir, compressDir))
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

// lock takes the lock. It returns nil if another process has it.
func (c Compression) lock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(c.Dir, compressLock), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
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
func (c Compression) End() error {
	f, err := os.OpenFile(filepath.Join(c.Dir, compressLock), os.O_RDWR|unix.O_NOFOLLOW, 0)
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
	if err != nil || holder(f) != pid { // it has ended; the pid may be that of another process
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

// Compressed keeps r, the compressed form of a layer, with the store's blobs, until gc finds the form unused.
func (c Copies) Compressed(ctx context.Context, layer oci.Digest, form string, r io.Reader) error {
	d, size, err := c.Store.Put(ctx, r, oci.MaxBlob)
	if err == nil {
		err = c.Put(ctx, layer, Copy{Form: form, Digest: d, Size: size})
	}
	return err
}

// Form returns a form of a layer that is known, and reports whether the store has it.
func (c Copies) Form(layer oci.Digest, form string) (one Copy, known, here bool) {
	for _, one := range c.Of(layer) {
		if one.Form == form {
			st, err := os.Stat(c.Store.blobPath(one.Digest))
			here := err == nil && st.Size() == one.Size
			if here {
				now := time.Now()
				_ = os.Chtimes(c.Store.blobPath(one.Digest), now, now) // its last use; best effort, as in Hold
			}
			return one, true, here
		}
	}
	return Copy{}, false, false
}

// Forget removes a compressed form that turned out to be damaged.
func (c Copies) Forget(ctx context.Context, d oci.Digest) error {
	lock, err := c.Store.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	return os.Remove(c.Store.blobPath(d))
}

// forms returns the compressed forms that are kept with the blobs in keep: those that were used since.
func (s files) forms(keep map[oci.Digest]bool, since time.Time) (all []oci.Digest, err error) {
	err = s.eachFile(pushedDir, func(name, _ string) error {
		d := oci.Digest(oci.Algorithm + name)
		if !keep[d] {
			return nil
		}
		for _, one := range s.copies(d) {
			if st, err := os.Stat(s.blobPath(one.Digest)); one.Form != "" && err == nil && st.ModTime().After(since) {
				all = append(all, one.Digest)
			}
		}
		return nil
	})
	return all, err
}
