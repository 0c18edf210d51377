package rest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sys/unix"

	"demesne/client"
	"demesne/runner"
)

// egressAPI has the handlers of networks.
type egressAPI struct{ *Server }

func (s *Server) egressRoutes() {
	h := egressAPI{s}
	huma.Register(s.api, operation("get-egress", http.MethodGet, "/sandboxes/{id}/egress", "Network", "Get what a sandbox may reach"), h.getEgress)
	huma.Register(s.api, operation("set-egress", http.MethodPut, "/sandboxes/{id}/egress", "Network", "Replace what a sandbox may reach"), h.setEgress)
	huma.Register(s.api, operation("allow-egress", http.MethodPost, "/sandboxes/{id}/egress/allow", "Network", "Add rules that allow"),
		func(ctx context.Context, in *inSandbox[client.RuleRequest]) (*of[client.Network], error) {
			return h.addRules(ctx, in.ID, in.Body.Rules, nil)
		})
	huma.Register(s.api, operation("deny-egress", http.MethodPost, "/sandboxes/{id}/egress/deny", "Network", "Add rules that deny"),
		func(ctx context.Context, in *inSandbox[client.RuleRequest]) (*of[client.Network], error) {
			return h.addRules(ctx, in.ID, nil, in.Body.Rules)
		})
	log := operation("egress-log", http.MethodGet, "/sandboxes/{id}/egress/log", "Network", "Stream the decisions about a sandbox's connections")
	eventResponse(s.api, &log, eventOf[client.Decision]("decision"))
	huma.Register(s.api, log, h.egressLog)
	s.questionRoutes()
}

// networkAs returns the rules of a sandbox as an answer.
func networkAs(i *runner.Info) client.Network { return sandboxOf(i).Network }

func (s egressAPI) getEgress(ctx context.Context, in *Named) (*of[client.Network], error) {
	info, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &of[client.Network]{networkAs(info)}, nil
}

func (s egressAPI) setEgress(ctx context.Context, in *inSandbox[client.Network]) (*of[client.Network], error) {
	info, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if _, err := s.service(ctx).Open(ctx, info.ID); err != nil { // a stopped sandbox has no rules to change
		return nil, failed(err)
	}
	if err := s.service(ctx).Reach(ctx, info.ID, networkOf(&in.Body)); err != nil {
		return nil, failed(err)
	}
	return s.getEgress(ctx, &Named{info.ID})
}

func (s egressAPI) addRules(ctx context.Context, id string, allow, deny []string) (*of[client.Network], error) {
	info, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if _, err := s.service(ctx).Open(ctx, info.ID); err != nil {
		return nil, failed(err)
	}
	if err := s.service(ctx).Rules(ctx, info.ID, allow, deny); err != nil {
		return nil, failed(err)
	}
	return s.getEgress(ctx, &Named{info.ID})
}

// logInput is the request of the network log.
type logInput struct {
	Named
	Follow bool `query:"follow" default:"true" doc:"Go on until the client leaves"`
}

// Of a log's stream.
const (
	logEvery = 500 * time.Millisecond // between looks for new lines
	logKept  = 1 << 20                // bytes before the end, where the stream begins
	maxLine  = 64 << 10
)

// egressLog streams the log of a sandbox: its end, and then what is added. No sandbox can write to the file.
func (s egressAPI) egressLog(ctx context.Context, in *logInput) (*huma.StreamResponse, error) {
	info, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if info.Spec.Egress == nil || info.Spec.Egress.Log == "" {
		return nil, problem(http.StatusConflict, "the sandbox has no network")
	}
	f, err := os.OpenFile(info.Spec.Egress.Log, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, problem(http.StatusNotFound, "the log was removed")
	} else if err != nil {
		return nil, problem(http.StatusInternalServerError, "the log cannot be read")
	}
	ctx, cancel := context.WithCancel(ctx)
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer cancel()
		defer f.Close()
		_, w := humago.Unwrap(hc)
		to := openStream(ctx, w, cancel)
		defer to.finish()
		follow(ctx, f, in.Follow, func(line []byte) {
			var d client.Decision
			if json.Unmarshal(line, &d) == nil {
				to.send("", "decision", d)
			}
		})
	}}, nil
}

// follow calls each with the lines at the end of f, and then with those that are added until ctx ends. It ignores a line
// that is too long.
func follow(ctx context.Context, f *os.File, more bool, each func([]byte)) {
	if st, err := f.Stat(); err == nil && st.Size() > logKept {
		f.Seek(st.Size()-logKept, io.SeekStart)
	}
	r := bufio.NewReaderSize(f, maxLine)
	var part []byte
	for ctx.Err() == nil {
		b, err := r.ReadSlice('\n')
		if len(part)+len(b) <= maxLine {
			part = append(part, b...)
		}
		switch {
		case err == nil:
			each(part)
			part = part[:0]
		case errors.Is(err, bufio.ErrBufferFull):
		case !more || !errors.Is(err, io.EOF):
			return
		default:
			select {
			case <-ctx.Done():
			case <-time.After(logEvery):
			}
		}
	}
}
