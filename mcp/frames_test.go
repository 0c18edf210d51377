package mcp

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// readAll reads a client's whole input. It returns the methods called and the errors answered.
func readAll(t testing.TB, in io.Reader) (methods, refused []string) {
	t.Helper()
	var out writer
	f := newFrames(io.NopCloser(in), &out)
	f.most = 1 << 20
	for {
		m, err := f.Read(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *jsonrpc.Request:
			methods = append(methods, m.Method)
		case *jsonrpc.Response:
			methods = append(methods, "answer")
		}
	}
	for _, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
		var m struct {
			JSONRPC string
			ID      json.RawMessage
			Error   struct {
				Code    int
				Message string
			}
		}
		if line == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.JSONRPC != "2.0" || !strings.Contains(line, `"id":`) {
			t.Errorf("answered %q: %v", line, err)
		}
		id := ""
		if string(m.ID) != "null" {
			id = string(m.ID) + " "
		}
		refused = append(refused, fmt.Sprintf("%s%d %s", id, m.Error.Code, m.Error.Message))
	}
	return methods, refused
}

// TestFrames checks that an invalid message is answered and the next one is read, however the
// bytes are divided into reads.
func TestFrames(t *testing.T) {
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, c := range []struct{ in, methods, refused string }{
		{"", "", ""},
		{"\n \r\n\n", "", ""},
		{ping, "ping", ""},
		{ping + "\r\n" + ping + ping + "\n", "ping ping ping", ""},
		{"{\n\t\"jsonrpc\":\n\"2.0\",\n \"id\":\"x\",\n\"method\":\"ping\"\n}\n" + ping, "ping ping", ""},
		{"hello {\n" + ping, "ping", "-32700 invalid character 'h' looking for beginning of value"},
		{ping + "\n\x00\x00\n" + ping, "ping ping", `-32700 invalid character '\x00' looking for beginning of value`},
		{"{\"a\":\n[}\n" + ping, "ping", "-32700 invalid character '}' looking for beginning of value"},
		{`{"a":` + "\n" + ping + "\n" + ping + "\n" + ping, "ping", "-32700 invalid character '{' after object key:value pair"},
		{"x" + strings.Repeat("y", 10000) + "\n" + ping, "ping", "-32700 invalid character 'x' looking for beginning of value"},
		{strings.Repeat("[", 20000) + "\n" + ping, "ping", "-32700 invalid character '[' exceeded max depth"},
		{"hello", "", "-32700 invalid character 'h' looking for beginning of value"},
		{`{"jsonrpc":`, "", "-32700 unexpected EOF"},
		{"5\n\"x\"\nnull\n" + ping, "ping", strings.Repeat("-32600 message is not an object|", 3)},
		{"{}\n" + ping, "ping", `-32600 invalid message version tag ""; expected "2.0"`},
		{`{"jsonrpc":"2.0","id":true,"method":"ping"}` + "\n" + ping, "ping", "-32600 parse error: invalid ID type bool"},
		{"[]\n" + ping, "ping", "-32600 empty batch"},
		{"[" + ping + "," + ping + "]\n" + ping, "ping ping ping", ""},
		{"[" + ping + ",[]]\n" + ping, "ping", "-32600 message is not an object"},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, "answer", ""},
	} {
		for _, r := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in)), iotest.DataErrReader(strings.NewReader(c.in))} {
			methods, refused := readAll(t, r)
			if got := strings.Join(methods, " "); got != c.methods || strings.Join(refused, "|") != strings.TrimSuffix(c.refused, "|") {
				t.Errorf("%.50q by %T: %s, refused %q; want %s, %q", c.in, r, got, refused, c.methods, c.refused)
			}
		}
	}
}

