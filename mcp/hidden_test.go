package mcp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner"
	"demesne/session"
)

// TestHidden checks that callers who may not learn paths of the host get URIs, can use them, and cannot find out which
// files the host has.
func TestHidden(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root = filepath.Join(root, "o&ut")
	if err := os.MkdirAll(root+"/run/d", 0o700); err != nil {
		t.Fatal(err)
	}
	d := &desk{result: &session.RunResult{Job: "run", OutputDir: root + "/run", Manifest: root + "/.manifests/run", Result: &runner.Result{Reason: runner.Exited, Receipt: &runner.Receipt{}},
		Stdout: session.Tail{Text: root, Bytes: 9}}}
	s, _ := serverFor(t, d, func(o *Options) {
		o.Hidden, o.Outputs, o.Mine = true, root, func(name string) bool { return name == "run" }
		o.Mounts = o.Mounts.Outputs(root, o.Mine)
	})
	cs := client(t, s, nil)
	call := func(args map[string]any) (*sdk.CallToolResult, string) {
		r, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "sandbox_script", Arguments: args})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(r)
		if all := string(b); strings.Contains(all, root) || strings.Contains(all, "o&ut") || strings.Contains(all, `o\u0026ut`) {
			t.Errorf("%v: %s", args, all)
		}
		return r, string(b)
	}
	r, all := call(map[string]any{"command": "x", "directories": []string{outputScheme + "run/d"}})
	if got := r.StructuredContent.(map[string]any)["output_dir"]; r.IsError || got != outputScheme+"run" {
		t.Errorf("%v %s", got, all)
	}
	var said []string
	for _, path := range []string{"/etc/passwd", "/etc/no-such-file", root + "/other", root + "/none", outputScheme + "other", outputScheme + "../x"} {
		r, all := call(map[string]any{"command": "x", "files": []string{path}})
		if !r.IsError {
			t.Errorf("%s is mounted: %s", path, all)
		}
		if text := r.Content[0].(*sdk.TextContent).Text; path[0] == '/' {
			said = append(said, strings.SplitN(text, " ", 4)[3])
		}
	}
	for _, text := range said[1:] {
		if text != said[0] {
			t.Errorf("%q differs from %q", text, said[0])
		}
	}
	tools, err := cs.ListTools(t.Context(), nil)
	if b, _ := json.Marshal(tools); err != nil || strings.Contains(string(b), "ut`.") && !strings.Contains(string(b), "demesne://outputs`") {
		t.Errorf("%v %s", err, b)
	}
}
