package e2b

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	"demesne/internal/fsutil"
	"demesne/server"
	"demesne/session"
)

// call is a handler whose error is the answer.
type call func(http.ResponseWriter, *http.Request) error

func (f call) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := f(w, r); err != nil {
		fail(w, err)
	}
}

// refusal is an error with the status and the text of an answer.
type refusal struct {
	status int
	text   string
}

func (e refusal) Error() string { return e.text }

// empty answers with a success without a body, and returns nil, so that a call can end with it. A chunked empty body breaks
// the SDKs, and 204 has none.
func empty(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// answer answers with a value, and returns nil, so that a call can end with it.
func answer(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
	return nil
}

// body decodes a request. An empty body is {}.
func body(r *http.Request, to any) error {
	err := json.NewDecoder(r.Body).Decode(to)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return malformed(err)
}

// malformed returns the answer to a body that could not be decoded, or nil.
func malformed(err error) error {
	if large := (*http.MaxBytesError)(nil); err == nil || errors.As(err, &large) {
		return err
	}
	return refusal{http.StatusBadRequest, "the body is not JSON that this call understands: " + err.Error()}
}

// fail answers with the status that fits an error of the backend.
func fail(w http.ResponseWriter, err error) {
	text := err.Error()
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		text = server.TooLarge(large.Limit)
	}
	server.Refuse(w, statusOf(err), text)
}

func statusOf(err error) int {
	var tooLarge *http.MaxBytesError
	var refused refusal
	switch {
	case errors.As(err, &refused):
		return refused.status
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, session.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, session.ErrInvalid), errors.Is(err, fsutil.ErrRecordSize): // metadata or variables
		return http.StatusBadRequest
	case errors.Is(err, syscall.EDQUOT):
		return http.StatusInsufficientStorage
	case errors.Is(err, session.ErrQueueFull), errors.Is(err, session.ErrQuota):
		return http.StatusTooManyRequests
	case errors.Is(err, session.ErrBusy):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// unauthenticated answers a call of envd that lacks the sandbox's token. Only 401 says so to a stream's reader too.
func unauthenticated(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+") || strings.Contains(r.URL.Path, ".") {
		answer(w, http.StatusUnauthorized, map[string]string{"code": "unauthenticated", "message": "the access token is not this sandbox's"})
		return
	}
	server.Refuse(w, http.StatusUnauthorized, "the access token is not this sandbox's")
}

// errUser means that a sandbox has no account of that name.
var errUser = errors.New("the sandbox has no such user")

// rpcError gives an error the code of the protocol.
func rpcError(err error) error {
	if err == nil {
		return nil
	}
	code := connect.CodeInternal
	switch {
	case errors.Is(err, errUser):
		code = connect.CodeUnauthenticated
	case errors.Is(err, session.ErrInvalid):
		code = connect.CodeInvalidArgument
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNoProcess), errors.Is(err, session.ErrNotFound):
		code = connect.CodeNotFound
	case errors.Is(err, fs.ErrExist):
		code = connect.CodeAlreadyExists
	case errors.Is(err, fs.ErrPermission):
		code = connect.CodePermissionDenied
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENAMETOOLONG),
		errors.Is(err, syscall.ELOOP):
		code = connect.CodeInvalidArgument
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EOVERFLOW), errors.Is(err, syscall.EDQUOT), errors.Is(err, session.ErrQueueFull), errors.Is(err, session.ErrQuota):
		code = connect.CodeResourceExhausted
	}
	return connect.NewError(code, err)
}

// fileStatus returns the status of an error about a file.
func fileStatus(err error) int {
	switch {
	case errors.Is(err, errUser):
		return http.StatusUnauthorized
	case errors.Is(err, fs.ErrNotExist):
		return http.StatusNotFound
	case errors.Is(err, fs.ErrExist):
		return http.StatusConflict
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return http.StatusInsufficientStorage
	case errors.Is(err, fs.ErrPermission):
		return http.StatusForbidden
	case errors.Is(err, syscall.EIO):
		return http.StatusInternalServerError
	}
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return http.StatusBadRequest
	}
	return statusOf(err)
}
