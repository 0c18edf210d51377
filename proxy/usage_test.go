package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// meterOf reads body as a response of that format, in pieces of the given size, and returns what was recorded.
func meterOf(t testing.TB, format, kind string, status int, body string, piece int, cut bool) (all []Usage) {
	t.Helper()
	rt := &route{format: formats[format], record: func(u Usage) error { all = append(all, u); return nil }}
	var held memory
	m := rt.meter(&held, "POST", "/v1/x", &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}})
	for b := []byte(body); len(b) > 0; {
		n := min(piece, len(b))
		m.write(b[:n:n])
		b = b[n:]
	}
	if err := m.end(cut); err != nil {
		t.Fatal(err)
	}
	if n := held.used.Load(); n != 0 {
		t.Errorf("%d bytes of memory are still in use", n)
	}
	for i := range all {
		if all[i].Time.IsZero() {
			t.Error("no time")
		}
		all[i].Time = time.Time{}
	}
	return all
}

// sse returns a stream of events with that data.
func sse(data ...string) (s string) {
	for _, d := range data {
		s += "event: x\ndata: " + d + "\n\n"
	}
	return s
}

const (
	stream200 = "text/event-stream; charset=utf-8"
	json200   = "application/json"
)

var usageCases = []struct {
	name, format, kind, body string
	want                     Usage
}{
	{"messages, a stream", "messages", stream200, sse(
		`{"type":"message_start","message":{"id":"msg_1","model":"m","usage":{"input_tokens":10,"cache_creation_input_tokens":3,"cache_read_input_tokens":4,"output_tokens":1}}}`,
		`{"type":"content_block_delta","delta":{"text":"\"message_delta\" \"usage\""}}`,
		`{"type":"message_delta","usage":{"output_tokens":7}}`,
		`{"type":"message_delta","usage":{"output_tokens":9}}`, `{"type":"message_stop"}`),
		Usage{RequestID: "msg_1", Model: "m", Input: 10, Output: 9, CacheCreation: 3, CacheRead: 4}},
	{"messages, JSON", "messages", json200, `{"type":"message","id":"msg_2","model":"m","usage":{"input_tokens":1,"output_tokens":2}}`,
		Usage{RequestID: "msg_2", Model: "m", Input: 1, Output: 2}},
	{"messages, no end", "messages", stream200, sse(`{"type":"message_start","message":{"id":"i","model":"m","usage":{"input_tokens":10}}}`),
		Usage{RequestID: "i", Model: "m", Input: 10, Cut: true}},
	{"messages, an error", "messages", stream200, sse(`{"type":"error","error":{"type":"overloaded_error"}}`), Usage{Cut: true}},
	{"messages, null usage", "messages", json200, `{"type":"message","usage":null}`, Usage{Missing: true}},
	{"messages, odd counts", "messages", json200, `{"type":"message","usage":{"input_tokens":"many"}}`, Usage{Malformed: true}},
	{"messages, negative", "messages", json200, `{"type":"message","usage":{"input_tokens":-1}}`, Usage{Malformed: true}},
	{"messages, not JSON", "messages", json200, `{`, Usage{Malformed: true}},
	{"responses, a stream", "responses", stream200, sse(`{"type":"response.created","response":{"id":"r","model":"m","usage":null}}`,
		`{"type":"response.output_text.delta","delta":"x"}`,
		`{"type":"response.completed","response":{"id":"r","model":"m-1","usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":20,"output_tokens_details":{"reasoning_tokens":5}}}}`),
		Usage{RequestID: "r", Model: "m", Input: 40, CacheRead: 60, Output: 20, Reasoning: 5}},
	{"responses, JSON", "responses", json200, `{"id":"r","object":"response","model":"m","usage":{"input_tokens":5,"output_tokens":6}}`,
		Usage{RequestID: "r", Model: "m", Input: 5, Output: 6}},
	{"responses, failed", "responses", stream200, sse(`{"type":"response.failed","response":{"id":"r","model":"m"}}`),
		Usage{RequestID: "r", Model: "m", Missing: true}},
	{"chat, a stream", "chat", stream200, sse(`{"id":"c","model":"m","choices":[{"delta":{}}],"usage":null}`,
		`{"id":"c","model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":9},"completion_tokens_details":{"reasoning_tokens":1}}}`, `[DONE]`),
		Usage{RequestID: "c", Model: "m", CacheRead: 9, Output: 4, Reasoning: 1}},
	{"chat, JSON", "chat", json200, `{"id":"c","model":"m","usage":{"prompt_tokens":9,"completion_tokens":4}}`,
		Usage{RequestID: "c", Model: "m", Input: 9, Output: 4}},
	{"chat, no counts", "chat", stream200, sse(`{"id":"c"}`, `[DONE]`), Usage{Missing: true}},
	{"generate, a stream", "generate", stream200, sse(
		`{"responseId":"g","modelVersion":"m","usageMetadata":{"promptTokenCount":8,"totalTokenCount":8}}`,
		`{"responseId":"g","usageMetadata":{"promptTokenCount":8,"cachedContentTokenCount":2,"candidatesTokenCount":3,"thoughtsTokenCount":4}}`),
		Usage{RequestID: "g", Model: "m", Input: 6, CacheRead: 2, Output: 7, Reasoning: 4}},
	{"generate, an array", "generate", json200, ` [{"usageMetadata":{"promptTokenCount":8}},{"modelVersion":"m","usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":3}}]`,
		Usage{Model: "m", Input: 8, Output: 3}},
	{"generate, enclosed", "generate", stream200, sse(`{"response":{"modelVersion":"m","usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":3}},"traceId":"t"}`),
		Usage{Model: "m", Input: 8, Output: 3}},
	{"carriage returns", "chat", stream200, "\xef\xbb\xbfdata:{\"id\":\"c\",\r\ndata:\"usage\":{\"prompt_tokens\":9}}\r\n\r\n: comment\rdata: [DONE]\r\r",
		Usage{RequestID: "c", Input: 9}},
	{"no empty line at the end", "chat", stream200, "data: {\"usage\":{\"prompt_tokens\":9}}\n\ndata: [DONE]", Usage{Input: 9}},
	{"a long event", "chat", stream200, sse(`{"usage":{"prompt_tokens":9},"x":"`+strings.Repeat("x", mostUsage)+`"}`, `[DONE]`), Usage{Malformed: true}},
	{"a long event and a good one", "chat", stream200, sse(strings.Repeat("x", mostUsage), `{"usage":{"prompt_tokens":9}}`, `[DONE]`), Usage{Input: 9}},
	{"a long body", "chat", json200, strings.Repeat(" ", mostUsage) + "{}", Usage{Malformed: true}},
}

