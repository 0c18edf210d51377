package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"demesne/internal/lazy"
	"demesne/runner"
	"demesne/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The tool set "computer" operates a desktop in a sandbox. Its actions and arguments have the names that models are trained
// on. The words of an action go to xdotool as arguments, never as text for a shell.

const (
	desktopImage = "desktop" // of the sandbox that the tool makes
	desktopTime  = time.Hour // without use, until it is removed
)

// Bounds of the arguments.
const (
	maxPlace  = 1<<15 - 1 // of X11
	maxTyped  = 4000      // bytes
	maxKeys   = 100
	maxScroll = 100
	maxPause  = 60  // seconds
	maxAction = 180 // seconds: the longest text, and the start of the screen
)

// Programs of the sandbox. desktop returns at once if the screen is there. The first argument is the time in which windows
// react. scrot opens its stdout again, which needs a pipe of the sandbox.
const (
	actScript   = `settle=$1; shift; desktop && { [ $# = 0 ] || xdotool "$@" >&2; } && sleep "$settle" && scrot --pointer --silent - | cat`
	whereScript = `desktop && exec xdotool getmouselocation`
)

// settleTime is the time from an action to its picture, in seconds.
const settleTime = "1"

// keyForm matches keys that are pressed together, by their X11 names.
var keyForm = lazy.Regexp{Expr: `^[A-Za-z0-9_]+(\+[A-Za-z0-9_]+)*$`}

// mouseForm finds the pointer in the answer of xdotool.
var mouseForm = lazy.Regexp{Expr: `^x:(\d{1,5}) y:(\d{1,5}) `}

// A deed is an action of the tool, with the words of xdotool for it.
type deed struct {
	name  string
	words func(args) ([]string, error)
}

// deeds returns all actions.
func deeds() []deed {
	none := func(args) ([]string, error) { return nil, nil }
	button := func(words ...string) func(args) ([]string, error) {
		return func(args) ([]string, error) { return words, nil }
	}
	return []deed{
		{"screenshot", none}, {"left_click", click("1", "1")}, {"right_click", click("3", "1")}, {"middle_click", click("2", "1")},
		{"double_click", click("1", "2")}, {"triple_click", click("1", "3")}, {"left_click_drag", args.drag}, {"mouse_move", args.move},
		{"left_mouse_down", button("mousedown", "1")}, {"left_mouse_up", button("mouseup", "1")},
		{"key", args.press}, {"type", args.typed}, {"hold_key", args.hold}, {"scroll", args.scroll}, {"wait", args.pause}, {"cursor_position", none},
	}
}

func computerTool() tool {
	var names []string
	for _, a := range deeds() {
		names = append(names, a.name)
	}
	place := field("coordinate", "array", "[x, y] in pixels of the screenshot, from its upper left.").with("items", map[string]any{"type": "integer"})
	return tool{
		name: "computer",
		description: "Use the mouse, keyboard and screen of a desktop in a sandbox. Each action answers with a screenshot, by default of 1024 x 768 pixels. " +
			"Xfce, Chromium and a terminal are there; sandbox_exec starts other programs.",
		more: "The first call without a sandbox_id makes a sandbox without a network. A sandbox of sandbox_create with image desktop can have one.",
		in: arguments(field("action", "string", "").with("enum", names).must(), place,
			place.plain().renamed("start_coordinate").described("Where left_click_drag begins."),
			field("text", "string", "To type; for key and hold_key X11 names such as Return or ctrl+s; for clicks and scroll a key that is held.").also(fmt.Sprintf("At most %d bytes.", maxTyped)),
			field("scroll_direction", "string", "").with("enum", []string{"up", "down", "left", "right"}),
			field("scroll_amount", "integer", "Clicks of the wheel.").also(fmt.Sprintf("At most %d.", maxScroll)),
			field("duration", "number", "Seconds, of wait and hold_key.").also(fmt.Sprintf("At most %d.", maxPause)),
			field("sandbox_id", "string", "Of sandbox_create, with image desktop. Without it a desktop of this connection.").also("It is removed an hour after its last use.")),
		hints:  hints{destructive: true, openWorld: true},
		handle: (*call).computer,
	}
}

