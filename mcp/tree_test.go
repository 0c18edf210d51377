package mcp

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner/files"
	"demesne/server/hostcmd"
)

func withFiles(o *Options) { o.Sets = []string{"files"} }

// TestToolSets checks that the tools of an optional set are offered only if the set is selected.
func TestToolSets(t *testing.T) {
	for want, change := range map[int]func(*Options){
		13: func(*Options) {}, 19: withFiles, 16: func(o *Options) { o.Sets = []string{"sandboxes"} }, 60: func(o *Options) { o.Sets, o.Browse = ToolSets(), browses },
	} {
		s, _ := serverFor(t, &desk{}, change)
		list, err := client(t, s, nil).ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) != want {
			t.Errorf("%d tools, want %d: %v", len(list.Tools), want, err)
		}
	}
}

// TestNestedHost checks that no server for an agent in a sandbox has tools for the host, whatever sets are asked for.
func TestNestedHost(t *testing.T) {
	s, _ := serverFor(t, &desk{}, func(o *Options) { o.Nested, o.Sets, o.Host = true, ToolSets(), &hostcmd.Guard{} })
	list, err := client(t, s, nil).ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) == 0 {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if strings.Contains(tool.Name, "host") {
			t.Errorf("%s", tool.Name)
		}
	}
}

// TestFileTools checks that each tool returns the expected text, and its structured content
// matches the published schema.
func TestFileTools(t *testing.T) {
	d := &desk{}
	s, _ := serverFor(t, d, withFiles)
	cs := client(t, s, nil)
	entry := files.Entry{Path: "/out/a", Type: "link", Size: 3, Mode: "Lrwxrwxrwx", Target: "b"}
	for _, c := range []struct {
		tool, args string
		answer     files.Answer
		want       string
	}{
		{"sandbox_read", `{"path":"a","offset":"2"}`, files.Answer{Content: &files.Content{Text: "     2\tx\n", Size: 9, Next: 3, Cut: true}}, "     2\tx\n[truncated; continue with offset=3]\n"},
		{"sandbox_read", `{"path":"a"}`, files.Answer{Content: &files.Content{Binary: true, Size: 9}}, "[binary, 9 bytes; read it with encoding=base64]\n"},
		{"sandbox_read", `{"path":"a"}`, files.Answer{Content: &files.Content{}}, "[empty file]\n"},
		{"sandbox_read", `{"path":"a","encoding":"base64"}`, files.Answer{Content: &files.Content{Bytes: []byte("x\x00"), Size: 2}}, "eAA=\n"},
		{"sandbox_write", `{"path":"a","content":"x"}`, files.Answer{Written: &files.Written{Bytes: 1, Created: true}}, "wrote: a (1 bytes)"},
		{"sandbox_edit", `{"path":"a","old_string":"x","new_string":"y"}`, files.Answer{Edited: &files.Edited{Replaced: 1, Line: 7, Ignored: "indentation"}}, "edited: a (1 replaced, line 7)\nfound by ignoring indentation"},
		{"sandbox_ls", `{}`, files.Answer{Entries: &files.Entries{Entries: []files.Entry{entry}}}, "Lrwxrwxrwx          3 /out/a -> b\n"},
		{"sandbox_glob", `{"pattern":"*"}`, files.Answer{Entries: &files.Entries{Cut: true}}, "[truncated]\n"},
		{"sandbox_grep", `{"pattern":"x"}`, files.Answer{Matches: &files.Matches{Total: 1, Lines: []files.Line{{Path: "/a", Line: 1, Text: "w", Context: true}, {Path: "/a", Line: 2, Text: "x"}}}}, "/a-1-w\n/a:2:x\n"},
		{"sandbox_grep", `{"pattern":"x"}`, files.Answer{Matches: &files.Matches{Total: 2, Files: []files.Count{{Path: "/a", Count: 2}}}}, "/a:2\n"},
		{"sandbox_grep", `{"pattern":"x"}`, files.Answer{Matches: &files.Matches{}}, "no matches\n"},
	} {
		d.files = &c.answer
		var a args
		if err := json.Unmarshal([]byte(c.args), &a); err != nil {
			t.Fatal(err)
		}
		a["sandbox_id"] = "s"
		r, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: c.tool, Arguments: a})
		if err != nil {
			t.Errorf("%s %s: %v", c.tool, c.args, err)
			continue
		}
		if got := r.Content[0].(*sdk.TextContent).Text; got != c.want || r.IsError {
			t.Errorf("%s %s: %q, want %q", c.tool, c.args, got, c.want)
		}
		fits(t, s, c.tool, r.StructuredContent)
	}
}

func TestFileToolsRefused(t *testing.T) {
	d := &desk{files: &files.Answer{}}
	s, _ := serverFor(t, d, withFiles)
	cs := client(t, s, nil)
	for _, c := range []struct{ tool, args, want string }{
		{"sandbox_read", `{"path":"a"}`, `required argument "sandbox_id" not found`},
		{"sandbox_read", `{"sandbox_id":"s"}`, `path is required`},
		{"sandbox_write", `{"sandbox_id":"s","path":"a"}`, `required argument "content" not found`},
		{"sandbox_write", `{"sandbox_id":"s","path":"a","content":"!","encoding":"base64"}`, `content is not base64: illegal base64 data at input byte 0`},
		{"sandbox_edit", `{"sandbox_id":"s","path":"a","old_string":"x"}`, `required argument "new_string" not found`},
		{"sandbox_glob", `{"sandbox_id":"s"}`, `pattern is required`},
		{"sandbox_grep", `{"sandbox_id":"s","pattern":"x"}`, `the sandbox sent no reply`}, // an empty answer
	} {
		if text, _, isError := callTool(t, cs, c.tool, c.args); text != c.want || !isError {
			t.Errorf("%s %s: %q, want %q", c.tool, c.args, text, c.want)
		}
	}
	d.fail = errors.New("/a: permission denied")
	if text, _, isError := callTool(t, cs, "sandbox_read", `{"sandbox_id":"s","path":"/a"}`); text != "/a: permission denied" || !isError {
		t.Errorf("%q", text)
	}
}
