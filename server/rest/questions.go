package rest

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"demesne/client"
	"demesne/runner"
)

// questions are the connections that wait for an answer. Every caller of the sandbox may answer.
type questions struct {
	mu   sync.Mutex
	all  []*question
	subs map[chan notice]bool
}

// question is one name and port of a sandbox, for which several connections may wait.
type question struct {
	client.Question
	answered chan struct{} // closed once allow is valid, or the time is over
	verdict  string
}

// notice is a question that was asked, or one that waits no more.
type notice struct {
	sandbox string
	asked   *client.Question
	done    *client.Answered
}

// Bounds of questions.
const (
	maxAsked  = 32 // of one sandbox
	maxQueued = 256
)

// ask waits for the answer to a runner's question.
func (q *questions) ask(r runner.Question) (allow, answered bool) {
	one := q.add(r)
	if one == nil {
		return false, false
	}
	late := time.NewTimer(time.Until(one.Until))
	defer late.Stop()
	select {
	case <-one.answered:
	case <-late.C:
		q.decide(one.ID, "unanswered")
		<-one.answered
	}
	return one.verdict == "allowed", one.verdict != "unanswered"
}

// add returns the question about a name, or nil if the sandbox has too many.
func (q *questions) add(r runner.Question) *question {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, one := range q.all {
		if one.Sandbox != r.Sandbox {
			continue
		}
		if n++; one.Name == r.Name && one.Port == r.Port {
			return one
		}
	}
	if n >= maxAsked {
		return nil
	}
	now := time.Now().UTC()
	one := &question{answered: make(chan struct{}), Question: client.Question{
		ID: strings.ToLower(rand.Text())[:16], Sandbox: r.Sandbox, Name: r.Name, Port: r.Port, Asked: now, Until: now.Add(runner.AskTime),
	}}
	q.all = append(q.all, one)
	q.tell(notice{sandbox: r.Sandbox, asked: &one.Question})
	return one
}

// decide ends a question. It returns nil if no question has that id.
func (q *questions) decide(id, verdict string) *client.Answered {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := slices.IndexFunc(q.all, func(o *question) bool { return o.ID == id })
	if n < 0 {
		return nil
	}
	one := q.all[n]
	q.all = slices.Delete(q.all, n, n+1)
	one.verdict = verdict
	close(one.answered)
	done := &client.Answered{ID: id, Verdict: verdict}
	q.tell(notice{sandbox: one.Sandbox, done: done})
	return done
}

// tell passes a notice to all subscribers. One that is behind loses it, and its stream. q.mu is held.
func (q *questions) tell(n notice) {
	for c := range q.subs {
		select {
		case c <- n:
		default:
			delete(q.subs, c)
			close(c)
		}
	}
}

// list returns the questions that wait, the oldest first.
func (q *questions) list() (all []client.Question) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, one := range q.all {
		all = append(all, one.Question)
	}
	return all
}

// subscribe returns what waits now, and a channel of later notices until leave is called. The channel is closed if its
// reader is too slow.
func (q *questions) subscribe() (now []client.Question, later chan notice, leave func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	later = make(chan notice, maxQueued)
	if q.subs == nil {
		q.subs = map[chan notice]bool{}
	}
	q.subs[later] = true
	for _, one := range q.all {
		now = append(now, one.Question)
	}
	return now, later, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.subs[later] {
			delete(q.subs, later)
			close(later)
		}
	}
}

func (s *Server) questionRoutes() {
	h := egressAPI{s}
	s.opts.Questions(s.questions.ask)
	answers(s, operation("list-questions", http.MethodGet, "/egress/questions", "Network", "List the connections that wait for an answer"), h.listQuestions)
	live := operation("stream-questions", http.MethodGet, "/egress/questions/stream", "Network", "Stream the connections that wait for an answer")
	eventResponse(s.api, &live, eventOf[client.Question]("question"), eventOf[client.Answered]("answered"))
	huma.Register(s.api, live, h.streamQuestions)
	for verb, verdict := range map[string]string{"allow": "allowed", "deny": "denied"} {
		op := operation(verb+"-question", http.MethodPost, "/egress/questions/{question}/"+verb, "Network", "Answer a question: "+verb)
		answers(s, op, func(ctx context.Context, in *questionInput) (*client.Answered, error) {
			return h.answer(ctx, in.Question, verdict)
		})
	}
}

// questionInput names a question.
type questionInput struct {
	Question string `path:"question" maxLength:"64"`
}

// mayAnswer reports whether the caller may use a sandbox, and therefore answer its questions.
func (s egressAPI) mayAnswer(ctx context.Context, sandbox string) bool {
	_, err := s.find(ctx, sandbox)
	return err == nil
}

func (s egressAPI) listQuestions(ctx context.Context, _ *struct{}) (client.Page[client.Question], error) {
	all := page[client.Question](nil)
	for _, q := range s.questions.list() {
		if s.mayAnswer(ctx, q.Sandbox) {
			all.Items = append(all.Items, q)
		}
	}
	return all, nil
}

func (s egressAPI) answer(ctx context.Context, id, verdict string) (*client.Answered, error) {
	for _, q := range s.questions.list() {
		if q.ID != id || !s.mayAnswer(ctx, q.Sandbox) {
			continue
		}
		if verdict == "allowed" {
			if err := s.service(ctx).MayDecide(ctx); err != nil {
				return nil, err
			}
		}
		if done := s.questions.decide(id, verdict); done != nil {
			return done, nil
		}
	}
	return nil, problem(http.StatusNotFound, "no such question, or it waits no more")
}

func (s egressAPI) streamQuestions(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	return streaming(ctx, cancel, func(to stream) {
		now, later, leave := s.questions.subscribe()
		defer leave()
		for _, q := range now {
			if s.mayAnswer(ctx, q.Sandbox) {
				to.send("question", q)
			}
		}
		for {
			select {
			case <-ctx.Done():
				return
			case n, ok := <-later:
				switch {
				case !ok:
					return
				case !s.mayAnswer(ctx, n.sandbox):
				case n.asked != nil:
					to.send("question", n.asked)
				default:
					to.send("answered", n.done)
				}
			}
		}
	}), nil
}
