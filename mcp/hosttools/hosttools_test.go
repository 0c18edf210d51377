package hosttools

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/internal/fsutil"
)

// TestMain makes this program an MCP server if it is started as one.
func TestMain(m *testing.M) {
	switch os.Getenv("HOSTTOOLS_TEST_SERVER") {
	case "":
		os.Exit(m.Run())
	case "dead":
		os.Exit(1)
	case "silent":
		os.WriteFile(os.Getenv("HEARD"), nil, 0o600)
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	serve()
}

func serve() {
	s := sdk.NewServer(&sdk.Implementation{Name: "real", Version: "1"}, nil)
	text := func(s string) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s}}}, nil, nil
	}
	type none struct{}
	sdk.AddTool(s, &sdk.Tool{Name: "look", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, req *sdk.CallToolRequest, _ none) (*sdk.CallToolResult, any, error) {
			req.Session.NotifyProgress(context.Background(), &sdk.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1, Message: "half"})
			for heard := os.Getenv("HEARD"); heard != "" && !fsutil.Exists(heard); { // progress that arrives with the result may be dropped
				time.Sleep(time.Millisecond)
			}
			return text("pid " + os.Getenv("MARK"))
		})
	type to struct {
		Path string `json:"path"`
	}
	sdk.AddTool(s, &sdk.Tool{Name: "draw"}, func(_ context.Context, _ *sdk.CallToolRequest, a to) (*sdk.CallToolResult, any, error) {
		if err := os.WriteFile(a.Path, []byte("drawing"), 0o600); err != nil {
			return nil, nil, err
		}
		return text("wrote " + a.Path + ".")
	})
	sdk.AddTool(s, &sdk.Tool{Name: "echo"}, func(_ context.Context, _ *sdk.CallToolRequest, a to) (*sdk.CallToolResult, any, error) {
		return text(a.Path)
	})
	s.AddResource(&sdk.Resource{URI: "file:///secret", Name: "secret"}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: "file:///secret", Text: "s"}}}, nil
	})
	if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil && !errors.Is(err, context.Canceled) {
		os.Exit(1)
	}
	os.Exit(0)
}

// real returns this program as a server of that kind.
func real(t *testing.T, name, kind string) Server {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Server{Name: name, Command: self, Env: append(os.Environ(), "HOSTTOOLS_TEST_SERVER="+kind, "MARK="+name)}
}

func connect(t *testing.T, s *Set, server string, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "inside", Version: "1"}, o).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: h.URL + Path(server)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	return cs
}

func call(cs *sdk.ClientSession, tool string, arguments map[string]any) (string, error) {
	r, err := cs.CallTool(context.Background(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return "", err
	}
	return r.Content[0].(*sdk.TextContent).Text, nil
}

func toolNames(t *testing.T, cs *sdk.ClientSession) (names []string) {
	t.Helper()
	for tool, err := range cs.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

// TestRules: what the list does not name is neither listed nor called.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		rule          Rule
		onlyNamed     bool
		list, refused []string
	}{
		{Rule{Tools: Tools{Default: true}}, false, []string{"look"}, []string{"echo", "draw", "nothing"}},
		{Rule{Tools: Tools{Default: true, Names: []string{"echo"}}}, true, []string{"echo"}, []string{"look", "draw"}},
		{Rule{Tools: Tools{Names: []string{"echo"}}}, false, []string{"echo"}, []string{"look", "draw"}},
		{Rule{Tools: Tools{Names: []string{"look"}}}, true, []string{"look"}, []string{"echo", "draw"}},
		{Rule{Tools: Tools{All: true}}, false, []string{"draw", "echo", "look"}, nil},
		{Rule{Tools: Tools{All: true}}, true, []string{"draw", "echo", "look"}, nil},
	} {
		s := Open([]Server{real(t, "a", "yes")}, Allowlist{"a": c.rule}, Options{OnlyNamed: c.onlyNamed})
		defer s.Close()
		cs := connect(t, s, "a", nil)
		for _, tool := range c.refused { // before the first list: calls do not depend on one
			if _, err := call(cs, tool, nil); err == nil || !strings.Contains(err.Error(), "not allowed") {
				t.Errorf("%+v: call of %s: %v", c.rule, tool, err)
			}
		}
		if got := toolNames(t, cs); !slices.Equal(got, c.list) {
			t.Errorf("%+v: tools %v", c.rule, got)
		}
		if _, err := cs.ListResources(t.Context(), nil); err == nil {
			t.Errorf("%+v: resources are listed", c.rule)
		}
		if _, err := cs.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "file:///secret"}); err == nil {
			t.Errorf("%+v: a resource can be read", c.rule)
		}
	}
}

