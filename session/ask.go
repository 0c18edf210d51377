package session

import (
	"context"
	"sync"

	"demesne/runner"
)

// asks registers, for each sandbox, the callers that can answer questions about names: those that wait for a
// command in it. Without one a name is denied for now, and the next attempt asks again. The zero value is
// ready.
type asks struct {
	mu   sync.Mutex
	last int
	who  map[string][]listener // by sandbox
}

type asker = func(runner.Question, []string) (allow, answered bool)

type listener struct {
	number int
	ask    asker
}

// listen makes ask answer for a sandbox until done is called. The latest listener answers.
func (a *asks) listen(sandbox string, ask asker) (done func()) {
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
func (a *asks) of(sandbox string) asker {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.who[sandbox]
	if len(all) == 0 {
		all = a.who[Every]
	}
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1].ask
}

// Every stands for every sandbox in [Service.Answer]: for those that no other function answers for.
const Every = ""

// Answer makes ask answer the questions about a sandbox until done is called. It is for frontends that use the sandbox in other
// ways than Run and Exec. ask may be nil.
func (s *Service) Answer(sandbox string, ask func(q runner.Question, readable []string) (allow, answered bool)) (done func()) {
	return s.asks.listen(sandbox, ask)
}

// question passes a runner's question to the sandbox's listener, with every host path that the sandbox can read,
// including those granted by earlier calls.
func (s *Service) question(q runner.Question) (allow, answered bool) {
	ctx, cancel := context.WithTimeout(context.Background(), runner.AskTime)
	defer cancel()
	answer := s.watch.question(ctx, q)
	defer func() { answer(allow, answered) }()
	ask := s.asks.of(q.Sandbox)
	if ask == nil {
		return false, false
	}
	info, err := s.Inspect(ctx, q.Sandbox)
	if err != nil {
		return false, false
	}
	return ask(q, readable(info.Spec))
}

// readable returns the host paths that a sandbox can read.
func readable(s runner.Spec) (paths []string) {
	for _, in := range s.Inputs {
		paths = append(paths, in.Path)
	}
	if s.Workspace != "" {
		paths = append(paths, s.Workspace)
	}
	for _, m := range s.Mounts {
		paths = append(paths, m.Source)
	}
	if s.Rootfs != nil && s.Rootfs.Dir != "" {
		paths = append(paths, s.Rootfs.Dir)
	}
	return paths
}
