package executor

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"demesne/images/oci"
	"demesne/internal/text"
)

// FetchVerb makes this program fetch a file instead of building: it is executed so in the sandbox of an ADD.
const FetchVerb = "fetch-file"

// fetchOrder is the argument of FetchVerb, in JSON.
type fetchOrder struct {
	URL      string
	Path     string // of the new file
	ETag     string // of an earlier answer, to be asked for a change
	Modified string // its Last-Modified, for the same purpose
}

// fetchAnswer is the output of FetchVerb, in JSON. It comes from a sandbox, and is checked as such.
type fetchAnswer struct {
	Same     bool       // the file has not changed since the earlier answer
	Digest   oci.Digest `json:",omitempty"`
	ETag     string
	Modified string
}

const (
	fetchTries   = 3
	fetchSilence = 60 * time.Second // without a byte of an answer
)

// Fetch is the program in the sandbox, and returns its exit code.
func Fetch(order string) int {
	var o fetchOrder
	err := json.Unmarshal([]byte(order), &o)
	for try := 1; err == nil && try <= fetchTries; try++ {
		var a fetchAnswer
		var again bool
		if a, again, err = fetchFile(context.Background(), o); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(a)
			break
		}
		if again && try < fetchTries {
			time.Sleep(time.Duration(try) * time.Second)
			err = nil
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, text.SafeLine(err.Error()))
		return 1
	}
	return 0
}

// fetchFile makes one attempt. again reports whether another one may succeed.
func fetchFile(ctx context.Context, o fetchOrder) (a fetchAnswer, again bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(fetchSilence, func() { cancel(fmt.Errorf("no answer for %s", fetchSilence)) })
	defer silence.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL, nil)
	if err != nil {
		return a, false, err
	}
	req.Header.Set("User-Agent", "demesne-build")
	req.Header.Set("Accept-Encoding", "identity") // the file as it is
	if o.ETag != "" {
		req.Header.Set("If-None-Match", o.ETag)
	}
	if o.Modified != "" {
		req.Header.Set("If-Modified-Since", o.Modified)
	}
	answer, err := http.DefaultClient.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // the caller knows the URL
	}
	if err != nil {
		return a, true, errors.Join(context.Cause(ctx), err)
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusNotModified && (o.ETag != "" || o.Modified != ""):
		return fetchAnswer{Same: true}, false, nil
	case answer.StatusCode != http.StatusOK:
		return a, answer.StatusCode >= 500, fmt.Errorf("the server answers %s", answer.Status)
	}
	sum := sha256.New()
	size, err := save(o.Path, answer, io.TeeReader(reading{answer.Body, func() { silence.Reset(fetchSilence) }}, sum))
	if err == nil && answer.ContentLength >= 0 && size != answer.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return a, true, err
	}
	return fetchAnswer{Digest: oci.DigestFrom(sum.Sum(nil)), ETag: answer.Header.Get("ETag"), Modified: answer.Header.Get("Last-Modified")}, false, nil
}

// reading calls on before each read.
type reading struct {
	io.Reader
	on func()
}

func (r reading) Read(p []byte) (int, error) {
	r.on()
	return r.Reader.Read(p)
}

// save writes a file with the time that the server says.
func save(path string, answer *http.Response, content io.Reader) (size int64, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	size, err = io.Copy(f, content)
	if err = errors.Join(err, f.Close()); err != nil {
		return size, err
	}
	if at, err := http.ParseTime(answer.Header.Get("Last-Modified")); err == nil {
		return size, os.Chtimes(path, at, at)
	}
	return size, nil
}

// reason returns the first line that a program in the sandbox of an ADD wrote.
func reason(said string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	return text.SafeLine(line)
}
