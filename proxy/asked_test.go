package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestEscapeN40Asked has what requests say about their cost, and why some cannot be known. The texts of the second column are parts of
// the reason.
func TestEscapeN40Asked(t *testing.T) {
	const generate = "/v1beta/models/gemini-2.5-pro:generateContent"
	for body, want := range map[string]string{
		`{"model":"m","max_tokens":100,"stream":true,"tools":[{"name":"Bash","input_schema":{}}]}`:  "m 100 ",
		`{"model":"m","max_completion_tokens":10,"n":4}`:                                            "m 40 ",
		`{"model":"m","max_tokens":1e300}`:                                                          "m 1099511627776 ",
		`{"model":"m","max_tokens":"5","n":-4}`:                                                     "m 0 ",
		`{"model":"m","service_tier":"auto","background":false,"previous_response_id":null}`:        "m 0 ",
		`{"model":"m","tools":[{"type":"web_search"},{"type":"function","name":"code_execution"}]}`: "m 0 ",
		`{"model":"m","model":"dear"}`:                                                              " 0 twice",
		`{"model":"m","Model":"dear"}`:                                                              " 0 twice",
		`{"mo_del":"m","model":"dear"}`:                                                             " 0 twice",
		`{"model":"m"} {"model":"dear"}`:                                                            " 0 not a JSON object",
		`{"model":"m"`:                                                                              " 0 not a JSON object",
		`[{"model":"m"}]`:                                                                           " 0 not a JSON object",
		`{"model":"m","background":true}`:                                                           `m 0 "background"`,
		`{"model":"m","previous_response_id":"r"}`:                                                  `m 0 "previous_response_id"`,
		`{"model":"m","prompt":{"id":"p"}}`:                                                         `m 0 "prompt"`,
		`{"model":"m","service_tier":"priority"}`:                                                   `m 0 "service_tier"`,
		`{"model":"m","serviceTier":["auto"]}`:                                                      `m 0 "service_tier"`,
		`{"model":"m","speed":"fast"}`:                                                              `m 0 "speed"`,
		`{"model":"m","models":["dear"]}`:                                                           `m 0 "models"`,
		`{"model":"m","modalities":["text","audio"]}`:                                               `m 0 "modalities"`,
		`{"model":"m","tools":[{"type":"code_interpreter","container":{}}]}`:                        `m 0 "code_interpreter"`,
		`{"model":"m","tools":[{"type":"code_execution_20250825"}]}`:                                `m 0 "code_execution"`,
		`{"model":"m","tools":[{"type":"image_generation"}]}`:                                       `m 0 "image_generation"`,
		`{"model":"m","tools":[{"type":"shell","environment":{"type":"container"}}]}`:               `m 0 "container"`,
		`{"model":"m","tools":{"type":"image_generation"}}`:                                         `m 0 not a list`,
	} {
		a := formats["messages"].ask(http.Header{}, "/v1/x", []byte(body))
		model, rest, _ := strings.Cut(want, " ")
		tokens, odd, _ := strings.Cut(rest, " ")
		if a.Model != model || fmt.Sprint(a.MaxOutput) != tokens || (odd == "") != (a.Odd == "") || !strings.Contains(a.Odd, odd) || a.Sent != int64(len(body)) {
			t.Errorf("%s: %+v, want %q", body, a, want)
		}
	}
	f := formats["generate"]
	a := f.ask(http.Header{}, generate, []byte(`{"model":"other","generationConfig":{"maxOutputTokens":7,"candidate_count":2}}`))
	if a.Model != "gemini-2.5-pro" || a.MaxOutput != 14 || a.Odd != "" {
		t.Errorf("%+v", a)
	}
	for _, body := range []string{`{"cachedContent":"c"}`, `{"cached_content":"c"}`, `{"generation_config":{"responseModalities":["IMAGE"]}}`, `{"tools":[{"code_execution":{}},{"fileSearch":{"a":1}}]}`} {
		if a := f.ask(http.Header{}, generate, []byte(body)); a.Odd == "" {
			t.Errorf("%s: %+v", body, a)
		}
	}
	for _, encoding := range []string{"gzip", "br", "zstd", "identity, gzip"} {
		if a := f.ask(http.Header{"Content-Encoding": {encoding}}, generate, []byte(`{}`)); !strings.Contains(a.Odd, "compressed") {
			t.Errorf("%s: %+v", encoding, a)
		}
	}
}

