package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"demesne/client"
	"demesne/runner"
	"demesne/server/hostcmd"
)

func isNil(v any) bool { return reflect.ValueOf(v).IsNil() }

// document is where the OpenAPI document is checked in.
const document = "../../docs/reference/openapi.json"

// TestDocument compares the OpenAPI document of the handlers with the one that is checked in. UPDATE=1 replaces it.
func TestDocument(t *testing.T) {
	every := Options{Questions: func(func(runner.Question) (allow, answered bool)) {}, Jobs: struct{ Jobs }{}, Host: &hostcmd.Guard{},
		Browse: func(context.Context, string, string, map[string]any) (*client.BrowserResult, error) { return nil, nil },
		Queue:  func(context.Context) client.Queue { return client.Queue{} }, Version: "1"}
	now, err := New(every).Document()
	if err != nil {
		t.Fatal(err)
	}
	now = append(now, '\n')
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(document, now, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	then, err := os.ReadFile(document)
	if err != nil || !bytes.Equal(now, then) {
		t.Errorf("%v: %s is out of date: UPDATE=1 go test ./server/rest -run TestDocument", err, document)
	}
}

// TestDocumentServed checks that the server has the document and the page that shows it, which loads nothing from
// elsewhere.
func TestDocumentServed(t *testing.T) {
	r := newRig(t)
	r.steps([]step{
		{"GET /v1/openapi.json", "", 200, `"openapi": "3.1.0"`},
		{"GET /docs", "", 200, `<script src="/docs/docs.js" defer>`},
		{"GET /docs/docs.js", "", 200, `/v1/openapi.json`},
		{"GET /docs/docs.css", "", 200, `body`},
		{"GET /docs/fake_test.go", "", 404, `"code":404`},
	})
	for _, name := range []string{"index.html", "docs.js", "docs.css"} {
		b, err := assets.ReadFile("docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if at := regexp.MustCompile(`https?://|innerHTML|<script>|style=|onclick="`).Find(b); at != nil {
			t.Errorf("%s has %q", name, at)
		}
	}
}

// TestDocumentSchema checks the document by the JSON Schema that the OpenAPI initiative publishes for version 3.1
// (Apache-2.0, from its repository, in JSON).
func TestDocumentSchema(t *testing.T) {
	var schema jsonschema.Schema
	var value any
	for path, to := range map[string]any{"testdata/openapi-3.1.schema.json": &schema, document: &value} {
		b, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(b, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Validate(value); err != nil {
		t.Error(err)
	}
	value.(map[string]any)["openapi"] = "2.0"
	if r.Validate(value) == nil {
		t.Error("the schema accepts any document")
	}
}

// TestDocumentValid checks what tools expect of a document: references lead somewhere, ids of operations are unique, each
// parameter of a path is described, every answer has a schema and every operation a description and its errors. Requests and
// answers in JSON have an example, which their schema allows.
func TestDocumentValid(t *testing.T) {
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Paths      map[string]map[string]operationDoc
		Components struct{ Schemas, Responses map[string]any }
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`"\$ref": "([^"]*)"`).FindAllStringSubmatch(string(raw), -1) {
		kind, name, _ := strings.Cut(strings.TrimPrefix(m[1], "#/components/"), "/")
		all := map[string]map[string]any{"schemas": d.Components.Schemas, "responses": d.Components.Responses}[kind]
		if used[name] = true; all[name] == nil {
			t.Errorf("%s leads nowhere", m[1])
		}
	}
	ids, needed := map[string]string{}, map[string]bool{}
	for path, item := range d.Paths {
		for method, op := range item {
			at := method + " " + path
			if op.OperationID == "" || ids[op.OperationID] != "" || op.Summary == "" || len(op.Tags) != 1 {
				t.Errorf("%s: %q, as %q", at, op.OperationID, ids[op.OperationID])
			}
			ids[op.OperationID] = at
			if op.Description == "" || op.Responses["401"].Ref == "" || strings.Contains(path, "{") != (op.Responses["404"].Ref != "") {
				t.Errorf("%s: no description, or not its errors: %+v", at, op)
			}
			bodies := op.RequestBody.Content
			for code, r := range op.Responses {
				if bodies["application/json"].Schema == nil && code < "300" {
					bodies = r.Content
				}
				for _, c := range []contentDoc{bodies, r.Content} {
					if body, ok := c["application/json"].Schema.(map[string]any); ok {
						needed[strings.TrimPrefix(fmt.Sprint(body["$ref"]), "#/components/schemas/")] = true
					}
				}
			}
			for _, m := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(path, -1) {
				if !op.has(m[1]) {
					t.Errorf("%s: parameter %s is not described", at, m[1])
				}
			}
			for code, r := range op.Responses {
				for kind, c := range r.Content {
					if c.Schema == nil {
						t.Errorf("%s: %s %s has no schema", at, code, kind)
					}
				}
			}
		}
	}
	checkExamples(t, raw, needed)
	if len(ids) < 40 {
		t.Errorf("only %d operations", len(ids))
	}
}

type operationDoc struct {
	OperationID, Summary, Description string
	Tags                              []string
	Parameters                        []struct{ Name, In string }
	RequestBody                       struct{ Content contentDoc }
	Responses                         map[string]struct {
		Ref     string `json:"$ref"`
		Content contentDoc
	}
}

type contentDoc map[string]struct{ Schema any }

// checkExamples checks that each of the schemas has an example, and allows it.
func checkExamples(t *testing.T, document []byte, names map[string]bool) {
	t.Helper()
	var d struct {
		Components struct {
			Schemas map[string]*jsonschema.Schema
		}
	}
	if err := json.Unmarshal(bytes.ReplaceAll(document, []byte("#/components/schemas/"), []byte("#/$defs/")), &d); err != nil {
		t.Fatal(err)
	}
	for name := range names {
		one := d.Components.Schemas[name]
		if one == nil || len(one.Examples) == 0 {
			t.Errorf("%s has no example", name)
			continue
		}
		r, err := (&jsonschema.Schema{Ref: "#/$defs/" + name, Defs: d.Components.Schemas}).Resolve(nil)
		if err == nil {
			err = r.Validate(one.Examples[0])
		}
		if err != nil {
			t.Errorf("the example of %s: %v", name, err)
		}
	}
}

func (o operationDoc) has(parameter string) bool {
	for _, p := range o.Parameters {
		if p.Name == parameter && p.In == "path" {
			return true
		}
	}
	return false
}