func TestResourcesAllowed(t *testing.T) {
	s := Open([]Server{real(t, "a", "yes")}, Allowlist{"a": {Resources: true}}, Options{})
	defer s.Close()
	cs := connect(t, s, "a", nil)
	r, err := cs.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "file:///secret"})
	if err != nil || r.Contents[0].Text != "s" {
		t.Errorf("%v %v", r, err)
	}
	if got := toolNames(t, cs); len(got) != 0 {
		t.Errorf("tools %v", got)
	}
}

// TestOffered: a server that the list does not name, or allows nothing of, has no endpoint.
func TestOffered(t *testing.T) {
	s := Open([]Server{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Allowlist{"b": {Tools: Tools{Names: []string{}}}, "c": {Tools: Tools{All: true}}, "d": {Tools: Tools{All: true}}}, Options{})
	if !slices.Equal(s.Names(), []string{"c"}) {
		t.Error(s.Names())
	}
	s = Open([]Server{{Name: "a"}, {Name: "b"}}, Allowlist{"a": {Tools: Tools{Default: true}}, "b": {Tools: Tools{All: true}}}, Options{OnlyNamed: true})
	if !slices.Equal(s.Names(), []string{"b"}) {
		t.Error(s.Names())
	}
}

// TestStarts: a server starts with the first request, stops when idle, and starts again; a dead one fails alone.
func TestStarts(t *testing.T) {
	var warned []string
	s := Open([]Server{real(t, "a", "yes"), real(t, "b", "dead")}, Allowlist{"a": {Tools: Tools{All: true}}, "b": {Tools: Tools{All: true}}},
		Options{Idle: 50 * time.Millisecond, Warn: func(m string) { warned = append(warned, m) }})
	defer s.Close()
	running := func() bool {
		r := s.relays["a"]
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.session != nil
	}
	cs := connect(t, s, "a", nil)
	if running() {
		t.Error("the server runs before a request for it")
	}
	for range 2 {
		if text, err := call(cs, "look", nil); text != "pid a" {
			t.Errorf("%q %v", text, err)
		}
		for began := time.Now(); running(); time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatal("the idle server still runs")
			}
		}
	}
	dead := connect(t, s, "b", nil)
	if _, err := dead.ListTools(t.Context(), nil); err == nil || len(warned) == 0 || !strings.Contains(warned[0], `start server "b"`) {
		t.Errorf("a dead server: %v, warned %q", err, warned)
	}
}

// TestCloseDuringStart: a server that does not answer its start does not hold up the end of a sandbox.
func TestCloseDuringStart(t *testing.T) {
	server, heard := real(t, "a", "silent"), filepath.Join(t.TempDir(), "heard")
	server.Env = append(server.Env, "HEARD="+heard)
	s := Open([]Server{server}, Allowlist{"a": {Tools: Tools{All: true}}}, Options{})
	cs := connect(t, s, "a", nil)
	listed, closed := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := cs.ListTools(context.Background(), nil)
		listed <- err
	}()
	for !fsutil.Exists(heard) {
		time.Sleep(time.Millisecond)
	}
	go func() {
		s.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(startTime / 2):
		t.Fatal("the set waits for the server")
	}
	if err := <-listed; err == nil {
		t.Error("the server has tools")
	}
}

// TestProgressPasses: the server's progress and signs of life reach the client under its own token.
func TestProgressPasses(t *testing.T) {
	server, heard := real(t, "a", "yes"), filepath.Join(t.TempDir(), "heard")
	server.Env = append(server.Env, "HEARD="+heard)
	s := Open([]Server{server}, Allowlist{"a": {Tools: Tools{All: true}}}, Options{})
	defer s.Close()
	got := make(chan string, 16)
	cs := connect(t, s, "a", &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
		if req.Params.ProgressToken == "mine" {
			got <- req.Params.Message
			os.WriteFile(heard, nil, 0o600)
		}
	}})
	p := &sdk.CallToolParams{Name: "look"}
	p.SetProgressToken("mine")
	if _, err := cs.CallTool(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-got:
		if m != "half" {
			t.Errorf("%q", m)
		}
	case <-time.After(time.Minute):
		t.Error("no progress")
	}
}

