package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner"
)

// A talk is a call that may take several rounds. A client of protocol 2026-07-28 or later cannot be
// asked during a call. Instead, the call is answered with the questions, and the client repeats it
// with the answers. The operation continues meanwhile.
//
//	client                                    server
//	tools/call                         ──▶    starts the operation
//	                                   ◀──    input_required: questions, state
//	tools/call with answers and state  ──▶    continues it
//	                                   ◀──    its result, or more questions and another state
//
// A state is valid once and cannot be guessed.
type talk struct {
	tool   string
	call   *call
	cancel context.CancelFunc
	done   chan *sdk.CallToolResult // capacity 1, so sending never blocks
	news   chan struct{}            // signals a new question; capacity 1

	mu     sync.Mutex
	rounds int // rounds that ended with questions
	open   []*question
	beat   *beat                // nil: no heartbeats
	req    *sdk.CallToolRequest // of the current round; nil between rounds
	stream *eventStream         // its answer, over HTTP
}

// question is a question without an answer yet.
type question struct {
	id     string
	params *sdk.ElicitParams
	put    bool      // sent to the client
	answer chan bool // capacity 1, so sending never blocks
}

const (
	// severalRounds is the first protocol version with several rounds.
	severalRounds = "2026-07-28"
	// maxRounds is the maximum number of rounds with questions: some clients abort at the tenth.
	maxRounds = 9
	// returnTime is how long a call waits for a client to return with answers.
	returnTime = runner.AskTime + time.Minute
)

var errState = errors.New("requestState: no waiting call has this requestState")

// begin starts the operation and returns when it is done or has a question.
func (c *call) begin(t tool) *sdk.CallToolResult {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.ctx))
	k := &talk{tool: t.name, call: c, cancel: cancel, req: c.req, stream: streamOf(c.ctx), done: make(chan *sdk.CallToolResult, 1), news: make(chan struct{}, 1)}
	round := c.ctx
	c.ctx, c.talk = ctx, k
	go func() {
		defer cancel()
		k.done <- c.run(t)
	}()
	return c.await(round, k)
}

// resume continues a call whose client has returned.
func (s *Server) resume(ctx context.Context, t tool, req *sdk.CallToolRequest) *sdk.CallToolResult {
	k := s.parked.take(req.Params.RequestState)
	if k == nil {
		return failure(errState)
	}
	if k.tool != t.name {
		k.cancel()
		return failure(errState)
	}
	k.take(req, streamOf(ctx))
	return s.await(ctx, k)
}

// await returns the answer of one round. ctx is the context of the round; if it ends, the call is
// cancelled.
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

// ask asks a question and returns when it is answered or ctx ends.
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

// questions returns an answer with all open questions, or nil if there are no open ones. It stops
// the heartbeats of this round. After maxRounds it answers every question with no.
func (k *talk) questions() *sdk.CallToolResult {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rounds == maxRounds {
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
	k.direct(nil, nil)
	return r
}

// direct directs the heartbeats to the client of a round. k.mu is held.
func (k *talk) direct(req *sdk.CallToolRequest, stream *eventStream) {
	k.req, k.stream = req, stream
	k.beat.to(req, stream)
}

// has sets the heartbeat of the call. It may begin in a later round.
func (k *talk) has(b *beat) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.beat = b
	b.to(k.req, k.stream)
}

// take reads the answers that a client returned with. A missing answer to a question that was sent
// counts as no. Questions not sent yet are sent in the next round.
func (k *talk) take(req *sdk.CallToolRequest, stream *eventStream) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.direct(req, stream)
	k.open = slices.DeleteFunc(k.open, func(q *question) bool {
		if q.put {
			r, _ := req.Params.InputResponses[q.id].(*sdk.ElicitResult)
			q.answer <- r != nil && r.Action == "accept"
		}
		return q.put
	})
}

// parked holds calls whose clients have questions, by state. The zero value is ready to use.
type parked struct {
	mu    sync.Mutex
	talks map[string]*talk
}

// put stores k and returns its state. If the client does not return within returnTime, the call is
// cancelled.
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
