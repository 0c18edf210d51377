package session

import (
	"context"
	"sync"

	"demesne/mcp/backend"
	"demesne/runner"
	"demesne/runner/client"
)

// asks registers, for each sandbox, the callers that can answer questions about names: those that wait for a
// command in it. Without one a name is denied for now, and the next attempt asks again. The zero value is
// ready.
type asks struct {
	mu   sync.Mutex
	last int
	who  map[string][]listener // by sandbox
}

type listener struct {
	number int
	ask    func(backend.Question) bool
}

// listen makes ask answer for a sandbox until done is called. The latest listener answers.
func (a *asks) listen(sandbox string, ask func(backend.Question) bool) (done func()) {
	if ask == nil {
		return func() {}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.who == nil {
		a.who = map[string][]listener{}
	}
	a.last++
	number := a.last
	a.who[sandbox] = append(a.who[sandbox], listener{number, ask})
	return func() { a.leave(sandbox, number) }
}

func (a *asks) leave(sandbox string, number int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var rest []listener
	for _, l := range a.who[sandbox] {
		if l.number != number {
			rest = append(rest, l)
		}
	}
	if a.who[sandbox] = rest; rest == nil {
		delete(a.who, sandbox)
	}
}

// of returns the function that answers for a sandbox, or nil.
func (a *asks) of(sandbox string) func(backend.Question) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.who[sandbox]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1].ask
}

// question asks the listener of a runner's question. It passes on every host path that the sandbox can read,
// including those granted by earlier calls.
func (d *Service) question(q runner.Question) (allow, answered bool) {
	ask := d.asks.of(q.Sandbox)
	if ask == nil {
		return false, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), backend.AskTime)
	defer cancel()
	var info *runner.Info
	err := d.conn.with(ctx, func(live *client.Client) (err error) {
		info, err = live.Inspect(ctx, q.Sandbox)
		return err
	})
	if err != nil {
		return false, false
	}
	return ask(backend.Question{Name: q.Name, Port: q.Port, Inputs: readable(info.Spec)}), true
}

// readable returns the host paths that a sandbox can read.
func readable(s runner.Spec) (paths []string) {
	for _, in := range s.Inputs {
		paths = append(paths, in.Path)
	}
	if s.Workspace != "" {
		paths = append(paths, s.Workspace)
	}
	if s.Rootfs != nil && s.Rootfs.Dir != "" {
		paths = append(paths, s.Rootfs.Dir)
	}
	return paths
}
