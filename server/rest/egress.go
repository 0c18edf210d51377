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
	"golang.org/x/sys/unix"

	"demesne/client"
	"demesne/runner"
)

// egressAPI has the handlers of networks.
type egressAPI struct{ *Server }

func (s *Server) egressRoutes() {
	h := egressAPI{s}
	within(s, operation("get-egress", http.MethodGet, "/sandboxes/{id}/egress", "Network", "Get what a sandbox may reach"), h.getEgress)
	within(s, operation("set-egress", http.MethodPut, "/sandboxes/{id}/egress", "Network", "Replace what a sandbox may reach"), h.setEgress)
	within(s, operation("allow-egress", http.MethodPost, "/sandboxes/{id}/egress/allow", "Network", "Add rules that allow"),
		func(ctx context.Context, info *runner.Info, in *inSandbox[client.RuleRequest]) (client.Network, error) {
			return h.change(ctx, info, func(service Service) error { return service.Rules(ctx, info.ID, in.Body.Rules, nil) })
		})
	within(s, operation("deny-egress", http.MethodPost, "/sandboxes/{id}/egress/deny", "Network", "Add rules that deny"),
		func(ctx context.Context, info *runner.Info, in *inSandbox[client.RuleRequest]) (client.Network, error) {
			return h.change(ctx, info, func(service Service) error { return service.Rules(ctx, info.ID, nil, in.Body.Rules) })
		})
	log := operation("egress-log", http.MethodGet, "/sandboxes/{id}/egress/log", "Network", "Stream the decisions about a sandbox's connections")
	eventResponse(s.api, &log, eventOf[client.Decision]("decision"))
	huma.Register(s.api, log, h.egressLog)
	s.questionRoutes()
}

func (s egressAPI) getEgress(_ context.Context, info *runner.Info, _ *Named) (client.Network, error) {
	return sandboxOf(info).Network, nil
}

func (s egressAPI) setEgress(ctx context.Context, info *runner.Info, in *inSandbox[client.Network]) (client.Network, error) {
	return s.change(ctx, info, func(service Service) error { return service.Reach(ctx, info.ID, networkOf(&in.Body)) })
}

// change changes the rules of a sandbox with f, and returns them. A stopped sandbox, which has none, is started.
func (s egressAPI) change(ctx context.Context, info *runner.Info, f func(Service) error) (n client.Network, err error) {
	if _, err := s.service(ctx).Open(ctx, info.ID); err != nil {
		return n, err
	}
	if err := f(s.service(ctx)); err != nil {
		return n, err
	}
	if info, err = s.find(ctx, info.ID); err != nil {
		return n, err
	}
	return sandboxOf(info).Network, nil
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
	return streaming(ctx, cancel, func(to stream) {
		defer f.Close()
		follow(ctx, f, in.Follow, func(line []byte) {
			var d client.Decision
			if json.Unmarshal(line, &d) == nil {
				to.send("decision", d)
			}
		})
	}), nil
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
