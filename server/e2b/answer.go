package e2b

import (
	"encoding/json"
	"errors"
	"fmt"
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

// empty answers with a success without a body. A chunked empty body breaks the SDKs, and 204 has none.
func empty(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }

// answer answers with a value.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// body decodes a request. An empty body is {}. It answers by itself if the body is malformed.
func body(w http.ResponseWriter, r *http.Request, to any) bool {
	err := json.NewDecoder(r.Body).Decode(to)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		fail(w, err)
		return false
	}
	if err != nil && !errors.Is(err, io.EOF) {
		server.Refuse(w, bodyStatus(err), "the body is not JSON that this call understands: "+err.Error())
		return false
	}
	return true
}

// bodyStatus returns the status of an error of a body.
func bodyStatus(err error) int { return statusOf(fmt.Errorf("%w: %w", session.ErrInvalid, err)) }

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
	switch {
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
	var no syscall.Errno
	if errors.As(err, &no) {
		return http.StatusBadRequest
	}
	return statusOf(err)
}
