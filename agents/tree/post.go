package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"
)

// postTime bounds a request that renews a credential, and postMost its response, in bytes.
const (
	postTime = time.Minute
	postMost = 1 << 20
)

// post sends a JSON body to a server that renews credentials. It follows no redirect: the body has a secret.
func post(ctx context.Context, url string, body []byte) (status int, response []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, postTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	a, err := c.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer a.Body.Close()
	response, err = io.ReadAll(io.LimitReader(a.Body, postMost))
	return a.StatusCode, response, err
}

// post is the verb for demesne, which does not link net/http: it sends stdin to a URL, and prints the status on a line
// before the response.
func (f *console) post(args []string) (int, error) {
	if len(args) != 1 {
		return 0, errors.New("needs one URL")
	}
	body, err := io.ReadAll(io.LimitReader(f.stdin, postMost))
	if err != nil {
		return 0, fmt.Errorf("read body: %w", err)
	}
	status, response, err := post(context.Background(), args[0], body)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintf(f.stdout, "%d\n%s", status, response)
	return 0, err
}

func absolute(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("output %q: %w", path, err)
	}
	return abs, nil
}
