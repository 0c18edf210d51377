package code

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"demesne/kernels"
	"demesne/kernels/driver"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/session"
)

// Driver is the Options.Kernel of demesne's own kernel, for a root that has kernelspecs too.
const Driver = "demesne"

// kernelDir is the sandbox's directory for a kernel's connection file.
const kernelDir = "/tmp/.demesne-kernels"

// start starts the root's kernel, or else demesne's own. A kernel that was not asked for by name, and ends at once
// or cannot be reached, is as good as none: a kernelspec may have outlived its program. One that nothing can replace gets a
// second try.
func start(ctx context.Context, sb sandbox, o Options) (*kernels.Running, error) {
	if o.Kernel == Driver {
		return startDriver(ctx, sb, o)
	}
	if o.Kernel == "" && o.PreferOwn && o.Language.Prints() {
		if k, err := startDriver(ctx, sb, o); err == nil || ctx.Err() != nil {
			return k, err
		}
	}
	root, err := kernels.Look(ctx, sb)
	if err != nil {
		return nil, err
	}
	spec, found := root.Spec(o.Kernel, o.Language.Kernel)
	switch {
	case found:
		if o.Kernel != "" || driver.Argv(o.Language.Name) == nil {
			return kernels.Start(ctx, sb, spec, kernelDir, o.Dir, 2)
		}
		if k, err := kernels.Start(ctx, sb, spec, kernelDir, o.Dir, 1); !errors.Is(err, kernels.ErrDead) || ctx.Err() != nil {
			return k, err
		}
	case o.Kernel != "":
		return nil, fmt.Errorf("no kernel %q; the root has: %s", o.Kernel, names(root))
	case driver.Argv(o.Language.Name) == nil:
		return nil, fmt.Errorf("no kernel for %s; the root has: %s", o.Language.Name, names(root))
	}
	k, err := startDriver(ctx, sb, o)
	if e := (*ipc.Error)(nil); errors.As(err, &e) && e.Code == ipc.CodeCommandNotFound {
		err = fmt.Errorf("%w; the root has no kernel for %s either", err, o.Language.Name)
	}
	return k, err
}

// names lists the kernels of a root for a message.
func names(r *kernels.Root) string {
	var all []string
	for _, s := range r.Specs {
		all = append(all, s.Name)
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

func startDriver(ctx context.Context, sb sandbox, o Options) (*kernels.Running, error) {
	argv := driver.Argv(o.Language.Name)
	if argv == nil {
		return nil, fmt.Errorf("demesne has no kernel for %s", o.Language.Name)
	}
	return kernels.StartDriver(ctx, sb, runner.Command{Argv: argv, Dir: o.Dir})
}

// sandbox is a sandbox as kernels want it.
type sandbox struct {
	*session.Sandbox
	path []string // of the caller: interpreters of the host may be there
	env  []string
}

func (s sandbox) Exec(ctx context.Context, cmd runner.Command) (kernels.Process, error) {
	cmd.Path, cmd.Env = s.path, append(s.env[:len(s.env):len(s.env)], cmd.Env...)
	return s.Sandbox.Exec(ctx, cmd)
}

func (s sandbox) Dial(ctx context.Context, port uint16) (io.ReadWriteCloser, error) {
	return s.Sandbox.Dial(ctx, port)
}
