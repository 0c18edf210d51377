package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"

	"demesne/proxy"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// gateTo gives the routes of m their gates, which it returns: see [runner.GateMessage].
func gateTo(routes []proxy.Route, asked []runner.Route, m *ipc.Message) (files []*os.File, err error) {
	for i := range asked {
		f := m.File(api.FileGate(i))
		if f == nil {
			continue
		}
		files = append(files, f)
		c, err := net.FileConn(f)
		if err != nil {
			return files, err
		}
		g, err := newGate(c)
		if err != nil {
			return files, err
		}
		routes[i].Gate = g
	}
	return files, nil
}

// gate asks the caller of a sandbox about requests. If the caller has ended, it refuses all of them.
type gate struct {
	conn net.Conn

	mu      sync.Mutex
	last    int64
	waiting map[int64]chan<- runner.GateAnswer // nil: the caller has ended
}

func newGate(c net.Conn) (*gate, error) {
	g := &gate{conn: c, waiting: map[int64]chan<- runner.GateAnswer{}}
	if err := g.send(runner.GateMessage{Op: runner.GateStart}); err != nil {
		c.Close()
		return nil, err
	}
	go g.hear()
	return g, nil
}

// hear passes on answers until the conn ends.
func (g *gate) hear() {
	buf := make([]byte, runner.MaxGateMessage)
	for {
		n, err := g.conn.Read(buf)
		var a runner.GateAnswer
		if err != nil || n == 0 || json.Unmarshal(buf[:n], &a) != nil {
			break
		}
		g.mu.Lock()
		if to := g.waiting[a.Number]; to != nil {
			to <- a // it has room for the one answer
		}
		delete(g.waiting, a.Number)
		g.mu.Unlock()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, to := range g.waiting {
		close(to)
	}
	g.waiting = nil
	g.conn.Close()
}

func (g *gate) send(m runner.GateMessage) error {
	text, err := json.Marshal(m)
	if err == nil {
		_, err = g.conn.Write(text)
	}
	return err
}

var errEnded = errors.New("the agent's budget cannot be asked: what bounds it has ended")

// Ask implements [proxy.Gate].
func (g *gate) Ask(ctx context.Context, a proxy.Asked) (int64, error) {
	answer := make(chan runner.GateAnswer, 1)
	g.mu.Lock()
	if g.waiting == nil {
		g.mu.Unlock()
		return 0, errEnded
	}
	g.last++
	number := g.last
	g.waiting[number] = answer
	g.mu.Unlock()
	if g.send(runner.GateMessage{Op: runner.GateAsk, Number: number, Model: a.Model, Sent: a.Sent, MaxOutput: a.MaxOutput, Odd: a.Odd}) != nil {
		return 0, errEnded
	}
	select {
	case got, ok := <-answer:
		if !ok {
			return 0, errEnded
		} else if got.Refused != "" {
			return 0, errors.New(got.Refused)
		}
		return number, nil
	case <-ctx.Done():
		g.Drop(number)
		return 0, context.Cause(ctx)
	}
}

// Drop implements [proxy.Gate].
func (g *gate) Drop(number int64) {
	g.mu.Lock()
	delete(g.waiting, number)
	g.mu.Unlock()
	g.send(runner.GateMessage{Op: runner.GateDrop, Number: number}) // fails only if the caller has ended
}
