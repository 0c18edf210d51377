package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
)

type egress struct{ *remote }

func (c *remote) Egress() Egress { return egress{c} }

func (g egress) Rules(ctx context.Context, sandbox string) (*Network, error) {
	return got[Network](g.remote, ctx, "get rules", http.MethodGet, at(sandbox, "/egress"), nil, nil)
}

func (g egress) SetRules(ctx context.Context, sandbox string, n Network) (*Network, error) {
	return got[Network](g.remote, ctx, "set rules", http.MethodPut, at(sandbox, "/egress"), nil, n)
}

func (g egress) Allow(ctx context.Context, sandbox string, rules ...string) (*Network, error) {
	return got[Network](g.remote, ctx, "allow", http.MethodPost, at(sandbox, "/egress/allow"), nil, RuleRequest{rules})
}

func (g egress) Deny(ctx context.Context, sandbox string, rules ...string) (*Network, error) {
	return got[Network](g.remote, ctx, "deny", http.MethodPost, at(sandbox, "/egress/deny"), nil, RuleRequest{rules})
}

func (g egress) Log(ctx context.Context, sandbox string, follow bool) iter.Seq2[Decision, error] {
	q := query{"follow": strconv.FormatBool(follow)}
	return all(g.remote, ctx, "read network log", at(sandbox, "/egress/log"), q, !follow, func(e sent) (d Decision, ignore bool, err error) {
		if e.name != "decision" {
			return d, true, nil
		}
		return d, false, e.into(&d)
	})
}

func (g egress) Pending(ctx context.Context) ([]Question, error) {
	return listed[Question](g.remote, ctx, "list questions", "/egress/questions")
}

func (g egress) Answer(ctx context.Context, question string, allow bool) (*Answered, error) {
	verb := "/deny"
	if allow {
		verb = "/allow"
	}
	return got[Answered](g.remote, ctx, "answer question", http.MethodPost, "/egress/questions/"+segment(question)+verb, nil, nil)
}

func (g egress) Follow(ctx context.Context) iter.Seq2[Notice, error] {
	return all(g.remote, ctx, "follow questions", "/egress/questions/stream", nil, false, func(e sent) (n Notice, ignore bool, err error) {
		switch e.name {
		case "question":
			n.Question = &Question{}
			err = e.into(n.Question)
		case "answered":
			n.Answered = &Answered{}
			err = e.into(n.Answered)
		default:
			ignore = true
		}
		return n, ignore, err
	})
}

type images struct{ *remote }

func (c *remote) Images() Images { return images{c} }

func (i images) List(ctx context.Context) ([]Image, error) {
	return listed[Image](i.remote, ctx, "list images", "/images")
}

func (i images) Remove(ctx context.Context, name string) error {
	return i.call(ctx, "remove image", http.MethodDelete, "/images", query{"name": name}, nil, nil)
}

func (i images) Pull(ctx context.Context, name string, progress func(string)) (*Image, error) {
	var done *Image
	err := i.follow(ctx, http.MethodPost, "/images/pull", nil, PullRequest{name}, func(e sent) error {
		switch e.name {
		case "error":
			return e.failure()
		case "progress":
			var p Progress
			err := e.into(&p)
			if err == nil && progress != nil {
				progress(p.Message)
			}
			return err
		case "done":
			done = &Image{}
			if err := e.into(done); err != nil {
				return err
			}
			return errDone
		}
		return nil
	})
	if errors.Is(err, errDone) {
		return done, nil
	}
	return nil, fmt.Errorf("pull image: %w", err)
}
