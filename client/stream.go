package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
)

// maxEvent bounds one event of a stream, in bytes.
const maxEvent = 16 << 20

// sent is one server-sent event.
type sent struct {
	name string
	data []byte
}

// readEvent reads one event. It ignores comments, ids and unknown fields.
func readEvent(r *bufio.Reader) (e sent, err error) {
	for {
		line, err := readLine(r, maxEvent-len(e.data))
		if err != nil {
			return e, err // an incomplete event does not count
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && e.data != nil:
			return e, nil
		case line == "":
			e = sent{}
		case field == "event":
			e.name = value
		case field == "data" && e.data != nil:
			e.data = append(append(e.data, '\n'), value...)
		case field == "data":
			e.data = []byte(value)
		}
	}
}

// readLine reads a line of at most limit bytes, without its end.
func readLine(r *bufio.Reader, limit int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > limit {
			return "", fmt.Errorf("%w: %d bytes in an event", ErrTooLarge, maxEvent)
		}
		switch {
		case err == nil:
			return strings.TrimRight(string(line), "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", err
		}
	}
}

// errDone ends a stream.
var errDone = errors.New("done")

// follow calls each with the events of a stream until it returns an error. The end of the stream is io.ErrUnexpectedEOF.
func (c *remote) follow(ctx context.Context, method, path string, q query, in any, each func(sent) error) error {
	return followed(ctx, func(ctx context.Context) (*http.Response, error) { return c.sendJSON(ctx, method, path, q, in) }, each)
}

// followed is follow for the request that send sends.
func followed(ctx context.Context, send func(context.Context) (*http.Response, error), each func(sent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // before Close, which would wait for the end of a stream
	resp, err := send(ctx)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	defer cancel()
	r := bufio.NewReaderSize(resp.Body, 32<<10)
	for {
		e, err := readEvent(r)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			err = each(e)
		}
		if err != nil {
			return err
		}
	}
}

// all returns a sequence of the values of a stream. parse may ignore an event. ends says whether the end of the stream is
// no error.
func all[T any](c *remote, ctx context.Context, verb, path string, q query, ends bool, parse func(sent) (v T, ignore bool, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := c.follow(ctx, http.MethodGet, path, q, nil, func(e sent) error {
			v, ignore, err := parse(e)
			if err == nil && !ignore && !yield(v, nil) {
				err = errDone
			}
			return err
		})
		if errors.Is(err, errDone) || ends && errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		var none T
		yield(none, fmt.Errorf("%s: %w", verb, err))
	}
}

func (e *sent) into(out any) error {
	if err := json.Unmarshal(e.data, out); err != nil {
		return fmt.Errorf("decode event %q: %w", e.name, err)
	}
	return nil
}

// failure returns the error that an event carries.
func (e *sent) failure() error {
	problem := &Error{}
	if err := e.into(problem); err != nil {
		return err
	}
	return problem
}
