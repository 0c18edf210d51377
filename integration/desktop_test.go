package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// standIn is a program desktop with a red screen of 64 × 48 pixels, which notes what it is sent.
const standIn = `#!/usr/bin/python3
import os, struct, sys, tty
if sys.argv[1:] != ["vnc"]: sys.exit(0)
tty.setraw(0)
def read(n):
    b = b""
    while len(b) < n:
        b += os.read(0, n - len(b)) or sys.exit(0)
    return b
def write(b): os.write(1, b)
log = open("/tmp/sent", "a", buffering=1)
write(b"RFB 003.008\n"); read(12)
write(b"\1\1"); read(1)
write(bytes(4)); read(1)
size = (64, 48) if not os.path.exists("/tmp/huge") else (65535, 65535)
write(struct.pack(">HH", *size) + struct.pack(">BBBBHHHBBBxxx", 32, 24, 0, 1, 255, 255, 255, 16, 8, 0) + struct.pack(">I", 3) + b"<b>")
shift, sent = (16, 8, 0), False
while True:
    kind = read(1)[0]
    if kind == 0:
        shift = struct.unpack(">3xBBBBHHHBBB3x", read(19))[7:]
    elif kind == 2:
        read(1); read(4 * struct.unpack(">H", read(2))[0])
    elif kind == 3:
        x, y, w, h = struct.unpack(">xHHHH", read(9))
        if not sent:
            write(struct.pack(">BBHHHHHi", 0, 0, 1, 0, 0, 64, 48, 0) + struct.pack("<I", 255 << shift[0]) * (64 * 48)); sent = True
    elif kind == 4:
        down, key = struct.unpack(">BxxI", read(7)); log.write(f"key {chr(key)} {down}\n")
    elif kind == 5:
        buttons, x, y = struct.unpack(">BHH", read(5)); log.write(f"mouse {buttons} {x} {y}\n")
    elif kind == 6:
        read(3); read(struct.unpack(">I", read(4))[0])
    else:
        log.write(f"message {kind}\n"); sys.exit(1)
`

// screenOf opens the tab with the screen of a sandbox, and waits until it is connected.
func (p *pageBrowser) screenOf(id string) {
	p.t.Helper()
	p.show("#/sandbox/"+id+"/screen", "Connected")
}

// clickScreen clicks on the middle of the screen.
func (p *pageBrowser) clickScreen() {
	p.t.Helper()
	var at struct{ X, Y float64 }
	p.check(p.Eval(`(r => ({x: r.x + r.width / 2, y: r.y + r.height / 2}))(document.querySelector(".screen iframe").getBoundingClientRect())`, &at))
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		p.check(p.Call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil))
	}
}

// TestPageScreen looks at a screen in the page, clicks and types, with a stand-in for the programs of the image desktop. A
// screen that is too large, and a sandbox without a desktop, are refused with words.
func TestPageScreen(t *testing.T) {
	b := newGallery(t)
	b.file("standin/desktop", standIn, 0o755)
	p := b.browse(b.serveAPI(), nil)
	b.ok("create", "--name", "bare")
	p.show("#/sandbox/bare/screen", "has no desktop")
	b.ok("create", "--name", "seen", "--mount", b.dir+"/standin:/usr/local/bin:ro")
	p.screenOf("seen")
	if !p.frames(`[...document.querySelector("canvas")?.getContext("2d").getImageData(9, 9, 1, 1).data ?? []].join()`, "255,0,0,255") {
		t.Errorf("the screen has %q", p.EvalFrames(`document.querySelector("canvas")?.toDataURL()`))
	}
	got := func(what string, do func()) {
		eventually(t, "the sandbox to get "+what, func() bool {
			do() // the browser may not have drawn the frame yet, and then sends nothing to it
			return strings.Contains(b.ok("exec", "seen", "--", "cat", "/tmp/sent"), what)
		})
	}
	got("mouse 1 3", p.clickScreen) // 31 or 32, of 64
	got("key b 1\nkey b 0", func() { p.check(p.Press("b")) })
	p.picture("screen")
	b.ok("exec", "seen", "--", "touch", "/tmp/huge")
	p.check(p.Eval(`[...document.querySelectorAll("button")].find(b => b.textContent === "Connect again").click()`, nil))
	p.await(`document.querySelector(".screen + .bar [role=status]").textContent === "The connection is closed."`)
	b.ok("rm", "seen", "bare")
}

