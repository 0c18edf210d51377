package filter

import (
	"bufio"
	"os"
	"strings"
	"testing"
)

// TestWrapJudge (M15) checks which lines of a wrapped server reach its client.
func TestWrapJudge(t *testing.T) {
	const refused = `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"the client takes no such request"}}`
	const asked = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server asked for input, which this client does not give"}}`
	for _, c := range []struct {
		line, pass, answer string
		requests           bool
	}{
		{line: `{"jsonrpc":"2.0","id":1,"result":{"a":"<b>"}}`, pass: `{"jsonrpc":"2.0","id":1,"result":{"a":"<b>"}}`},
		{line: `{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}`, pass: `{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}`},
		{line: `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}` + "\r", pass: `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`},
		{line: `{"jsonrpc":"2.0","id":1,"method":"ping"}`, pass: `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{line: "", pass: ""},

		{line: `{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}`, answer: refused},
		{line: `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`, answer: refused},
		{line: `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}`, answer: refused},
		{line: `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{}}`, answer: refused},
		{line: `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`, requests: true, pass: `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`},
		{line: `{"jsonrpc":"2.0","id":1,"method":"ping","method":"roots/list"}`, answer: refused},
		{line: `{"jsonrpc":"2.0","id":1,"method":"roots/list","method":"ping"}`, pass: `{"jsonrpc":"2.0","id":1,"method":"ping"}`}, // once
		{line: `{"jsonrpc":"2.0","id":1,"method":"ping","Method":"roots/list","params":{},"PARAMS":{"x":1}}`, pass: `{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}`},
		{line: `{"jsonrpc":"2.0","id":1,"method":"ro\u006fts/list"}`, answer: refused},
		{line: `{"jsonrpc":"2.0","id":null,"method":"roots/list"}`, answer: strings.Replace(refused, `"id":1`, `"id":null`, 1)},
		{line: `{"jsonrpc":"2.0","method":"sampling/createMessage","params":{}}`},
		{line: `{"jsonrpc":"2.0","id":1,"method":"roots/list","result":{}}`},
		{line: `[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":1,"method":"roots/list"}]`, pass: `[{"jsonrpc":"2.0","id":1,"result":{}}]`, answer: refused},
		{line: `[[{"jsonrpc":"2.0","id":1,"method":"roots/list"}]]`},
		{line: `[]`},

		{line: `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}}}}`, pass: asked},
		{line: `{"jsonrpc":"2.0","id":1,"result":{"InputRequests":{},"inputRequests":null}}`, pass: asked},
		{line: `{"jsonrpc":"2.0","id":1,"error":{"code":-32042,"message":"m","data":{"elicitations":[{"url":"https://x.test"}]}}}`, pass: asked},
		{line: `{"jsonrpc":"2.0","id":1,"error":{"code":1,"Code":-3.2042e4,"message":"m"}}`, pass: asked},
		{line: `{"jsonrpc":"2.0","method":"notifications/tasks","params":{"inputRequests":{}}}`},
		{line: `{"jsonrpc":"2.0","id":1,"result":{"inputRequests":{}}}`, requests: true, pass: `{"jsonrpc":"2.0","id":1,"result":{"inputRequests":{}}}`},

		{line: "log: started"},
		{line: "\x1b]52;c;aGk=\x07"},
		{line: "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\x1b[31m\"}"},
		{line: `{"jsonrpc":"2.0","id":1,"result":"` + "\u009b31m\u202e\x7f\x9b" + `"}`, pass: `{"jsonrpc":"2.0","id":1,"result":"\u009b31m\u202e\u007f` + "\ufffd" + `"}`},
		{line: `{"jsonrpc":"2.0","id":1,"result":1}{"jsonrpc":"2.0","id":1,"method":"roots/list"}`},
		{line: `{"jsonrpc":"1.0","id":1,"result":1}`},
		{line: `{"id":1,"result":1}`},
		{line: `{"jsonrpc":"2.0","result":1}`},
		{line: `{"jsonrpc":"2.0","id":{"a":1},"result":1}`},
		{line: `{"jsonrpc":"2.0","id":1}`},
		{line: `{"jsonrpc":"2.0","id":1,"method":7}`},
		{line: `null`}, {line: `"x"`}, {line: `7`},
	} {
		v := judge([]byte(c.line), c.requests)
		answer := ""
		for _, a := range v.answer {
			answer += strings.TrimSuffix(string(a), "\n")
		}
		if pass := strings.TrimSuffix(string(v.pass), "\n"); pass != c.pass || answer != c.answer {
			t.Errorf("%s\n passed   %s\nnot       %s\nanswered  %s\nnot       %s", c.line, pass, c.pass, answer, c.answer)
		}
		if whole := c.line == "" || c.pass != "" && c.pass != asked && c.answer == ""; whole != (len(v.why) == 0) {
			t.Errorf("%s: said %q", c.line, v.why)
		}
	}
}

// TestWrapLine checks that a line of any length needs bounded memory.
func TestWrapLine(t *testing.T) {
	r := bufio.NewReader(strings.NewReader(strings.Repeat("x", maxServerMessage+1) + "\nnext\nlast"))
	for _, want := range []string{"", "next\n", "last"} {
		line, err := readServerLine(r)
		if string(line) != want || (line == nil) != (want == "") || (err == nil) != strings.HasSuffix(want+"\n", "\n\n") && want == "next\n" {
			t.Errorf("%q, %v", line, err)
		}
	}
}

// TestWire checks both directions of a wire: the refusal of a request is a line of its own between the client's.
func TestWire(t *testing.T) {
	clientIn, toWire, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromWire, clientOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	w, err := New(clientIn, clientOut, func(line string) { said += line + "\n" }, false)
	if err != nil {
		t.Fatal(err)
	}
	server, client := bufio.NewReader(w.Stdin), bufio.NewReader(fromWire)
	for range 3 {
		toWire.WriteString("{\"a\":1}\n")
		if line, err := server.ReadString('\n'); line != "{\"a\":1}\n" {
			t.Fatalf("%q, %v", line, err)
		}
		w.Stdout.WriteString("noise\n{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"roots/list\"}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n")
		if line, err := server.ReadString('\n'); !strings.Contains(line, `"id":7,"error"`) {
			t.Fatalf("%q, %v", line, err)
		}
		if line, err := client.ReadString('\n'); line != "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	toWire.Close()
	if line, err := server.ReadString('\n'); line != "" || err == nil {
		t.Errorf("after the client's end: %q, %v", line, err)
	}
	w.Close()
	if strings.Count(said, "\n") != 2 || !strings.Contains(said, "--allow-requests") {
		t.Errorf("said %q", said)
	}
}
