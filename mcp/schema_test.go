package mcp

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// fits fails the test if a result does not match its tool's output schema: the reference's, or the published one.
// Clients that validate would discard such a result.
func fits(t *testing.T, s *Server, name string, result any) {
	t.Helper()
	for _, l := range s.tools() {
		if l.name != name {
			continue
		}
		raw, _ := json.Marshal(result)
		var v any
		json.Unmarshal(raw, &v)
		for _, schema := range []map[string]any{l.out, published(l.out)} {
			if why := misfit(decoded(t, schema), v, "result"); why != "" {
				t.Errorf("%s: %s", name, why)
			}
		}
	}
}

// misfit returns how v violates a schema, or "". It checks only the keywords that this package
// uses.
func misfit(schema map[string]any, v any, at string) string {
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, v) {
		return fmt.Sprintf("%s is %v", at, v)
	}
	ok := true
	switch schema["type"] {
	case "object":
		return misfitObject(schema, v, at)
	case "array":
		list, isList := v.([]any)
		items, _ := schema["items"].(map[string]any)
		for i, v := range list {
			if why := misfit(items, v, fmt.Sprintf("%s[%d]", at, i)); why != "" {
				return why
			}
		}
		ok = isList
	case "string":
		_, ok = v.(string)
	case "boolean":
		_, ok = v.(bool)
	case "number":
		_, ok = v.(float64)
	case "integer":
		n, isNumber := v.(float64)
		ok = isNumber && n == float64(int64(n))
	}
	if !ok {
		return fmt.Sprintf("%s is %v, no %v", at, v, schema["type"])
	}
	return ""
}

func misfitObject(schema map[string]any, v any, at string) string {
	object, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprintf("%s is %v, no object", at, v)
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if object[name.(string)] == nil {
			return fmt.Sprintf("%s has no %v", at, name)
		}
	}
	fields, _ := schema["properties"].(map[string]any)
	for name, v := range object {
		field, known := fields[name].(map[string]any)
		if !known && schema["additionalProperties"] == false {
			return fmt.Sprintf("%s has a %s", at, name)
		}
		if why := misfit(field, v, at+"."+name); known && why != "" {
			return why
		}
	}
	return ""
}

// TestResultsFit checks that every tool's result matches its published schema, also the reply to
// background=true.
func TestResultsFit(t *testing.T) {
	s, _ := serverFor(t, &desk{})
	cs := client(t, s, nil)
	for _, c := range []struct{ tool, args string }{
		{"sandbox_script", `{"command":"x"}`}, {"sandbox_script", `{"command":"x","background":true}`},
		{"sandbox_create", `{}`}, {"sandbox_exec", `{"sandbox_id":"s","command":"x"}`},
	} {
		_, structured, _ := callTool(t, cs, c.tool, c.args)
		fits(t, s, c.tool, structured)
	}
	for _, v := range []any{3.0, map[string]any{}, map[string]any{"job_id": 7.0}, map[string]any{"job_id": "j", "more": 1.0}, map[string]any{"job_id": "j", "denied": []any{1.0}}} {
		if misfit(s.script().schema(t), v, "result") == "" {
			t.Errorf("%v fits", v)
		}
	}
}

// schema returns a tool's output schema, decoded from JSON.
func (l tool) schema(t *testing.T) map[string]any { return decoded(t, l.out) }

func decoded(t *testing.T, from map[string]any) (schema map[string]any) {
	raw, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(raw, &schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	return schema
}
