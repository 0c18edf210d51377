package desk

import (
	"sync"

	"demesne/runner"
)

// asks knows who is asked about the names that a sandbox wants to reach: whoever waits for a
// command in it. With nobody there, a name is denied, and somebody asked about it the next time. The zero value is ready.
type asks struct {
	mu   sync.Mutex
	last int
	who  map[string][]listener // by sandbox
}

type listener struct {
	number int
	ask    func(name string, port uint16) bool
}

// listen has ask answer for a sandbox until done is called. Of several the latest is asked.
func (a *asks) listen(sandbox string, ask func(string, uint16) bool) (done func()) {
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

// put puts a question of the runner's.
func (a *asks) put(q runner.Question) (allow, answered bool) {
	a.mu.Lock()
	all := a.who[q.Sandbox]
	a.mu.Unlock()
	if len(all) == 0 {
		return false, false
	}
	return all[len(all)-1].ask(q.Name, q.Port), true
}