// TestUsage checks the counts of each format, and that they do not depend on how the bytes arrive.
func TestUsage(t *testing.T) {
	for _, c := range usageCases {
		pieces := []int{1 << 30, 7, 1}
		if len(c.body) > 1<<20 {
			pieces = []int{1 << 30, 32 << 10}
		}
		for _, piece := range pieces {
			c.want.Status = 200
			if got := meterOf(t, c.format, c.kind, 200, c.body, piece, false); len(got) != 1 || !reflect.DeepEqual(got[0], c.want) {
				t.Errorf("%s, %d bytes at once: %+v, want %+v", c.name, piece, got, c.want)
			}
		}
	}
}

// TestUsageCut checks that a cut response has the counts so far, and that a client may leave after the last event.
func TestUsageCut(t *testing.T) {
	start := sse(`{"type":"message_start","message":{"usage":{"input_tokens":10}}}`, `{"type":"message_delta","usage":{"output_tokens":7}}`)
	for body, want := range map[string]Usage{
		start:                                  {Status: 200, Input: 10, Output: 7, Cut: true},
		start + sse(`{"type":"message_stop"}`): {Status: 200, Input: 10, Output: 7},
	} {
		if got := meterOf(t, "messages", stream200, 200, body, 50, true); len(got) != 1 || got[0] != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if got := meterOf(t, "messages", json200, 200, `{"usage":`, 50, true); len(got) != 1 || got[0] != (Usage{Status: 200, Cut: true}) {
		t.Errorf("%+v", got)
	}
}

// TestUsageFault checks the messages of a server's own faults.
func TestUsageFault(t *testing.T) {
	for body, want := range map[string]string{
		`{"type":"error","error":{"type":"api_error","message":"no room"}}`: "no room", `{"error":"plain"}`: "plain", `{"message":"outside"}`: "outside",
		"upstream connect error\n": "upstream connect error", `{"error":7}`: "", "": "", strings.Repeat("x", 9000): strings.Repeat("x", mostName), `[1]`: "[1]",
	} {
		if got := meterOf(t, "messages", json200, 502, body, 50, false); len(got) != 1 || got[0].Fault != want {
			t.Errorf("%.80q: %+v", body, got)
		}
	}
	if got := meterOf(t, "messages", json200, 401, `{"error":{"message":"your key sk-1"}}`, 50, false); got[0].Fault != "" {
		t.Errorf("%+v", got)
	}
}

// TestUsageFirst checks that the usage is recorded before the client gets the end of the response: it may act on that at once.
func TestUsageFirst(t *testing.T) {
	for kind, body := range map[string]string{json200: `{"type":"error"}`, stream200: sse(`{"type":"message_stop"}`)} {
		for _, status := range []int{200, 401} {
			recorded := false
			rt := &route{format: formats["messages"], record: func(Usage) error { recorded = true; return nil }}
			m := rt.meter(&memory{}, "POST", "/v1/x", &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, ContentLength: int64(len(body))})
			sent := 0
			w := writerFunc(func(b []byte) (int, error) {
				if sent += len(b); sent == len(body) && !recorded {
					t.Errorf("%s, status %d: sent whole, and not recorded", kind, status)
				}
				return len(b), nil
			})
			if _, err := forwardBody(w, iotest.OneByteReader(strings.NewReader(body)), nil, m); err != nil || sent != len(body) {
				t.Errorf("sent %d bytes of %d: %v", sent, len(body), err)
			}
		}
	}
}

