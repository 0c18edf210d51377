package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Egress is what sandboxes may reach, and the questions of sandboxes with [Network].Ask.
type Egress struct{ *remote }

// Egress returns what sandboxes may reach, and their questions.
func (c *Client) Egress() Egress { return Egress{c.remote} }

// Rules returns the rules of a sandbox.
func (g Egress) Rules(ctx context.Context, sandbox string) (*Network, error) {
	return got[Network](g.remote, ctx, "get rules", http.MethodGet, at(sandbox, "/egress"), nil, nil)
}

// SetRules replaces the rules. It fails for a sandbox that was made without a network.
func (g Egress) SetRules(ctx context.Context, sandbox string, n Network) (*Network, error) {
	return got[Network](g.remote, ctx, "set rules", http.MethodPut, at(sandbox, "/egress"), nil, n)
}

// Allow adds rules, such as example.com or *.example.com:443.
func (g Egress) Allow(ctx context.Context, sandbox string, rules ...string) (*Network, error) {
	return got[Network](g.remote, ctx, "allow", http.MethodPost, at(sandbox, "/egress/allow"), nil, RuleRequest{rules})
}

// Deny adds rules that take precedence over all others.
func (g Egress) Deny(ctx context.Context, sandbox string, rules ...string) (*Network, error) {
	return got[Network](g.remote, ctx, "deny", http.MethodPost, at(sandbox, "/egress/deny"), nil, RuleRequest{rules})
}

// Log yields the newest decisions about connections, and with follow also those that come, until ctx ends or the loop is
// left. An error is the last thing that it yields.
func (g Egress) Log(ctx context.Context, sandbox string, follow bool) iter.Seq2[Decision, error] {
	q := query{"follow": strconv.FormatBool(follow)}
	return all(g.remote, ctx, "read network log", at(sandbox, "/egress/log"), q, !follow, func(e sent) (d Decision, ignore bool, err error) {
		if e.name != "decision" {
			return d, true, nil
		}
		return d, false, e.into(&d)
	})
}

// Pending lists the connections that wait for an answer.
func (g Egress) Pending(ctx context.Context) ([]Question, error) {
	return listed[Question](g.remote, ctx, "list questions", "/egress/questions")
}

// Answer answers a question. The answer holds for the sandbox's later connections to that name. ErrNotFound: the question
// no longer waits.
func (g Egress) Answer(ctx context.Context, question string, allow bool) (*Answered, error) {
	verb := "/deny"
	if allow {
		verb = "/allow"
	}
	return got[Answered](g.remote, ctx, "answer question", http.MethodPost, "/egress/questions/"+segment(question)+verb, nil, nil)
}

// Follow yields the questions that wait and those that come, and their answers, until ctx ends or the loop is left. An
// error is the last thing that it yields.
func (g Egress) Follow(ctx context.Context) iter.Seq2[Notice, error] {
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

// Images are the images in the server's store, which all callers share.
type Images struct{ *remote }

// Images returns the images of the server's store.
func (c *Client) Images() Images { return Images{c.remote} }

// List returns the images.
func (i Images) List(ctx context.Context) ([]Image, error) {
	return listed[Image](i.remote, ctx, "list images", "/images")
}

// Remove removes an image that no sandbox uses. Only the operator may.
func (i Images) Remove(ctx context.Context, name string) error {
	return i.call(ctx, "remove image", http.MethodDelete, "/images", query{"name": name}, nil, nil)
}

// Pull fetches an image. progress gets one line for each step; nil: it is not called.
func (i Images) Pull(ctx context.Context, name string, progress func(string)) (*Image, error) {
	return steps[Image](ctx, "pull image", progress, func(ctx context.Context) (*http.Response, error) {
		return i.sendJSON(ctx, http.MethodPost, "/images/pull", nil, PullRequest{name})
	})
}

// Build builds an image. files is the context, a tar, or a Containerfile alone; nil: q.Context names a directory of the server's
// machine. progress gets the lines of the build; nil: it is not called. The end of ctx ends the build.
func (i Images) Build(ctx context.Context, q BuildRequest, files io.Reader, progress func(string)) (*Built, error) {
	values := url.Values{"arg": q.Args}
	for name, value := range (query{"tag": q.Tag, "file": q.File, "target": q.Target, "context": q.Context}) {
		if value != "" {
			values.Set(name, value)
		}
	}
	for name, on := range map[string]bool{"no_cache": q.NoCache, "pull": q.Pull} {
		if on {
			values.Set(name, "true")
		}
	}
	return steps[Built](ctx, "build image", progress, func(ctx context.Context) (*http.Response, error) {
		return i.sendQuery(ctx, http.MethodPost, "/builds", values, files, "Content-Type", "application/octet-stream")
	})
}

// steps follows the stream of a work whose result is a T.
func steps[T any](ctx context.Context, verb string, progress func(string), send func(context.Context) (*http.Response, error)) (*T, error) {
	var done *T
	err := followed(ctx, send, func(e sent) error {
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
			done = new(T)
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
	return nil, fmt.Errorf("%s: %w", verb, err)
}