// TestGenerated: a file that a tool made in an allowed directory is delivered, and nothing else.
func TestGenerated(t *testing.T) {
	dir, outside, work := t.TempDir(), t.TempDir(), t.TempDir()
	old := filepath.Join(dir, "old.png")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Chtimes(old, time.Time{}, time.Now().Add(-time.Hour))
	secret := filepath.Join(outside, "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.Symlink(secret, filepath.Join(dir, "link.png"))); err != nil {
		t.Fatal(err)
	}
	s := Open([]Server{real(t, "a", "yes")}, Allowlist{"a": {Tools: Tools{All: true}, Generated: []string{dir}}}, Options{Workspace: work})
	defer s.Close()
	cs := connect(t, s, "a", nil)
	for _, c := range []struct{ tool, path, want string }{
		{"draw", filepath.Join(dir, "new.png"), "wrote /workspace/generated/new.png."},
		{"echo", old, old},
		{"echo", filepath.Join(dir, "link.png"), filepath.Join(dir, "link.png")},
		{"echo", secret, secret},
		{"echo", dir + "/../" + filepath.Base(outside) + "/secret", dir + "/../" + filepath.Base(outside) + "/secret"},
	} {
		if text, err := call(cs, c.tool, map[string]any{"path": c.path}); text != c.want {
			t.Errorf("%s %s: %q %v", c.tool, c.path, text, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(work, "generated/new.png")); string(b) != "drawing" {
		t.Errorf("%q %v", b, err)
	}
	if entries, _ := os.ReadDir(filepath.Join(work, "generated")); len(entries) != 1 {
		t.Errorf("%v", entries)
	}
	// The sandbox writes to its workspace: a link there leads nowhere.
	os.RemoveAll(filepath.Join(work, "generated"))
	if err := os.Symlink(outside, filepath.Join(work, "generated")); err != nil {
		t.Fatal(err)
	}
	call(cs, "draw", map[string]any{"path": filepath.Join(dir, "b.png")})
	if _, err := os.Lstat(filepath.Join(outside, "b.png")); err == nil {
		t.Error("a file was delivered through a link")
	}
}

func TestAllowlistFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x", "list.json")
	list, err := ReadAllowlist(path)
	if err != nil || !list["anki"].Tools.Default || len(list) != len(seed) {
		t.Errorf("the first list: %v %v", list, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	for _, c := range []struct{ text, want string }{
		{`{"_note": 7, "a": "*", "b": ["x"], "c": [], "d": {"tools": "default", "prompts": true}}`, ""},
		{`{"a": "some"}`, `server "a": "some" is neither`},
		{`{"a": 7}`, `server "a"`},
		{`[]`, "read allowlist"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := ReadAllowlist(path)
		if c.want == "" && (err != nil || !list["a"].Tools.All || list["b"].Tools.Names[0] != "x" || !list["c"].none() || !list["d"].Prompts || len(list) != 4) {
			t.Errorf("%v %v", list, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	j, m := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.toml")
	os.WriteFile(j, []byte(`{"other": 1, "mcpServers": {"a": {"command": "x", "args": ["1"], "env": {"K": "v"}}, "web": {"type": "http", "url": "http://h.test"}, "Bad": {"command": "x"}, "demesne": {"command": "demesne"}, "both": {"command": "json"}}}`), 0o600)
	os.WriteFile(m, []byte("[mcp_servers.both]\ncommand = \"toml\"\nenv_vars = [\"HOSTTOOLS_TEST\"]\n[mcp_servers.off]\ncommand = \"x\"\nenabled = false\n"), 0o600)
	t.Setenv("HOSTTOOLS_TEST", "passed")
	t.Setenv("HOSTTOOLS_OTHER", "not passed")
	servers, warnings := Read(Config{j, JSON}, Config{m, TOML}, Config{filepath.Join(dir, "missing"), JSON})
	if len(servers) != 2 || servers[0].Name != "a" || servers[1].Command != "toml" || len(warnings) != 1 || !strings.Contains(warnings[0], `"Bad"`) {
		t.Fatalf("%+v %q", servers, warnings)
	}
	if !slices.Contains(servers[0].Env, "K=v") || !slices.Contains(servers[0].Env, "HOSTTOOLS_OTHER=not passed") {
		t.Errorf("the environment of a server in JSON: %q", servers[0].Env)
	}
	if !slices.Contains(servers[1].Env, "HOSTTOOLS_TEST=passed") || slices.Contains(servers[1].Env, "HOSTTOOLS_OTHER=not passed") {
		t.Errorf("the environment of a server in TOML: %q", servers[1].Env)
	}
	os.WriteFile(j, []byte("{"), 0o600)
	if _, warnings := Read(Config{j, JSON}); len(warnings) != 1 {
		t.Errorf("%q", warnings)
	}
}
