package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"demesne/internal/need"
	"demesne/session"
)

// TestTranslate checks the arguments of tools.
func TestTranslate(t *testing.T) {
	for _, c := range []struct {
		tool string
		args map[string]any
		want string
	}{
		{"browser_click", map[string]any{"selector": "e3", "double": true, "other": 1.0}, "browser_click map[doubleClick:true target:e3]"},
		{"browser_screenshot", nil, "browser_take_screenshot map[]"},
		{"browser_scroll", map[string]any{"y": 7.0}, "browser_mouse_wheel map[deltaX:0 deltaY:7]"},
		{"browser_get_html", map[string]any{"selector": nil}, "browser_evaluate map[function:(e) => e.outerHTML target:html]"},
		{"browser_select", map[string]any{"selector": "#a", "values": []any{"x"}}, "browser_select_option map[target:#a values:[x]]"},
		{"browser_navigate", map[string]any{"url": "localhost:8000/a:b"}, "browser_navigate map[url:localhost:8000/a:b]"},
		{"browser_navigate", map[string]any{"url": "host/a:b"}, "browser_navigate map[url:host/a:b]"},
		{"browser_navigate", map[string]any{"url": "FILE:///in/a"}, "browser_navigate map[url:FILE:///in/a]"},
		{"browser_navigate", map[string]any{"url": " Chrome://settings"}, `url: "chrome" is not one of`},
		{"browser_navigate", map[string]any{"url": "chr\tome://settings"}, `url: "chr`},
		{"browser_tabs", map[string]any{"action": "new", "url": "javascript:1"}, `url: "javascript" is not one of`},
		{"browser_navigate", map[string]any{"url": "view-source:http://a"}, `url: "view-source" is not one of`},
		{"browser_navigate", map[string]any{"url": 1.0}, `argument "url" is not a string`},
		{"browser_select", map[string]any{"selector": "#a", "values": []any{1.0}}, `argument "values" is not a array`},
		{"browser_wait", map[string]any{"text": "a"}, "browser_wait_for map[text:a]"},
		{"browser_wait", map[string]any{"selector": `#a"</`}, "browser_evaluate map[function:async () => {\n  for (const end = Date.now() + 30000; !document.querySelector(\"#a\\\"\\u003c/\");"},
		{"browser_click", nil, `required argument "selector" not found`},
		{"browser_run_code_unsafe", nil, `no tool "browser_run_code_unsafe"`},
	} {
		name, values, err := translate(c.tool, c.args)
		got := fmt.Sprint(name, " ", values)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s %v: %s", c.tool, c.args, got)
		}
	}
}

// desk has browsers whose program is a stand-in, and a service for their sandboxes.
type desk struct {
	*testing.T
	Browsers
	service *session.Service
	script  string
}

