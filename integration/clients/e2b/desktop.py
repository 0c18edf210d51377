"""Does what the README of e2b-desktop shows. The argument is a directory for screenshots. It prints the address of its screen, and ends with its input."""

import sys

from e2b_desktop import Sandbox


def until(desktop, command, wanted=lambda out: True):
    assert desktop._wait_and_verify(command, lambda r: wanted(r.stdout), 60), command


desktop = Sandbox.create(timeout=600)
assert desktop.get_screen_size() == (1024, 768)
desktop.launch("google-chrome")
until(desktop, "xdotool search --onlyvisible --name Chromium")
desktop.wait(3000)
window_ids = desktop.get_application_windows("chromium")
assert "Chromium" in desktop.get_window_title(window_ids[0])
desktop.commands.run("xterm -geometry 80x24+0+30", background=True)
until(desktop, "xdotool search --onlyvisible --class xterm")
desktop.left_click(x=200, y=200)
desktop.write("cat > /tmp/typed")
desktop.press("enter")
desktop.write("Hello, 'world'!", chunk_size=50, delay_in_ms=25)
desktop.press("space")
desktop.press("backspace")
desktop.press("enter")
until(desktop, "cat /tmp/typed", lambda out: out == "Hello, 'world'!\n")
desktop.press(["ctrl", "c"])
image = desktop.screenshot()
assert image.startswith(b"\x89PNG")
with open(sys.argv[1] + "/python.png", "wb") as f:
    f.write(image)
desktop.double_click()
desktop.double_click(x=100, y=200)
desktop.right_click(900, 600)
desktop.middle_click(900, 600)
desktop.scroll("down", 3)
desktop.move_mouse(100, 200)
assert desktop.get_cursor_position() == (100, 200)
desktop.drag((100, 100), (200, 210))
assert desktop.get_cursor_position() == (200, 210)
desktop.mouse_press("left")
desktop.mouse_release("left")
desktop.files.write("/home/user/index.js", "console.log('hello')")
desktop.open("/home/user/index.js")
assert "index.js" in desktop.commands.run("ls -la /home/user").stdout
desktop.stream.start(window_id=desktop.get_current_window_id())
desktop.stream.stop()
desktop.stream.start(require_auth=True)
print(desktop.stream.get_url(auth_key=desktop.stream.get_auth_key()), flush=True)
sys.stdin.read()
desktop.stream.stop()
desktop.kill()
