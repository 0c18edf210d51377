package push

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"demesne/images/events"
	"demesne/images/oci"
	"demesne/images/pull"
)

func errorf(code events.Code, format string, args ...any) error {
	return &pull.Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// statusError is a refusal by the registry. images/pull classifies it by StatusCode.
type statusError struct {
	StatusCode int
	method     string
	text       string        // what the registry says
	wait       time.Duration // what Retry-After says
}

func (e *statusError) Error() string {
	what := fmt.Sprintf("%s: %d %s", e.method, e.StatusCode, http.StatusText(e.StatusCode))
	if e.text != "" {
		what += ": " + e.text
	}
	return what
}

// maxBody is how much of an answer is read.
const maxBody = 64 << 10

// refused reads the answer to a request that the registry did not grant. It closes the body.
func refused(resp *http.Response) error {
	defer resp.Body.Close()
	e := &statusError{StatusCode: resp.StatusCode, method: resp.Request.Method}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	var said struct {
		Errors []struct{ Code, Message string } `json:"errors"`
	}
	if json.Unmarshal(raw, &said) == nil {
		var all []string
		for _, s := range said.Errors {
			all = append(all, strings.TrimSuffix(s.Code+": "+s.Message, ": "))
		}
		e.text = oci.Clip(strings.Join(all, "; "))
	}
	if s := resp.Header.Get("Retry-After"); s != "" {
		e.wait = pull.PauseOf(s, time.Now())
	}
	return e
}

// accept closes the body of an answer with one of the statuses. Any other answer is an error.
func accept(resp *http.Response, statuses ...int) error {
	for _, s := range statuses {
		if resp.StatusCode == s {
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody)) // so that the connection can be used again
			return resp.Body.Close()
		}
	}
	return refused(resp)
}

// errStale reports a request with a body whose token was refused. Another attempt has a new token.
var errStale = errors.New("the token expired")

func readAtMost(r io.Reader, most int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(raw)) > most {
		err = fmt.Errorf("longer than %d bytes", most)
	}
	return raw, err
}
