package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"syscall"

	"github.com/danielgtaylor/huma/v2"

	"demesne/client"
	"demesne/internal/text"
	"demesne/server"
	"demesne/session"
)

// errorShape sets the shape of huma's own errors, which is one for the whole process.
var errorShape = sync.OnceFunc(func() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		if most := bodyLimit(message, errs); most > 0 {
			return problem(http.StatusRequestEntityTooLarge, server.TooLarge(most))
		}
		e := problem(status, message)
		for _, err := range errs {
			e.Data = append(e.Data, detail(err))
		}
		return e
	}
})

// bodyLimit returns the limit that a body passed, by an error of huma's, or of the reader of a body of unknown length; 0: none.
func bodyLimit(message string, errs []error) (most int64) {
	if large := (*http.MaxBytesError)(nil); errors.As(errors.Join(errs...), &large) {
		return large.Limit
	}
	fmt.Sscanf(message, "request body is too large limit=%d bytes", &most)
	return most
}

// detail leaves out the value, which may be secret.
func detail(err error) client.Detail {
	if d, ok := errors.AsType[*huma.ErrorDetail](err); ok {
		return client.Detail{Location: d.Location, Message: d.Message}
	}
	return client.Detail{Message: err.Error()}
}

// problem returns an error as an answer has it. Its text is one line.
func problem(status int, message string) *client.Error {
	return &client.Error{Code: status, Message: text.SafeLine(message), Data: []client.Detail{}}
}

// write answers with an error outside huma.
func write(w http.ResponseWriter, e *client.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Code)
	json.NewEncoder(w).Encode(e)
}

// failed gives an error of the backend its status.
func failed(err error) error {
	var done huma.StatusError
	if err == nil || errors.As(err, &done) {
		return err
	}
	if errors.Is(err, session.ErrQueueFull) {
		return huma.ErrorWithHeaders(problem(http.StatusTooManyRequests, err.Error()), http.Header{"Retry-After": {"1"}})
	}
	return problem(statusOf(err), err.Error())
}

// shown returns an error of the backend for an answer to a caller. The texts of errors of this server may have paths
// of the host, which are for the operator and the log.
func (s *Server) shown(ctx context.Context, err error) *client.Error {
	e := problem(statusOf(err), err.Error())
	errors.As(failed(err), &e)
	return s.masked(ctx, e)
}

func (s *Server) masked(ctx context.Context, e *client.Error) *client.Error {
	if e.Code != http.StatusInternalServerError || server.CallerOf(ctx).Operator {
		return e
	}
	s.opts.Log.Printf("%s: %s", server.CallerOf(ctx).Name, e.Message)
	return problem(e.Code, "internal error: the server's log has more")
}

// statuses are tried in order.
var statuses = []struct {
	is     error
	status int
}{
	{session.ErrNotFound, http.StatusNotFound},
	{session.ErrQuota, http.StatusTooManyRequests},
	{session.ErrBusy, http.StatusServiceUnavailable},
	{fs.ErrNotExist, http.StatusNotFound},
	{session.ErrConflict, http.StatusConflict},
	{session.ErrRegistry, http.StatusBadGateway},
	{session.ErrInvalid, http.StatusBadRequest},
	{fs.ErrExist, http.StatusConflict},
	{fs.ErrPermission, http.StatusForbidden},
	{syscall.ENOSPC, http.StatusInsufficientStorage},
	{syscall.EDQUOT, http.StatusInsufficientStorage},
	{syscall.EFBIG, http.StatusRequestEntityTooLarge}, // larger than the sandbox's disk limit
	{context.Canceled, 499},
}

func statusOf(err error) int {
	for _, s := range statuses {
		if errors.Is(err, s.is) {
			return s.status
		}
	}
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// refused is an error about one field of the body.
func refused(field, message string) error {
	e := problem(http.StatusUnprocessableEntity, "validation failed")
	e.Data = append(e.Data, client.Detail{Location: "body." + strings.TrimPrefix(field, "body."), Message: message})
	return e
}