func newDesk(t *testing.T) *desk {
	need.That(t, os.Getenv("DEMESNE_BIN") != "", "DEMESNE_BIN, the directory of the programs")
	need.Program(t, "python3")
	dir, err := os.MkdirTemp("/var/tmp", "browser.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	for name, value := range map[string]string{
		"DEMESNE_LIBEXEC": os.Getenv("DEMESNE_BIN"), "HOME": dir, "XDG_RUNTIME_DIR": dir + "/run", "DEMESNE_SANDBOX_ROOT": dir + "/kept",
		"DEMESNE_OUTPUT_ROOT": dir + "/out", "DEMESNE_LINGER": "0",
	} {
		t.Setenv(name, value)
	}
	if err := os.Mkdir(dir+"/run", 0o700); err != nil {
		t.Fatal(err)
	}
	d := &desk{T: t, service: session.New(session.Options{}), script: filepath.Join(dir, "standin.py")}
	t.Cleanup(d.service.Close)
	text, err := os.ReadFile("testdata/standin.py")
	if err == nil {
		err = os.WriteFile(d.script, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.program = "exec python3 /in/standin.py"
	return d
}

// sandbox makes a sandbox that ends with the test.
func (d *desk) sandbox() *session.Sandbox {
	var c session.CreateOptions
	inputs, err := session.ParseInputs([]string{d.script}, nil)
	if err != nil {
		d.Fatal(err)
	}
	c.Spec.Inputs = inputs
	sb, err := d.service.Create(context.Background(), c, session.Callbacks{})
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { d.service.Remove(context.Background(), sb.ID) })
	return sb
}

// open opens an address, whose last word says what the stand-in does.
func (d *desk) open(sb *session.Sandbox, word string) (*Result, error) {
	return d.Call(context.Background(), sb, "browser_navigate", map[string]any{"url": "http://x/" + word})
}

// number returns the number of the process that answered.
var number = regexp.MustCompile(`\d+$`)

// TestHostileBrowser checks that nothing which a sandbox answers gets past the bounds, and that the next call works.
func TestHostileBrowser(t *testing.T) {
	d := newDesk(t)
	d.most = 20 * time.Second
	sb := d.sandbox()
	first, err := d.open(sb, "plain")
	if err != nil || !first.Started || first.Failed || first.Sandbox != sb.ID || first.Out != sb.Out || !strings.HasPrefix(first.Text, `browser_navigate {"url": "http://x/plain"} `) {
		t.Fatalf("%+v, %v", first, err)
	}
	if r, err := d.open(sb, "bad"); err != nil || !r.Failed || r.Started || number.FindString(r.Text) != number.FindString(first.Text) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := d.open(sb, "huge"); err != nil {
		t.Error(err)
	} else if len(r.Text) > maxText+100 || !strings.HasSuffix(r.Text, "\n[the rest is left out]") {
		t.Errorf("%d bytes: %.200q", len(r.Text), r.Text)
	}
	if r, err := d.open(sb, "pictures"); err != nil || len(r.Pictures) != maxPictures || strings.Count(r.Text, "left out]") != 4 {
		t.Errorf("%d pictures, %q, %v", len(r.Pictures), r.Text, err)
	}
	if r, err := d.open(sb, "kinds"); err != nil || len(r.Pictures) != 0 || r.Text != "faint \uFFFD" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := d.open(sb, "asks"); err != nil || r.Text != `refused refused {"jsonrpc": "2.0", "id": "own", "result": {"roots": []}} refused` {
		t.Errorf("%+v, %v", r, err)
	}
	for word, want := range map[string]string{"endless": errDied.Error(), "garbage": errDied.Error(), "dies": "exited: ?[31mno more memory"} {
		if r, err := d.open(sb, word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", word, r, err)
		}
		if r, err := d.open(sb, "plain"); err != nil || !r.Started {
			t.Errorf("after %s: %+v, %v", word, r, err)
		}
	}
	d.most = time.Second
	if r, err := d.open(sb, "silent"); !errors.Is(err, errSlow) {
		t.Errorf("%+v, %v", r, err)
	}
	d.most = 0
	if r, err := d.Call(context.Background(), sb, "browser_close", nil); err != nil || r.Text != "closed" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := d.open(sb, "plain"); err != nil || !r.Started {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestTake checks that a call's browser is kept for the calls that wait for it, also before its server has started, and not after them.
func TestTake(t *testing.T) {
	var b Browsers
	first := b.take("a")
	b.leave(b.take("b"))
	if again := b.take("a"); again != first || len(b.live) != 1 {
		t.Errorf("%p and %p, of %d", first, again, len(b.live))
	}
	b.leave(first)
	b.leave(first)
	if b.take("b"); len(b.live) != 1 {
		t.Errorf("%d are kept", len(b.live))
	}
}

// TestBrowsers checks that each sandbox has a browser of its own, that calls take turns, and that a caller who leaves does not end
// the browser.
func TestBrowsers(t *testing.T) {
	d := newDesk(t)
	var all [4]*session.Sandbox
	for i := range all {
		all[i] = d.sandbox()
	}
	var work sync.WaitGroup
	started := make(chan string, 100)
	for i := range 20 {
		work.Go(func() {
			if r, err := d.open(all[i%len(all)], "plain"); err != nil {
				t.Error(err)
			} else if r.Started {
				started <- r.Sandbox
			}
		})
	}
	work.Wait()
	if len(started) != len(all) {
		t.Errorf("%d browsers for %d sandboxes", len(started), len(all))
	}
	ctx, leave := context.WithCancelCause(context.Background())
	left := errors.New("left")
	leave(left)
	if r, err := d.Call(ctx, all[0], "browser_back", nil); !errors.Is(err, left) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := d.open(all[0], "plain"); err != nil || r.Started {
		t.Errorf("%+v, %v", r, err)
	}
	if err := d.service.Remove(context.Background(), all[1].ID); err != nil {
		t.Error(err)
	}
	if r, err := d.open(all[1], "plain"); err == nil {
		t.Errorf("a browser in a removed sandbox: %+v", r)
	}
	d.program = "exec no-such-program"
	if r, err := d.open(d.sandbox(), "plain"); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("%+v, %v", r, err)
	}
}
