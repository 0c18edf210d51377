package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/backend"
)

// A client of protocol 2026-07-28 or later cannot be asked while a call is under way: the call
// is answered with what is to be asked, and comes again with the answers. What it had begun goes
// on meanwhile.
//
//	client                                    server
//	tools/call                         ──▶    begins it
//	                                   ◀──    input_required: questions, state
//	tools/call with answers and state  ──▶    goes on with it
//	                                   ◀──    its result, or more questions and another state
//
// A state is good for one time, and nobody can guess one.
type talk struct {
	tool   string
	call   *call
	cancel context.CancelFunc
	done   chan *sdk.CallToolResult // has room for it
	news   chan struct{}            // a question has come; has room for one

	mu     sync.Mutex
	rounds int // that have ended with questions
	open   []*question
	beat   *beat // nil: it has none
}

// question is one that nobody has answered yet.
type question struct {
	id     string
	params *sdk.ElicitParams
	put    bool      // to the client
	answer chan bool // has room for it
}

const (
	// severalRounds is the first protocol that has them.
	severalRounds = "2026-07-28"
	// mostRounds is how often a call asks: some clients give it up when it asks for the tenth time.
	mostRounds = 9
	// returnTime is how long a call waits for a client that was given questions.
	returnTime = backend.AskTime + time.Minute
)

var errState = errors.New("requestState: no call waits with this one, or not any more")

// begin does what was asked, until it is done or there is a question.
func (c *call) begin(t tool) *sdk.CallToolResult {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.ctx))
	k := &talk{tool: t.name, call: c, cancel: cancel, done: make(chan *sdk.CallToolResult, 1), news: make(chan struct{}, 1)}
	round := c.ctx
	c.ctx, c.talk = ctx, k
	go func() {
		defer cancel()
		k.done <- c.run(t)
	}()
	return c.await(round, k)
}

// resume goes on with a call whose client has come again.
func (s *Server) resume(ctx context.Context, t tool, req *sdk.CallToolRequest) *sdk.CallToolResult {
	k := s.parked.take(req.Params.RequestState)
	if k == nil {
		return failure(errState)
	}
	if k.tool != t.name {
		k.cancel()
		return failure(errState)
	}
	k.take(req)
	return s.await(ctx, k)
}

// await returns what one round of a call answers. ctx is the round's: its end is the call's.
func (s *Server) await(ctx context.Context, k *talk) *sdk.CallToolResult {
	for {
		select {
		case <-ctx.Done():
			k.cancel()
			return <-k.done
		case r := <-k.done:
			k.call.answering(ctx)
			return r
		case <-k.news:
			if r := k.questions(); r != nil {
				r.RequestState = s.parked.put(k)
				return r
			}
		}
	}
}

// ask puts a question, and returns when it is answered or ctx ends.
func (k *talk) ask(ctx context.Context, p *sdk.ElicitParams) bool {
	q := &question{id: rand.Text(), params: p, answer: make(chan bool, 1)}
	k.mu.Lock()
	k.open = append(k.open, q)
	k.mu.Unlock()
	select {
	case k.news <- struct{}{}:
	default:
	}
	select {
	case ok := <-q.answer:
		return ok
	case <-ctx.Done():
		k.mu.Lock()
		defer k.mu.Unlock()
		k.open = slices.DeleteFunc(k.open, func(other *question) bool { return other == q })
		return false
	}
}

// questions is the answer that asks all that are open; nil: there is none. With it this round's
// signs of life end.
func (k *talk) questions() *sdk.CallToolResult {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rounds == mostRounds {
		for _, q := range k.open {
			q.answer <- false
		}
		k.open = nil
	}
	if len(k.open) == 0 {
		return nil
	}
	k.rounds++
	r := &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{}}
	for _, q := range k.open {
		q.put = true
		r.InputRequests[q.id] = q.params
	}
	k.beat.to(nil)
	return r
}

// has says where the signs of life of the call are.
func (k *talk) has(b *beat) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.beat = b
}

// take takes the answers that a client came again with. What it was asked and does not answer
// is a no; what it was not asked yet it is asked next.
func (k *talk) take(req *sdk.CallToolRequest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.beat.to(req)
	k.open = slices.DeleteFunc(k.open, func(q *question) bool {
		if q.put {
			r, _ := req.Params.InputResponses[q.id].(*sdk.ElicitResult)
			q.answer <- r != nil && r.Action == "accept"
		}
		return q.put
	})
}

// parked are calls whose clients have questions, by the state they were given. The zero value
// is ready.
type parked struct {
	mu    sync.Mutex
	talks map[string]*talk
}

// put returns the state that takes k out again. A client that does not come in time finds its
// call ended.
func (p *parked) put(k *talk) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.talks == nil {
		p.talks = map[string]*talk{}
	}
	state := rand.Text()
	p.talks[state] = k
	time.AfterFunc(returnTime, func() {
		if p.take(state) != nil {
			k.cancel()
		}
	})
	return state
}

func (p *parked) take(state string) *talk {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.talks[state]
	delete(p.talks, state)
	return k
}
