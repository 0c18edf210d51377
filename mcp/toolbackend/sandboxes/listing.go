package sandboxes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"demesne/runner"
	"demesne/session"
)

// List returns the sandboxes of MCP servers. Looking at them does not renew them, and resumes none.
func (f *Sandboxes) List(ctx context.Context) (*session.Listing, error) {
	var infos []runner.Info
	err := f.With(ctx, func(e session.Engine) (err error) { infos, err = e.List(ctx); return err })
	if err != nil {
		return nil, Explained(err)
	}
	l := &session.Listing{}
	for _, i := range infos {
		if i.Spec.Lifetime == runner.Persistent {
			l.Sandboxes = append(l.Sandboxes, listed(i))
		}
	}
	slices.SortFunc(l.Sandboxes, func(a, b session.Listed) int { return a.Created.Compare(b.Created) })
	return l, nil
}

func listed(i runner.Info) session.Listed {
	b := session.Listed{
		ID: i.ID, Name: i.Name, Key: i.Spec.Key, State: i.State, Image: i.Spec.Image, Egress: runner.NoEgress,
		OutputDir: i.Out, Created: i.Created, Expires: i.Expires,
	}
	if e := i.Spec.Egress; e != nil && e.Mode != "" {
		b.Egress = e.Mode
	}
	if b.Name == i.ID {
		b.Name = ""
	}
	if i.State == runner.Running || i.State == runner.Paused {
		b.Commands = commandsOf(i.PID)
	}
	return b
}

// Bounds of commandsOf. The processes are a sandbox's.
const (
	maxCommands = 8
	maxCommand  = 256 // bytes of a command line
)

// commandsOf returns the command lines of the children of a sandbox's PID 1, without those that have ended. The kernel
// may give the id of a process that ends to another one. A directory of /proc stays its process's: if init still
// has the child after the directory was opened, it is the child's.
func commandsOf(init int) (list []string) {
	if init <= 0 {
		return nil
	}
	for _, pid := range childrenOf(init) {
		dir, err := os.OpenRoot("/proc/" + pid)
		if err != nil {
			continue
		}
		if slices.Contains(childrenOf(init), pid) {
			if line := commandLine(dir); line != "" {
				list = append(list, line)
			}
		}
		dir.Close()
		if len(list) == maxCommands {
			break
		}
	}
	return list
}

func childrenOf(pid int) []string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	return slices.DeleteFunc(strings.Fields(string(b)), func(s string) bool { _, err := strconv.Atoi(s); return err != nil })
}

func commandLine(dir *os.Root) string {
	f, err := dir.Open("cmdline")
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, maxCommand)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ""
	}
	return string(bytes.ReplaceAll(bytes.TrimRight(b[:n], "\x00"), []byte{0}, []byte{' '}))
}

// Fork copies a persistent sandbox.
func (f *Sandboxes) Fork(ctx context.Context, id, name string) (*session.Created, error) {
	done, err := f.Service.Fork(ctx, id, name, "", nil)
	if err != nil {
		return nil, Attached(id, err)
	}
	info, err := f.Inspect(ctx, done.ID)
	if err != nil {
		f.Discard(done.ID) // the caller will never learn its id
		return nil, Explained(err)
	}
	return &session.Created{
		ID: done.ID, OutputDir: info.Out, Receipt: info.Receipt, Expires: info.Expires, Told: func() { f.known(done.ID) },
	}, nil
}

// ChangeLimits changes limits of a live sandbox.
func (f *Sandboxes) ChangeLimits(ctx context.Context, id string, l runner.Limits) error {
	return Attached(id, f.With(ctx, func(eng session.Engine) error {
		return eng.ChangeLimits(ctx, runner.LimitChange{Sandbox: id, Limits: l})
	}))
}

// CopyBetween copies src in one sandbox to dst in another.
func (f *Sandboxes) CopyBetween(ctx context.Context, id, src, toID, dst string, w session.Callbacks) (session.Copied, error) {
	defer f.holding(id)()
	defer f.holding(toID)()
	for _, sb := range []string{id, toID} { // an error so names the right one
		if _, err := f.Inspect(ctx, sb); err != nil {
			return session.Copied{}, Attached(sb, err)
		}
	}
	did, err := f.Copy(ctx, session.Place{Sandbox: id, Path: src}, session.Place{Sandbox: toID, Path: dst}, session.Callbacks{Moves: w.Moves})
	return session.Copied{Report: did, Path: dst}, Explained(err)
}
