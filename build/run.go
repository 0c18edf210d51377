package build

import (
	"context"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/runner/client"
	"demesne/session"
)

// Execute executes demesne-build, which links the parser of Containerfiles. in may be nil. out takes the
// digest of the image, and log what the build says.
// A build removes its sandboxes and intermediate images at SIGTERM. It does not outlive this process.
func Execute(ctx context.Context, args []string, in io.Reader, out, log io.Writer) error {
	program, err := client.FindProgram("demesne-build")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread() // the signal comes at the end of the thread
	defer runtime.UnlockOSThread()
	cmd.WaitDelay = 10 * time.Second
	return cmd.Run()
}

// Drop removes an image that a build with --max-layers made, and the layers that nothing else uses. The stored sandboxes
// of all namespaces keep theirs.
func Drop(ctx context.Context, ref imageref.Ref) error {
	c, err := session.OpenImages()
	if err != nil {
		return err
	}
	defer c.Store.Close()
	whole := session.New(session.Options{})
	defer whole.Close()
	release, layers, err := whole.HoldStored(ctx, c.Store, nil)
	if err != nil {
		return err
	}
	defer release()
	if err := (images.Steps{Store: c.Store}).Discard(ctx, ref); err != nil {
		return err
	}
	_, _, err = c.Sweep(ctx, layers) // what other id maps unpacked stays until gc runs under them
	return err
}
