package headless

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
)

// postTime bounds a request that renews a credential, and maxPost its response, in bytes.
const (
	postTime = time.Minute
	maxPost  = 1 << 20
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
	response, err = io.ReadAll(io.LimitReader(a.Body, maxPost))
	return a.StatusCode, response, err
}
