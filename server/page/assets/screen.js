// The screen of a desktop in a sandbox. The VNC client is in a frame with an opaque origin; this module owns the connection.
import { el, add, replace } from "./dom.js";
import { socket } from "./api.js";
import { button } from "./ui.js";

const most = 64 << 20; // bytes that the client may be behind
const absent = "This sandbox has no desktop. The image “desktop” has one.";

export async function screen(body, { at, info }, signal) {
  const status = el("p.quiet", { role: "status" }, "Connecting …");
  const frame = el("iframe", { sandbox: "allow-scripts", src: "/page/frame/screen.html", title: `Screen of ${info.name || info.id}` });
  const again = button("Connect again", () => frame.setAttribute("src", "/page/frame/screen.html"), "small"); // it says when it is ready
  let live = null, behind = 0;
  const post = (message, transfer) => frame.contentWindow?.postMessage(message, "*", transfer);

  const open = () => {
    live?.close();
    // The program is in the image. Its terminal passes bytes unchanged.
    const s = socket(`${at}/terminal`, { command: "exec desktop vnc 2>/dev/null" });
    let why = "";
    [live, behind] = [s, 0];
    replace(status, "Connecting …");
    s.onmessage = ({ data }) => {
      if (live !== s) return;
      if (typeof data === "string") {
        const m = JSON.parse(data);
        if (m.type === "exit") why = m.exit_code === 127 ? absent : `The screen ended with exit code ${Number(m.exit_code)}.`;
        else if (m.type === "error") why = String(m.message);
        return;
      }
      behind += data.byteLength;
      if (behind > most) s.close();
      else post({ kind: "output", data }, [data]);
    };
    s.onclose = (e) => {
      if (live !== s) return;
      live = null;
      replace(status, why || e.reason || "The connection is closed.");
    };
  };

  addEventListener("message", ({ source, data: m }) => {
    if (source !== frame.contentWindow) return;
    switch (m?.kind) {
      case "ready":
        open();
        break;
      case "shown":
        if (live?.readyState !== WebSocket.OPEN) break; // the frame ends the connection to a screen that is too large, and then says this
        replace(status, "Connected");
        post({ kind: "focus" });
        break;
      case "input":
        if (live?.readyState === WebSocket.OPEN && m.data instanceof Uint8Array) live.send(m.data);
        break;
      case "drained":
        behind = Math.max(0, behind - Number(m.bytes));
        break;
      case "close":
        live?.close();
        break;
      case "leave":
        again.focus();
        break;
    }
  }, { signal });
  signal.addEventListener("abort", () => live?.close());
  add(body, [el("div.terminal.screen", frame), el("div.bar", status, el("div.actions", el("small.quiet", "Ctrl Shift E leaves the screen"), again))]);
}