// desktops returns a gallery with the image desktop in the kept store.
// pictures is the directory for screenshots; DEMESNE_SCREENSHOTS names one for a person.
func desktops(t *testing.T) (g *gallery, pictures string) {
	heavy(t)
	g = newGallery(t)
	g.kept(append(browsers, "desktop")...)
	if pictures = os.Getenv(screenshots); pictures == "" {
		pictures = g.mkdir("pictures")
	}
	return g, pictures
}

// TestRecipeDesktop types into a terminal on a desktop, and opens the screen in the page.
func TestRecipeDesktop(t *testing.T) {
	g, _ := desktops(t)
	g.ok("create", "--image", "desktop", "--init", "--name", "desk")
	g.ok("exec", "desk", "--", "sh", "-c", `setsid xterm > /dev/null 2>&1 & xdotool search --sync --onlyvisible --class xterm windowfocus --sync
xdotool type "echo made > /tmp/made"; xdotool key Return; until [ -e /tmp/made ]; do sleep 0.1; done`)
	if shot := g.ok("exec", "desk", "--", "scrot", "--pointer", "-"); !strings.HasPrefix(shot, "\x89PNG") || len(shot) < 5000 {
		t.Errorf("a screenshot of %d bytes", len(shot))
	}
	p := g.browse(g.serveAPI(), nil)
	p.screenOf("desk")
	if !p.frames(painted, "painted true") {
		t.Errorf("the page shows no screen: %q", p.EvalFrames(painted))
	}
	p.clickScreen()
	p.picture("desktop")
	g.ok("rm", "desk")
}

// painted says whether noVNC shows something that is not black.
const painted = `(c => c && "painted " + [...c.getContext("2d").getImageData(10, 10, 400, 300).data].some((v, i) => i % 4 < 3 && v > 0))(document.querySelector("canvas"))`