// TestFramesLong checks that a message that is too long is refused, and the next one is read.
func TestFramesLong(t *testing.T) {
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
	fits := strings.Replace(ping, "ping", strings.Repeat("x", 1<<20-100), 1)
	methods, refused := readAll(t, strings.NewReader(fits+`"`+strings.Repeat("x", 3<<20)+"\n"+ping))
	if len(methods) != 2 || methods[1] != "ping" || strings.Join(refused, "|") != "-32600 the message is too long: over 1048576 bytes" {
		t.Errorf("%d messages, refused %q", len(methods), refused)
	}
}

// TestFramesLongID checks that the refusal of a message that is too long has the id of the message, wherever the id is.
// Members of inner objects, parts of strings and invalid ids do not count.
func TestFramesLongID(t *testing.T) {
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
	long := strings.Repeat("x", 3<<20)
	for _, c := range []struct{ in, id string }{
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"a":"` + long + `"}}`, "7 "},
		{`{"method":"tools/call","params":{"a":"` + long + `"},"jsonrpc":"2.0","id":"a\"b"}`, `"a\"b" `},
		{`{"params":{"id":3,"a":"\",\"id\":4,` + long + `"}, "id" : -7 }`, "-7 "},
		{`{"params":[{"id":3},"` + long + `","id",5]}`, ""},
		{`{"id":true,"a":"` + long + `"}`, ""},
		{`{"id":{"id":1},"a":"` + long + `"}`, ""},
		{`["id",5,"` + long + `"]`, ""},
		{`{"a":"` + long + `","id":"` + long + `"}`, ""},
		{`{"a":"` + long, ""},
		{`{` + strings.Repeat(`"id":9,`, 1<<19) + `"a":1}`, "9 "},
		{`}}}{"id":8,"a":"` + long + `"}`, ""},
	} {
		methods, refused := readAll(t, strings.NewReader(c.in+"\n"+ping))
		if len(methods) != 1 || !strings.HasPrefix(refused[0], c.id+"-32") {
			t.Errorf("%.40s: %d messages, refused %.200q, want id %s", c.in, len(methods), refused, c.id)
		}
	}
}

// TestFramesBatch checks that a batch has a maximum number of messages.
func TestFramesBatch(t *testing.T) {
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for n, want := range map[int]string{maxBatch: "", maxBatch + 1: "-32600 batch of over 1000 messages"} {
		methods, refused := readAll(t, strings.NewReader("["+strings.TrimSuffix(strings.Repeat(ping+",", n), ",")+"]\n"+ping))
		if strings.Join(refused, "|") != want || (want == "") != (len(methods) == n+1) {
			t.Errorf("%d: %d messages, refused %q", n, len(methods), refused)
		}
	}
}

// TestFramesManyErrors checks that many errors are answered in linear time.
func TestFramesManyErrors(t *testing.T) {
	in := "{" + strings.Repeat(" ", 1<<19) + "x\n" + strings.Repeat("]\n", 50000)
	if _, refused := readAll(t, strings.NewReader(in)); len(refused) != 50001 {
		t.Errorf("%d", len(refused))
	}
}

// FuzzFrames checks that reading always ends at the end of the input. A complete message before
// the fuzzed bytes is read. After a line that terminates any open value, a message is read.
func FuzzFrames(f *testing.F) {
	for _, s := range []string{"", "x", "{", `{"jsonrpc":"2.0","id":1,"method":"a"}`, "[1,\n2]", `"\ud800`, "{\"a\":\n[}\n", "\xef\xbb\xbf{}", `[{"jsonrpc":"2.0","method":"a"},{}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		first, last := `{"jsonrpc":"2.0","id":1,"method":"first"}`, `{"jsonrpc":"2.0","id":2,"method":"last"}`
		// JSON contains no NUL, so it terminates any open value.
		methods, _ := readAll(t, strings.NewReader(first+"\n"+string(b)+"\n\x00\n"+last))
		if len(methods) < 2 || methods[0] != "first" || methods[len(methods)-1] != "last" {
			t.Errorf("%q", methods)
		}
	})
}