// writerFunc is a response's writer that passes on the body.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
func (f writerFunc) Header() http.Header         { return http.Header{} }
func (f writerFunc) WriteHeader(int)             {}

// TestUsageNone checks which responses are not recorded, and that the error of a record is returned.
func TestUsageNone(t *testing.T) {
	lost := errors.New("lost")
	rt := &route{format: formats["messages"], record: func(Usage) error { return lost }}
	resp := &http.Response{StatusCode: 200, Header: http.Header{}}
	for _, m := range []*meter{rt.meter(nil, "GET", "/v1/models", resp), rt.meter(nil, "POST", "/v1/messages/count_tokens", resp), (&route{}).meter(nil, "POST", "/", resp)} {
		m.write([]byte("x"))
		if m != nil || m.end(false) != nil {
			t.Errorf("%+v", m)
		}
	}
	if err := rt.meter(nil, "POST", "/v1/messages", resp).end(false); err != lost {
		t.Error(err)
	}
}

// TestUsageReset checks the times that error responses name.
func TestUsageReset(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		header, body string
		want         time.Duration
	}{
		{"", "", 0},
		{"Retry-After: 7", "", 7 * time.Second},
		{"Retry-After: 1.5|X-RateLimit-Reset: 100", `{"retry_after":9}`, 1500 * time.Millisecond},
		{"Retry-After-Ms: 250|Retry-After: 1", "", 250 * time.Millisecond},
		{"Retry-After: Fri, 02 Jan 2026 03:05:05 GMT", "", time.Minute},
		{"Retry-After: -4", "", 0},
		{"Retry-After: 1e300", "", mostWait},
		{"Retry-After: NaN", "", 0},
		{"Some-Ratelimit-Unified-Reset: " + fmt.Sprint(now.Add(time.Hour).Unix()), "", time.Hour},
		{"Some-Ratelimit-Unified-5h-Reset: " + fmt.Sprint(now.Add(time.Hour).UnixMilli()) + "|Some-Ratelimit-Unified-5h-Status: rejected|" +
			"Some-Ratelimit-Unified-7d-Reset: " + fmt.Sprint(now.Add(9*time.Hour).Unix()) + "|Some-Ratelimit-Unified-7d-Status: allowed_warning", "", time.Hour},
		{"Some-Ratelimit-Tokens-Reset: 2026-01-02T03:04:35Z|Some-Ratelimit-Tokens-Remaining: 0|Some-Ratelimit-Requests-Reset: 2026-01-02T04:04:35Z|Some-Ratelimit-Requests-Remaining: 9", "", 30 * time.Second},
		{"X-Ratelimit-Reset-Requests: 6m0s|X-Ratelimit-Remaining-Requests: 0|X-Ratelimit-Reset-Tokens: 7m0s|X-Ratelimit-Remaining-Tokens: 5", "", 6 * time.Minute},
		{"X-Some-Primary-Reset-After-Seconds: 60|X-Some-Primary-Used-Percent: 100|X-Some-Secondary-Reset-After-Seconds: 600|X-Some-Secondary-Used-Percent: 9", "", time.Minute},
		{"X-Password-Reset: 99", "", 0},
		{"", `{"error":{"resets_in_seconds":90}}`, 90 * time.Second},
		{"", `{"error":{"resets_at":` + fmt.Sprint(now.Unix()+5) + `}}`, 5 * time.Second},
		{"", `{"error":{"details":[{"retryDelay":"34s"}]}}`, 34 * time.Second},
		{"", `{"retry_after":"soon"}`, 0},
	} {
		h := http.Header{}
		for line := range strings.SplitSeq(c.header, "|") {
			if name, v, ok := strings.Cut(line, ": "); ok {
				h.Set(name, v)
			}
		}
		if got := resetIn(h, []byte(c.body), now); got != c.want {
			t.Errorf("%q, %q: %v, want %v", c.header, c.body, got, c.want)
		}
	}
}

// FuzzUsage checks that no response makes a meter fail, that a meter records once, and that the counts do not depend
// on how the bytes arrive.
func FuzzUsage(f *testing.F) {
	for _, c := range usageCases {
		if len(c.body) < 1<<20 {
			f.Add(c.format, c.kind == stream200, 200, []byte(c.body), 3)
		}
	}
	f.Fuzz(func(t *testing.T, format string, stream bool, status int, body []byte, piece int) {
		kind := json200
		if stream {
			kind = stream200
		}
		if formats[format] == nil {
			format = "messages"
		}
		whole := meterOf(t, format, kind, status, string(body), 1<<30, false)
		parts := meterOf(t, format, kind, status, string(body), max(1, piece%64), false)
		if len(whole) != 1 || !reflect.DeepEqual(whole, parts) {
			t.Errorf("%+v, in parts %+v", whole, parts)
		}
		if u := whole[0]; min(u.Input, u.Output, u.CacheRead, u.CacheCreation, u.Reasoning) < 0 || u.RetryAfter < 0 || u.RetryAfter > mostWait {
			t.Errorf("%+v", u)
		}
		if bytes.IndexByte(body, 0) < 0 && len(whole[0].Model) > mostName {
			t.Errorf("%+v", whole)
		}
	})
}
