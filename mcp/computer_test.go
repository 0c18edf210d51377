package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner"
	"demesne/session"
)

// desktopDesk is a desk whose sandboxes write shown.
type desktopDesk struct {
	*desk
	shown string
	ids   []string
	keys  []string
	fail  error
}

func (d *desktopDesk) Create(ctx context.Context, r session.Request, w session.Callbacks) (*session.Created, error) {
	made, err := d.desk.Create(ctx, r, w)
	made.Existing = slices.Contains(d.keys, r.Create.Spec.Key)
	d.keys = append(d.keys, r.Create.Spec.Key)
	return made, err
}

func (d *desktopDesk) Exec(_ context.Context, id string, r session.Request, _ session.Callbacks) (*session.RunResult, error) {
	d.asked, d.ids = append(d.asked, r), append(d.ids, id)
	r.Run.Stdout.Write([]byte(d.shown))
	return &session.RunResult{Result: &runner.Result{Reason: runner.Exited}}, d.fail
}

const anyPicture = "\x89PNG\r\n\x1a\n…"

// TestComputerWords checks what each action gives xdotool, and which arguments are refused. A text is one argument, whatever
// it has.
func TestComputerWords(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"action":"screenshot"}`:                                                                          "0",
		`{"action":"left_click","coordinate":[10,"20"]}`:                                                   "!coordinate must have two numbers",
		`{"action":"left_click","coordinate":[10,20]}`:                                                     "1|mousemove|10|20|click|--repeat|1|--delay|50|1",
		`{"action":"right_click","coordinate":"[1, 2]"}`:                                                   "1|mousemove|1|2|click|--repeat|1|--delay|50|3",
		`{"action":"middle_click"}`:                                                                        "1|click|--repeat|1|--delay|50|2",
		`{"action":"double_click","text":"ctrl"}`:                                                          "1|keydown|ctrl|click|--repeat|2|--delay|50|1|keyup|ctrl",
		`{"action":"triple_click","text":"-x"}`:                                                            `!text "-x" is not a key to hold`,
		`{"action":"left_click_drag","start_coordinate":[1,2],"coordinate":[3,4]}`:                         "1|mousemove|1|2|mousedown|1|sleep|0.1|mousemove|3|4|sleep|0.1|mousemove_relative|1|1|mousemove|3|4|sleep|0.1|mouseup|1",
		`{"action":"left_click_drag","start_coordinate":[1,2]}`:                                            "!coordinate must be [x, y]",
		`{"action":"mouse_move","coordinate":[-1,4]}`:                                                      "!from 0 to 32767",
		`{"action":"mouse_move","coordinate":[5,4]}`:                                                       "1|mousemove|5|4",
		`{"action":"left_mouse_down"}`:                                                                     "1|mousedown|1",
		`{"action":"left_mouse_up"}`:                                                                       "1|mouseup|1",
		`{"action":"key","text":"ctrl+s Return"}`:                                                          "1|key|ctrl+s|key|Return",
		`{"action":"key","text":"a; rm"}`:                                                                  `!text "a;" is not a key`,
		`{"action":"key"}`:                                                                                 "!names of 1 to 100 keys",
		`{"action":"type","text":"--help $(x) 'y'\nz"}`:                                                    "1|type|--delay|12|--|--help $(x) 'y'\nz",
		`{"action":"type","text":"a\u0000b"}`:                                                              "!NUL byte",
		`{"action":"type","text":"` + strings.Repeat("x", maxTyped+1) + `"}`:                               "!text must have 1 to 4000 bytes",
		`{"action":"hold_key","text":"shift","duration":0.5}`:                                              "1|keydown|shift|sleep|0.5|keyup|shift",
		`{"action":"hold_key","duration":1}`:                                                               "!text must be a key",
		`{"action":"scroll","scroll_direction":"down","scroll_amount":5,"coordinate":[1,2],"text":"ctrl"}`: "1|mousemove|1|2|keydown|ctrl|click|--repeat|5|--delay|20|5|keyup|ctrl",
		`{"action":"scroll","scroll_direction":"in"}`:                                                      "!scroll_direction must be",
		`{"action":"scroll","scroll_direction":"up","scroll_amount":1000}`:                                 "!scroll_amount must be a number from 1 to 100",
		`{"action":"wait","duration":61}`:                                                                  "!duration must be a number from 0 to 60",
		`{"action":"wait","duration":2}`:                                                                   "0|sleep|2",
		`{"action":"zoom"}`:                                                                                "!no such action",
		`{}`:                                                                                               `!required argument "action"`,
	} {
		d := &desktopDesk{desk: &desk{}, shown: anyPicture}
		text, r := computerCall(t, d, arguments)
		if refused, ok := strings.CutPrefix(want, "!"); ok {
			if !r.IsError || !strings.Contains(text, refused) || d.asked != nil {
				t.Errorf("%s: %q, %d requests", arguments, text, len(d.asked))
			}
			continue
		}
		if r.IsError || len(d.asked) != 2 {
			t.Errorf("%s: %q, %d requests", arguments, text, len(d.asked))
			continue
		}
		if argv := d.asked[1].Run.Command.Argv; argv[2] != actScript || strings.Join(argv[4:], "|") != want {
			t.Errorf("%s: %q", arguments, argv)
		}
	}
}

func computerServer(t *testing.T, d *desktopDesk) *Server {
	t.Helper()
	like, _ := serverFor(t, d.desk, func(o *Options) {
		o.Sets, o.Images = []string{setComputer}, append(o.Images, desktopImage)
	})
	return New(d, like.opts)
}

func computerCall(t *testing.T, d *desktopDesk, calls ...string) (text string, r *sdk.CallToolResult) {
	t.Helper()
	cs := client(t, computerServer(t, d), nil)
	for _, arguments := range calls {
		var err error
		if r, err = cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "computer", Arguments: json.RawMessage(arguments)}); err != nil {
			t.Fatal(err)
		}
		text = ""
		for _, c := range r.Content {
			if c, ok := c.(*sdk.TextContent); ok {
				text += c.Text
			}
		}
	}
	return text, r
}

// TestComputerSandbox checks which sandbox a call uses: one with a key, which is made without a network and for an hour, or
// the one that the call names. An answer is a picture.
func TestComputerSandbox(t *testing.T) {
	const look = `{"action":"screenshot"}`
	d := &desktopDesk{desk: &desk{}, shown: anyPicture}
	text, r := computerCall(t, d, look, look, `{"action":"screenshot","sandbox_id":"mine"}`, look)
	made := d.asked[0].Create
	if time.Duration(made.Spec.TTL) != desktopTime || made.Egress.Mode != "none" || made.Image.Given != desktopImage || text != "" {
		t.Errorf("made %+v, %q", made, text)
	}
	if !slices.Equal(d.ids, []string{"s1", "s1", "mine", "s1"}) || len(d.asked) != 7 {
		t.Errorf("sandboxes %q, %d requests", d.ids, len(d.asked))
	}
	if p, ok := r.Content[0].(*sdk.ImageContent); !ok || string(p.Data) != anyPicture || p.MIMEType != "image/png" {
		t.Errorf("%+v", r.Content[0])
	}
	d = &desktopDesk{desk: &desk{}, shown: anyPicture, fail: errors.New("it has ended")}
	if text, _ := computerCall(t, d, look); text != "it has ended" {
		t.Errorf("%q", text)
	}
	d = &desktopDesk{desk: &desk{}, shown: "<svg>"}
	if text, r := computerCall(t, d, look); !r.IsError || !strings.Contains(text, "sent no screenshot") {
		t.Errorf("%q", text)
	}
	d.shown, d.keys = "x:7 y:80 screen:0 window:1\n", nil
	if text, _ := computerCall(t, d, `{"action":"cursor_position"}`); !strings.HasPrefix(text, "X=7,Y=80\nsandbox_id: s1\n") {
		t.Errorf("%q", text)
	}
	d.shown = anyPicture + strings.Repeat("x", maxMedia)
	if text, r := computerCall(t, d, look); !r.IsError || !strings.Contains(text, "sent no screenshot") {
		t.Errorf("%.80q", text)
	}
}

// TestComputerConnections checks that connections over HTTP have desktops of their own.
func TestComputerConnections(t *testing.T) {
	d := &desktopDesk{desk: &desk{}, shown: anyPicture}
	web := httptest.NewServer(computerServer(t, d).Handler(HTTPOptions{}))
	defer web.Close()
	one, two := connection(t, web.URL), connection(t, web.URL)
	defer two.Close()
	defer one.Close()
	for _, cs := range []*sdk.ClientSession{one, two, one} {
		if r, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "computer", Arguments: json.RawMessage(`{"action":"screenshot"}`)}); err != nil || r.IsError {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if len(d.keys) != 3 || d.keys[0] == d.keys[1] || d.keys[0] != d.keys[2] {
		t.Errorf("keys of desktops: %q", d.keys)
	}
}
