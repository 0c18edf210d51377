package integration

import (
	"os"
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

// TestRecipeDesktop types into a terminal on a desktop, and executes what the README of @e2b/desktop shows, without changes.
// It opens the screen in the page. DEMESNE_SCREENSHOTS names a directory for a person's pictures.
func TestRecipeDesktop(t *testing.T) {
	heavy(t)
	g := newGallery(t)
	for _, name := range []string{"demesne/debian", "demesne/node", "browser", "desktop"} {
		g.ok("pull", name)
	}
	pictures := os.Getenv(screenshots)
	if pictures == "" {
		pictures = g.mkdir("pictures")
	}
	g.ok("create", "--image", "desktop", "--init", "--name", "desk")
	g.ok("exec", "desk", "--", "sh", "-c", `setsid xterm > /dev/null 2>&1 & xdotool search --sync --onlyvisible --class xterm windowfocus --sync
xdotool type "echo made > /tmp/made"; xdotool key Return; until [ -e /tmp/made ]; do sleep 0.1; done`)
	if shot := g.ok("exec", "desk", "--", "scrot", "--pointer", "-"); !strings.HasPrefix(shot, "\x89PNG") || len(shot) < 5000 {
		t.Errorf("a screenshot of %d bytes", len(shot))
	}
	api := g.serveAPI()
	if r := g.finish(g.sdk(api, "clients/e2b/desktop.mjs", pictures)); r.code != 0 {
		t.Errorf("@e2b/desktop: exit %d\n%s%s\nserver: %s", r.code, r.stdout, r.stderr, api.said())
	}
	p := g.browse(api, nil)
	p.screenOf("desk")
	const painted = `(c => c && "painted " + [...c.getContext("2d").getImageData(10, 10, 400, 300).data].some((v, i) => i % 4 < 3 && v > 0))(document.querySelector("canvas"))`
	if !p.frames(painted, "painted true") {
		t.Errorf("the page shows no screen: %q", p.EvalFrames(painted))
	}
	p.clickScreen()
	p.picture("desktop")
	g.ok("rm", "desk")
}