// renamed returns a copy of p with another name.
func (p property) renamed(name string) property { p.name = name; return p }

func (c *call) computer() (*sdk.CallToolResult, error) {
	action, err := c.args.required("action")
	if err != nil {
		return nil, err
	}
	all := deeds()
	i := slices.IndexFunc(all, func(d deed) bool { return d.name == action })
	if i < 0 {
		return nil, fmt.Errorf("action %s: no such action", clipped(action))
	}
	words, err := all[i].words(c.args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	id, note, err := c.desktop()
	if err != nil {
		return nil, err
	}
	if action == "cursor_position" {
		return c.cursor(id, note)
	}
	settle := settleTime
	if action == "screenshot" || action == "wait" {
		settle = "0"
	}
	out, said, err := c.onDesktop(id, append([]string{"/bin/sh", "-c", actScript, "sh", settle}, words...))
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(out, []byte("\x89PNG\r\n\x1a\n")) || len(out) > maxMedia {
		return nil, fmt.Errorf("%s: the sandbox sent no screenshot", action)
	}
	r := &sdk.CallToolResult{Content: []sdk.Content{&sdk.ImageContent{Data: out, MIMEType: "image/png"}}}
	if note = strings.TrimSpace(note + said); note != "" {
		r.Content = append(r.Content, &sdk.TextContent{Text: note})
	}
	return r, nil
}

func (c *call) cursor(id, note string) (*sdk.CallToolResult, error) {
	out, _, err := c.onDesktop(id, []string{"/bin/sh", "-c", whereScript})
	if err != nil {
		return nil, err
	}
	at := mouseForm.Get().FindSubmatch(out)
	if at == nil {
		return nil, errors.New("cursor_position: the sandbox did not say it")
	}
	return answer(strings.TrimSpace(fmt.Sprintf("X=%s,Y=%s\n%s", at[1], at[2], note)), nil), nil
}

// desktop returns the sandbox that a call names, or the one with the key of its connection, which it may have to make.
func (c *call) desktop() (id, note string, err error) {
	if id := c.args.text("sandbox_id"); id != "" {
		return id, "", nil
	}
	made := *c
	made.args = args{"key": "desktop of " + cmp.Or(c.owner(), strconv.Itoa(os.Getpid())), "image": desktopImage}
	r, err := made.sandboxRequest("none")
	if err != nil {
		return "", "", err
	}
	r.Create.Spec.TTL = runner.Duration(desktopTime)
	watch, stop := c.watch()
	defer stop()
	sb, err := c.engine.Create(c.ctx, r, watch)
	if err != nil {
		return "", "", err
	}
	if c.told = sb.Told; sb.Existing {
		return sb.ID, "", nil
	}
	return sb.ID, "sandbox_id: " + sb.ID + "\noutput_dir: " + sb.OutputDir + "\n", nil
}

// onDesktop executes a command in a sandbox, and returns what it wrote to stdout and to stderr. Calls for one sandbox take turns.
func (c *call) onDesktop(id string, argv []string) (out screen, said string, err error) {
	var r session.Request
	most := min(maxAction*time.Second, c.opts.Policy.Time(runner.Longest))
	r.Run.Command = runner.Command{Argv: argv, Timeout: most}
	r.Run.Stdout, r.Run.Queue = &out, true
	watch, stop := c.watch()
	defer stop()
	o, err := c.engine.Exec(c.ctx, id, r, watch)
	if err != nil {
		return nil, "", err
	}
	said, _ = endOf(o.Stderr, 1000, "")
	if o.ExitCode != 0 {
		err = fmt.Errorf("the action failed with exit code %d: %s", o.ExitCode, strings.TrimSpace(said))
	}
	if o.ExitCode == 127 {
		err = c.hinted(err, "sandbox_create with image "+desktopImage+" makes a sandbox with a desktop")
	}
	return out, said, err
}

// screen keeps what a screenshot may have, and one byte more.
type screen []byte

func (s *screen) Write(b []byte) (int, error) {
	*s = append(*s, b[:min(len(b), maxMedia+1-len(*s))]...)
	return len(b), nil
}

// place reads a coordinate.
func (a args) place(name string) ([]string, error) {
	v := a[name]
	if text, ok := v.(string); ok && json.Unmarshal([]byte(text), &v) != nil {
		v = nil
	}
	list, _ := v.([]any)
	if len(list) != 2 {
		return nil, fmt.Errorf("%s must be [x, y]", name)
	}
	words := []string{"mousemove"}
	for _, one := range list {
		n, ok := one.(float64)
		if !ok || !(n >= 0 && n <= maxPlace) {
			return nil, fmt.Errorf("%s must have two numbers from 0 to %d", name, maxPlace)
		}
		words = append(words, strconv.Itoa(int(math.Round(n))))
	}
	return words, nil
}

// maybe reads an optional coordinate.
func (a args) maybe(name string) ([]string, error) {
	if a[name] == nil {
		return nil, nil
	}
	return a.place(name)
}

// holding puts words between the press and the release of the key in text, if there is one.
func (a args) holding(words ...string) ([]string, error) {
	key := a.text("text")
	if key == "" {
		return words, nil
	}
	if !keyForm.Get().MatchString(key) {
		return nil, fmt.Errorf("text %s is not a key to hold", clipped(key))
	}
	return slices.Concat([]string{"keydown", key}, words, []string{"keyup", key}), nil
}

// within reads a number.
func (a args) within(name string, preset, least, most float64) (float64, error) {
	n, ok := a.numeric(name)
	if a[name] == nil {
		n = preset
	}
	if !ok || !(n >= least && n <= most) {
		return 0, fmt.Errorf("%s must be a number from %v to %v", name, least, most)
	}
	return n, nil
}

func click(button, times string) func(args) ([]string, error) {
	return func(a args) ([]string, error) {
		at, err := a.maybe("coordinate")
		if err != nil {
			return nil, err
		}
		words, err := a.holding("click", "--repeat", times, "--delay", "50", button)
		return append(at, words...), err
	}
}

func (a args) move() ([]string, error) { return a.place("coordinate") }

// drag moves twice at the end, and pauses: a window manager takes the first motion as the begin of a drag.
func (a args) drag() ([]string, error) {
	from, err := a.maybe("start_coordinate")
	if err != nil {
		return nil, err
	}
	to, err := a.place("coordinate")
	return slices.Concat(from, []string{"mousedown", "1", "sleep", "0.1"}, to, []string{"sleep", "0.1", "mousemove_relative", "1", "1"}, to, []string{"sleep", "0.1", "mouseup", "1"}), err
}

func (a args) press() (words []string, err error) {
	keys := strings.Fields(a.text("text"))
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, fmt.Errorf("text must have the names of 1 to %d keys", maxKeys)
	}
	for _, key := range keys {
		if !keyForm.Get().MatchString(key) {
			return nil, fmt.Errorf("text %s is not a key: use a name such as Return, slash or ctrl+s", clipped(key))
		}
		words = append(words, "key", key)
	}
	return words, nil
}