// TestEscapeN40Counts checks that counts which are not counts never hide a request, and that readable ones are counted.
func TestEscapeN40Counts(t *testing.T) {
	for text, want := range map[string]Usage{
		`"10"`: {Input: 10, Output: 2}, `10.2`: {Input: 11, Output: 2}, `1e30`: {Input: mostCount, Output: 2}, `1e999`: {Input: mostCount, Output: 2},
		`null`: {Output: 2}, `-1`: {Output: 2, Malformed: true}, `"NaN"`: {Output: 2, Malformed: true}, `"many"`: {Output: 2, Malformed: true},
		`"-Inf"`: {Output: 2, Malformed: true}, `{"n":1}`: {Output: 2, Malformed: true}, `[1]`: {Output: 2, Malformed: true}, `true`: {Output: 2, Malformed: true},
	} {
		for format, names := range map[string][2]string{"messages": {"input_tokens", "output_tokens"}, "responses": {"input_tokens", "output_tokens"}, "chat": {"prompt_tokens", "completion_tokens"}} {
			body := fmt.Sprintf(`{"type":"","usage":{%q:%s,%q:2}}`, names[0], text, names[1])
			if format == "messages" {
				body = strings.Replace(body, `"type":""`, `"type":"message"`, 1)
			}
			got := meterOf(t, format, json200, 200, body, 7, false)
			if want.Status = 200; len(got) != 1 || got[0] != want {
				t.Errorf("%s, %s: %+v, want %+v", format, body, got, want)
			}
		}
	}
	for _, body := range []string{`{"type":"message","usage":{}}`, `{"type":"message","usage":{"input_tokens":0,"output_tokens":"0"}}`} {
		if got := meterOf(t, "messages", json200, 200, body, 7, false); len(got) != 1 || !got[0].Missing {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

// doorkeeper is a Gate for tests.
type doorkeeper struct {
	mu      sync.Mutex
	asked   []Asked
	dropped []int64
	refuse  error
}

func (d *doorkeeper) Ask(_ context.Context, a Asked) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, a)
	return int64(len(d.asked)), d.refuse
}

func (d *doorkeeper) Drop(number int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropped = append(d.dropped, number)
}

// TestEscapeN40Refused checks that a refused request does not reach the server, whatever its form, and that requests which
// generate nothing ask nobody.
func TestEscapeN40Refused(t *testing.T) {
	d := &doorkeeper{refuse: errors.New("budget: turns: 4 of 3")}
	s := newService(t, false, Route{Usage: "messages", Gate: d, Allow: []string{"POST /v1/messages", "POST /v1/messages/count_tokens", "GET /v1/models"}},
		func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") })
	for _, header := range [][]string{{}, {"Content-Encoding", "gzip"}, {"Content-Type", "text/plain"}, {"X-Http-Method-Override", "GET"}} {
		resp, body := s.call("POST", "/v1/messages", `{"model":"m","max_tokens":5}`, header...)
		if resp.StatusCode != 403 || !strings.Contains(body, "budget: turns: 4 of 3") {
			t.Errorf("%v: %d %s", header, resp.StatusCode, body)
		}
	}
	if len(s.seen) != 0 || len(d.asked) != 4 || d.asked[0].Model != "m" || d.asked[1].Odd == "" {
		t.Errorf("%d requests reached the server; asked %+v", len(s.seen), d.asked)
	}
	s.call("POST", "/v1/messages/count_tokens", `{}`)
	s.call("GET", "/v1/models", ``)
	if len(s.seen) != 2 || len(d.asked) != 4 {
		t.Errorf("%d requests, asked %+v", len(s.seen), d.asked)
	}
	closed := newService(t, false, Route{Usage: "messages", Gated: true}, func(http.ResponseWriter, *http.Request) {})
	if resp, body := closed.call("POST", "/v1/messages", `{}`); resp.StatusCode != 403 || len(closed.seen) != 0 {
		t.Errorf("without its gate: %d %s", resp.StatusCode, body)
	}
}

// TestEscapeN40HTTP2 checks that a route speaks HTTP/1.1 only: a request over HTTP/2, or one that asks to switch to it, does
// not reach the server.
func TestEscapeN40HTTP2(t *testing.T) {
	d := &doorkeeper{}
	s := newService(t, true, Route{Usage: "messages", Gate: d}, func(http.ResponseWriter, *http.Request) {})
	const body = `{"model":"m","max_tokens":5}`
	var two http.Protocols
	two.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &two}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequest("POST", "http://"+s.at+"/v1/messages", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", routeToken)
	if resp, err := transport.RoundTrip(req); err == nil {
		resp.Body.Close()
		t.Errorf("over HTTP/2: %s", resp.Status)
	}
	resp, _ := s.call("POST", "/v1/messages", body, "Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA")
	if resp.StatusCode != http.StatusForbidden || resp.ProtoMajor != 1 {
		t.Errorf("a switch to HTTP/2: %s %s", resp.Proto, resp.Status)
	}
	if len(d.asked) != 0 || len(s.seen) != 0 {
		t.Errorf("asked %v, %d requests reached the server", d.asked, len(s.seen))
	}
}

// TestEscapeN40HangUp checks that a client which disconnects before the head of the response, or in the middle of the body, does
// not change what is counted.
func TestEscapeN40HangUp(t *testing.T) {
	for _, early := range []bool{true, false} {
		t.Run(fmt.Sprint(early), func(t *testing.T) {
			arrived, gone := make(chan bool), make(chan bool)
			d := &doorkeeper{}
			s := newService(t, false, Route{Usage: "messages", Gate: d}, func(w http.ResponseWriter, r *http.Request) {
				if early {
					arrived <- true
					<-gone
				}
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, sse(`{"type":"message_start","message":{"id":"i","model":"m","usage":{"input_tokens":10}}}`))
				http.NewResponseController(w).Flush()
				if !early {
					arrived <- true
					<-gone
				}
				for range 1000 { // more than the buffers of the connection to the client
					io.WriteString(w, sse(`{"type":"content_block_delta","x":"`+strings.Repeat("x", 4000)+`"}`))
				}
				io.WriteString(w, sse(`{"type":"message_delta","usage":{"output_tokens":70}}`, `{"type":"message_stop"}`))
			})
			c, err := net.Dial("tcp", s.at)
			if err != nil {
				t.Fatal(err)
			}
			body := `{"model":"asked","max_tokens":100}`
			fmt.Fprintf(c, "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Length: %d\r\n\r\n%s", routeToken, len(body), body)
			if !early {
				bufio.NewReader(c).ReadString('\n')
			}
			<-arrived
			c.Close()
			close(gone)
			u := s.recorded(1)[0]
			if u.Number != 1 || u.Input != 10 || u.Output != 70 || u.Cut || u.Missing || u.Asked != "asked" || u.Sent != int64(len(body)) || u.MaxOutput != 100 || u.Got < 4e6 {
				t.Errorf("%+v", u)
			}
		})
	}
}

// TestGateLost checks the records of requests whose response is lost, and that one which reached no server is dropped.
func TestGateLost(t *testing.T) {
	d := &doorkeeper{}
	s := newService(t, false, Route{Usage: "responses", Gate: d}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if resp, _ := s.call("POST", "/v1/messages", `{"model":"m"}`); resp.StatusCode != 502 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if u := s.recorded(1)[0]; !u.Cut || u.Status != 0 || u.Number != 1 || u.Asked != "m" || u.Sent != 13 {
		t.Errorf("%+v", u)
	}
	s = newService(t, false, Route{Usage: "responses", Gate: d, To: "http://127.0.0.1:1"}, nil)
	s.call("POST", "/v1/messages", `{"model":"m"}`)
	if len(d.dropped) != 1 || d.dropped[0] != 2 || len(s.usage) != 0 {
		t.Errorf("dropped %v, recorded %v", d.dropped, s.usage)
	}
}

// TestChatUsage checks that a stream of the Chat Completions interface is always asked for its usage.
func TestChatUsage(t *testing.T) {
	var got []byte
	s := newService(t, false, Route{Usage: "chat"}, func(w http.ResponseWriter, r *http.Request) { got, _ = io.ReadAll(r.Body) })
	for body, want := range map[string]string{
		`{"stream":true,"model":"<m>"}`:                                       `{"model":"<m>","stream":true,"stream_options":{"include_usage":true}}`,
		`{"stream":true,"stream_options":{"include_usage":false,"x":[1, 2]}}`: `{"stream":true,"stream_options":{"include_usage":true,"x":[1,2]}}`,
		`{"stream":true,"stream_options":7}`:                                  `{"stream":true,"stream_options":{"include_usage":true}}`,
		`{"stream":true,"stream_options":{"include_usage":true}}`:             `{"stream":true,"stream_options":{"include_usage":true}}`,
		`{"stream":false}`: `{"stream":false}`,
		`not JSON`:         `not JSON`,
	} {
		s.call("POST", "/v1/messages", body)
		if strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: forwarded %s", body, got)
		}
		if json.Valid([]byte(body)) != json.Valid(got) {
			t.Errorf("%s is not valid any more", got)
		}
	}
}
