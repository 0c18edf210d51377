package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Errors that an [*Error] matches by errors.Is.
var (
	ErrNotFound = errors.New("not found")                       // 404: the sandbox, file, job or image
	ErrDenied   = errors.New("not allowed")                     // 401, 403: the token, or what it may do
	ErrInvalid  = errors.New("invalid request")                 // 400, 422
	ErrConflict = errors.New("conflicts with the state")        // 409: a name that exists, or a sandbox in another state
	ErrBusy     = errors.New("no room for this request now")    // 429, 503: see [Error].RetryAfter
	ErrTooLarge = errors.New("more bytes than the bound of it") // 413, or an answer above this package's bounds
)

// kinds are the statuses of each error that an [*Error] matches.
var kinds = map[error][]int{
	ErrNotFound: {404}, ErrDenied: {401, 403}, ErrInvalid: {400, 422}, ErrConflict: {409}, ErrBusy: {429, 503}, ErrTooLarge: {413},
	fs.ErrNotExist: {404}, fs.ErrPermission: {403}, fs.ErrExist: {409},
}

// Is reports whether the status is one of target's.
func (e *Error) Is(target error) bool { return slices.Contains(kinds[target], e.Code) }

// maxError bounds the body of an error.
const maxError = 1 << 20

// problem returns the error of an answer.
func problem(resp *http.Response) error {
	e := &Error{}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	if err != nil || json.NewDecoder(bytes.NewReader(b)).Decode(e) != nil || e.Message == "" {
		e = &Error{Message: strings.ToLower(http.StatusText(resp.StatusCode))} // a proxy's
	}
	e.Code = resp.StatusCode
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = time.Duration(min(s, 24*60*60)) * time.Second
	}
	return e
}