func (a args) typed() ([]string, error) {
	text := a.text("text")
	if text == "" || len(text) > maxTyped {
		return nil, fmt.Errorf("text must have 1 to %d bytes", maxTyped)
	}
	return []string{"type", "--delay", "12", "--", text}, checkArg("text", text)
}

func (a args) hold() ([]string, error) {
	d, err := a.within("duration", 1, 0, maxPause)
	if err == nil && a.text("text") == "" {
		err = errors.New("text must be a key to hold")
	}
	if err != nil {
		return nil, err
	}
	return a.holding("sleep", fmt.Sprint(d))
}

func (a args) scroll() ([]string, error) {
	button := map[string]string{"up": "4", "down": "5", "left": "6", "right": "7"}[a.text("scroll_direction")]
	if button == "" {
		return nil, errors.New("scroll_direction must be up, down, left or right")
	}
	n, err1 := a.within("scroll_amount", 3, 1, maxScroll)
	at, err2 := a.maybe("coordinate")
	words, err3 := a.holding("click", "--repeat", fmt.Sprint(int(n)), "--delay", "20", button)
	return append(at, words...), errors.Join(err1, err2, err3)
}

func (a args) pause() ([]string, error) {
	d, err := a.within("duration", 1, 0, maxPause)
	return []string{"sleep", fmt.Sprint(d)}, err
}
