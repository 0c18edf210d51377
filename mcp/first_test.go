package mcp

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestFirstShape compares the tools with testdata/first.json, the tools/list result of the
// original demesne. Each of its tools, parameters and fields must exist with the same type, and
// no more may be required.
func TestFirstShape(t *testing.T) {
	raw, err := os.ReadFile("testdata/first.json")
	if err != nil {
		t.Fatal(err)
	}
	var first []*sdk.Tool
	if err := json.Unmarshal(raw, &first); err != nil || len(first) != 9 {
		t.Fatalf("%d tools: %v", len(first), err)
	}
	s, _ := serverFor(t, &desk{}, withFiles)
	list, err := client(t, s, nil).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range first {
		i := slices.IndexFunc(list.Tools, func(l *sdk.Tool) bool { return l.Name == want.Name })
		if i < 0 {
			t.Errorf("%s is missing", want.Name)
			continue
		}
		got := list.Tools[i]
		if meaning(got.Annotations) != meaning(want.Annotations) {
			t.Errorf("%s: annotations mean %+v, meant %+v", got.Name, meaning(got.Annotations), meaning(want.Annotations))
		}
		sameShape(t, got.Name+" takes", got.InputSchema, want.InputSchema, nil)
		if want.OutputSchema == nil { // it answered only text, so every field is an addition
			continue
		}
		sameShape(t, got.Name+" answers", got.OutputSchema, want.OutputSchema, backgroundLacks[got.Name])
	}
}

// meaning returns what annotations say by the protocol's defaults. A tool that only reads destroys nothing, whatever it says.
func meaning(a *sdk.ToolAnnotations) hints {
	or := func(hint *bool) bool { return hint == nil || *hint }
	return hints{a.ReadOnlyHint, or(a.DestructiveHint) && !a.ReadOnlyHint, a.IdempotentHint, or(a.OpenWorldHint)}
}

// backgroundLacks lists fields that were required and are absent from the reply to
// background=true.
var backgroundLacks = map[string][]string{"sandbox_script": {"exit_code", "output_dir", "stdout", "stderr"}}

// sameShape compares objects. lacks lists fields that are no longer required.
func sameShape(t *testing.T, what string, got, want any, lacks []string) {
	t.Helper()
	if want == nil || got == nil {
		if got != want {
			t.Errorf("%s %v, was %v", what, got, want)
		}
		return
	}
	g, w := got.(map[string]any), want.(map[string]any)
	if g["additionalProperties"] != nil { // results have further fields, and further arguments are ignored
		t.Errorf("%s additionalProperties %v, was %v", what, g["additionalProperties"], w["additionalProperties"])
	}
	names := func(s map[string]any) (list []string) {
		required, _ := s["required"].([]any)
		for _, n := range required {
			if !slices.Contains(lacks, n.(string)) {
				list = append(list, n.(string))
			}
		}
		slices.Sort(list)
		return list
	}
	if !slices.Equal(names(g), names(w)) {
		t.Errorf("%s %v, and was required %v", what, names(g), names(w))
	}
	fields := g["properties"].(map[string]any)
	for name, field := range w["properties"].(map[string]any) {
		f, ok := fields[name].(map[string]any)
		if !ok || f["type"] != field.(map[string]any)["type"] {
			t.Errorf("%s %s: %v, was %v", what, name, f, field)
		}
	}
}