// TestRecipeDesktopSDKs executes what the READMEs of E2B's two packages show, without changes. It opens a stream's address in
// a browser, with http in place of https.
func TestRecipeDesktopSDKs(t *testing.T) {
	g, pictures := desktops(t)
	api := g.serveAPI()
	if r := g.finish(g.sdk(api, "clients/e2b/desktop.mjs", pictures)); r.code != 0 {
		t.Errorf("@e2b/desktop: exit %d\n%s%s\nserver: %s", r.code, r.stdout, r.stderr, api.said())
	}
	script, err := filepath.Abs("clients/e2b/desktop.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd, errs := g.python("desktop", script, pictures), &syncBuffer{}
	cmd.Env = append(cmd.Env, "E2B_API_URL="+api.url, "E2B_SANDBOX_URL="+api.url, "E2B_API_KEY="+api.key)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = errs
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	url, _ := bufio.NewReader(out).ReadString('\n')
	if rest, secure := strings.CutPrefix(strings.TrimSpace(url), "https://"); secure {
		p := g.browse(api, nil)
		p.check(p.Open("http://" + rest))
		p.await(painted + ` === "painted true"`)
		p.check(p.Screenshot(pictures + "/stream.png"))
	} else {
		t.Errorf("the address of the stream: %q", url)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("e2b-desktop: %v\n%s\nserver: %s", err, errs.String(), api.said())
	}
}

// titled is a page that notes in its title what happens to it, and turns green by a click.
const titled = `<title>ready</title><style>body { margin: 0; height: 9000px } textarea { position: fixed; left: 512px; top: 0; width: 500px; height: 384px }</style><textarea></textarea><script>
const say = (s) => { document.title += " " + s };
const on = (type, f) => addEventListener(type, (e) => say(f(e)), {capture: true});
on("click", (e) => { document.body.style.background = "#0f0"; return (e.shiftKey ? "shift+" : "") + "click" + e.detail });
on("mousedown", (e) => "down" + e.button + "@" + e.clientX + "," + e.clientY);
on("mouseup", (e) => "up" + e.button + "@" + e.clientX + "," + e.clientY);
on("contextmenu", (e) => { e.preventDefault(); return "menu" });
on("wheel", (e) => "wheel" + Math.sign(e.deltaY));
on("keydown", (e) => (e.ctrlKey ? "ctrl+" : "") + e.key);
on("keyup", (e) => "end:" + e.key);
on("input", (e) => "value=" + e.target.value + ";");
on("mousemove", (e) => e.clientX === 321 ? "move" : "");
</script>`

// TestRecipeComputer operates Chromium on a real desktop by each action of the tool computer. The page says what it got, and
// the screenshots show it.
func TestRecipeComputer(t *testing.T) {
	g, pictures := desktops(t)
	g.extra = append(g.extra, "DEMESNE_TOOLS=computer")
	c := g.mcp()
	t.Cleanup(func() { os.RemoveAll(g.home + "/.demesne/turns") }) // directory of the line of calls
	id := c.must("sandbox_create", args{"image": "desktop"}).field("sandbox_id")
	shots := 0
	act := func(a args) image.Image {
		a["sandbox_id"] = id
		var r struct{ Content []struct{ Data []byte } }
		if err := json.Unmarshal(c.must("computer", a).Result, &r); err != nil || len(r.Content) == 0 {
			t.Fatalf("%v: %v", a, err)
		}
		shots++
		if err := os.WriteFile(fmt.Sprintf("%s/computer-%02d.png", pictures, shots), r.Content[0].Data, 0o644); err != nil {
			t.Fatal(err)
		}
		shown, err := png.Decode(bytes.NewReader(r.Content[0].Data))
		if err != nil || shown.Bounds().Max != image.Pt(1024, 768) {
			t.Fatalf("%v: %v", a, err)
		}
		return shown
	}
	exec := func(script string) string {
		return c.must("sandbox_exec", args{"sandbox_id": id, "command": script}).field("stdout")
	}
	act(args{"action": "screenshot"})
	exec("cat > /tmp/page.html <<'END'\n" + titled + "\nEND\nchromium --kiosk --app=file:///tmp/page.html > /tmp/chromium 2>&1 & xdotool search --sync --onlyvisible --name ready")
	title := func() string { return exec("xdotool search --onlyvisible --name ready getwindowname") }
	before := act(args{"action": "wait", "duration": 3})
	green := color.RGBA{0, 255, 0, 255}
	for _, s := range []struct{ arguments, want string }{
		{`{"action":"left_click","coordinate":[200,150]}`, "down0@200,150 up0@200,150 click1"},
		{`{"action":"left_click","coordinate":[200,150],"text":"shift"}`, "shift+click1"},
		{`{"action":"right_click","coordinate":[210,150]}`, "down2@210,150 menu up2"},
		{`{"action":"middle_click","coordinate":[220,150]}`, "down1@220,150 up1"},
		{`{"action":"double_click","coordinate":[230,150]}`, "click2"},
		{`{"action":"triple_click","coordinate":[240,150]}`, "click3"},
		{`{"action":"left_click_drag","start_coordinate":[100,200],"coordinate":[300,400]}`, "down0@100,200 up0@300,400"},
		{`{"action":"mouse_move","coordinate":[321,300]}`, "move"},
		{`{"action":"left_mouse_down"}`, "down0@321,300"},
		{`{"action":"left_mouse_up"}`, "up0@321,300"},
		{`{"action":"scroll","coordinate":[200,150],"scroll_direction":"down","scroll_amount":3}`, "wheel1"}, // Chromium may join several,
		{`{"action":"scroll","coordinate":[200,150],"scroll_direction":"up","scroll_amount":1}`, "wheel-1"},
		{`{"action":"left_click","coordinate":[700,150]}`, "up0@700,150"},
		{`{"action":"type","text":"it is $HOME; 'x' --"}`, "value=it is $HOME; 'x' --;"}, // xdotool may lose characters that the layout lacks
		{`{"action":"key","text":"ctrl+a BackSpace"}`, "ctrl+a"},
		{`{"action":"hold_key","text":"b","duration":0.3}`, "value=b;"},
	} {
		old := title()
		var a args
		if err := json.Unmarshal([]byte(s.arguments), &a); err != nil {
			t.Fatal(err)
		}
		act(a)
		eventually(t, "the page to get "+s.arguments, func() bool {
			news := strings.TrimPrefix(title(), strings.TrimSpace(old))
			return strings.Contains(strings.Join(strings.Fields(news), " "), s.want)
		})
	}
	if was := before.At(30, 600); color.RGBAModel.Convert(was) == green {
		t.Errorf("the screen had %v before the click", was)
	}
	eventually(t, "the screenshot to be green", func() bool {
		return color.RGBAModel.Convert(act(args{"action": "screenshot"}).At(30, 600)) == green
	})
	if at := c.must("computer", args{"action": "cursor_position", "sandbox_id": id}); at.Text != "X=700,Y=150" {
		t.Errorf("cursor_position: %q", at.Text)
	}
	c.must("sandbox_destroy", args{"sandbox_id": id})
}
