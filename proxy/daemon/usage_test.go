package daemon

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"demesne/proxy"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
)

// TestRecordTo checks that routes with the same Record write to one file, a line at once, and others to none.
func TestRecordTo(t *testing.T) {
	path := t.TempDir() + "/usage"
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	here, there, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	a, b := ipc.NewConn(here), ipc.NewConn(there)
	defer a.Close()
	defer b.Close()
	if err := a.Send(ipc.Message{}, nil, ipc.Files{proxyclient.FileRecord(1): f}); err != nil {
		t.Fatal(err)
	}
	m, err := b.Recv()
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	routes := make([]proxy.Route, 4)
	files := recordTo(routes, []runner.Route{{}, {Record: path}, {Record: path}, {Record: "/another"}}, m)
	if len(files) != 1 || routes[0].Record != nil || routes[3].Record != nil {
		t.Fatalf("%v, %v", files, routes)
	}
	full := proxy.Usage{RequestID: "r", Time: time.Unix(1, 0).UTC(), Status: 429, Model: "m", Input: 1, Output: 2, CacheCreation: 3, CacheRead: 4, Reasoning: 5,
		Number: 6, Asked: "n", Sent: 7, Got: 8, MaxOutput: 9, Searches: 10, Cut: true, Missing: true, Malformed: true, Fault: "f", RetryAfter: time.Minute}
	for i := range reflect.TypeOf(full).NumField() {
		if reflect.ValueOf(full).Field(i).IsZero() {
			t.Errorf("field %d is zero", i)
		}
	}
	if err := routes[1].Record(full); err != nil {
		t.Fatal(err)
	}
	if err := routes[2].Record(proxy.Usage{Status: 200}); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(path)
	want := `{"requestId":"r","ts":"1970-01-01T00:00:01Z","status":429,"model":"m","input":1,"output":2,"cache_creation":3,"cache_read":4,"reasoning":5,"cut":true,"missing":true,"malformed":true,"number":6,"asked":"n","sent":7,"got":8,"max_output":9,"searches":10,"fault":"f","retry_after":"1m0s"}
{"requestId":"","ts":"0001-01-01T00:00:00Z","status":200,"input":0,"output":0,"cache_creation":0,"cache_read":0}
`
	if string(text) != want {
		t.Errorf("%s", text)
	}
	files[0].Close()
	if err := routes[1].Record(full); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}
