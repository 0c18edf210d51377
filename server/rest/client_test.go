package rest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/client"
)

// otherwise lists the operations that no method calls, with the way of this package to the same end.
var otherwise = map[string]string{
	"read-file":  "Files.Read gets the bytes themselves",
	"write-file": "Files.Write sends the bytes themselves",
}

// documented is an operation of the OpenAPI document.
type documented struct {
	OperationID string
	Parameters  []struct{ Name, In string }
}

// match returns the operation of a request.
func match(paths map[string]map[string]documented, method, path string) (documented, bool) {
	parts := strings.Split(path, "/")
	var found documented
	most := -1 // literal parts, as in http.ServeMux
	for at, item := range paths {
		want := strings.Split(at, "/")
		op, ok := item[strings.ToLower(method)]
		if !ok || len(want) != len(parts) {
			continue
		}
		same := 0
		for i := range want {
			if want[i] == parts[i] {
				same++
			} else if !strings.HasPrefix(want[i], "{") {
				same = -1
				break
			}
		}
		if same > most {
			found, most = op, same
		}
	}
	return found, most >= 0
}

// recorder answers every request with an error, and keeps it.
type recorder struct{ got func(*http.Request) }

func (r recorder) RoundTrip(q *http.Request) (*http.Response, error) {
	if r.got(q); q.Body != nil {
		io.Copy(io.Discard, q.Body)
	}
	return &http.Response{StatusCode: http.StatusTeapot, Header: http.Header{}, Body: http.NoBody, Request: q}, nil
}

// values returns the arguments of a method to call it with, once for each value of a bool.
func values(t *testing.T, m reflect.Type, word string) (all [][]reflect.Value) {
	all = [][]reflect.Value{nil}
	for i := range m.NumIn() {
		var v []any
		switch in := m.In(i); {
		case in == reflect.TypeFor[context.Context]():
			v = []any{t.Context()}
		case in == reflect.TypeFor[io.Reader]():
			v = []any{strings.NewReader("x")}
		case in == reflect.TypeFor[client.EventFilter]():
			v = []any{client.EventFilter{Type: word, Sandbox: word, Namespace: word, After: 1, Last: 1, Since: time.Now()}}
		case in.Kind() == reflect.Bool:
			v = []any{false, true}
		case in.Kind() == reflect.String:
			v = []any{word}
		case in.Kind() == reflect.Slice && m.IsVariadic() && i == m.NumIn()-1:
			continue
		case in.Kind() >= reflect.Int && in.Kind() <= reflect.Uint64:
			v = []any{reflect.ValueOf(1).Convert(in).Interface()}
		default:
			v = []any{reflect.Zero(in).Interface()}
		}
		var longer [][]reflect.Value
		for _, args := range all {
			for _, one := range v {
				arg := reflect.ValueOf(one)
				if !arg.IsValid() {
					arg = reflect.Zero(m.In(i))
				}
				longer = append(longer, append(slices.Clone(args), arg))
			}
		}
		all = longer
	}
	return all
}

// TestClient calls every method of package client, and checks that each sends a request that the OpenAPI document describes,
// and that each operation of the document has its method or another way.
func TestClient(t *testing.T) {
	raw, err := os.ReadFile("../../docs/reference/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]documented
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	called, method, sent := map[string]string{}, "", 0
	c, err := client.New(client.Options{URL: "http://x.test", HTTP: &http.Client{Transport: recorder{func(r *http.Request) {
		sent++
		op, ok := match(document.Paths, r.Method, r.URL.Path)
		if !ok {
			t.Errorf("%s: %s %s is not in the document", method, r.Method, r.URL)
		}
		called[op.OperationID] = method
		for name := range r.URL.Query() {
			if !slices.ContainsFunc(op.Parameters, func(p struct{ Name, In string }) bool { return p.Name == name && p.In == "query" }) {
				t.Errorf("%s: %s has no parameter %q", method, op.OperationID, name)
			}
		}
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	var call func(of reflect.Value, name string)
	call = func(of reflect.Value, name string) {
		for i := range of.NumMethod() {
			m := of.Type().Method(i)
			if m.Name == "Close" {
				continue
			}
			for _, args := range values(t, of.Method(i).Type(), "stdout") {
				method, sent = name+"."+m.Name, 0
				out := of.Method(i).Call(args)
				switch kind := out[0].Type(); {
				case len(out) == 1 && kind.Kind() == reflect.Struct && kind.NumMethod() > 1: // a part of the Client
					call(out[0], m.Name)
					continue
				case kind.Kind() == reflect.Func: // a sequence
					for range out[0].Seq2() {
					}
				}
				if sent != 1 {
					t.Errorf("%s sent %d requests", method, sent)
				}
			}
		}
	}
	call(reflect.ValueOf(c), "Client")
	for path, item := range document.Paths {
		for verb, op := range item {
			id := op.OperationID
			if (called[id] == "") == (otherwise[id] == "") {
				t.Errorf("%s (%s %s): method %q, other way %q", id, verb, path, called[id], otherwise[id])
			}
			delete(otherwise, id)
		}
	}
	if len(otherwise) > 0 {
		t.Errorf("no operations: %v", otherwise)
	}
}
