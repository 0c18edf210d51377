// A terminal in a sandbox. The emulator is in a frame with an opaque origin; this module owns the connection.
import { el, replace } from "./dom.js";
import { changed, socket } from "./api.js";
import { button, dialog, field, textInput } from "./ui.js";
import { link } from "./lists.js";

const heldMost = 1000; // characters typed before there is an emulator
const most = 8 << 20; // bytes that the emulator may be behind before output is left out

function themeNow() {
  const style = getComputedStyle(document.documentElement);
  const probe = el("span");
  document.body.append(probe);
  const value = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const dark = style.colorScheme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const theme = {
    background: dark ? "#0f100e" : "#ffffff", foreground: hex(value("--text")), cursor: hex(value("--accent")), cursorAccent: dark ? "#0f100e" : "#ffffff",
    selectionBackground: dark ? "#3a4a44" : "#cfe3dc",
    ...(dark ? { black: "#2c2e2a", red: "#ee8a7e", green: "#62c08d", yellow: "#dfae52", blue: "#7fb0e8", magenta: "#cf9be0", cyan: "#6fc3ab", white: "#d6d8cf", brightBlack: "#7b7e73" }
      : { black: "#1d1e1b", red: "#b33328", green: "#1d7a4d", yellow: "#97610a", blue: "#2a62a8", magenta: "#8a3f9e", cyan: "#1f6a58", white: "#8d9085", brightBlack: "#62645c", brightRed: "#9c2a20", brightGreen: "#166040", brightYellow: "#7a4e06", brightBlue: "#1f4f8c", brightMagenta: "#6f3180", brightCyan: "#175446", brightWhite: "#44473f" }),
  };
  probe.remove();
  return theme;
}

function hex(rgb) {
  const n = rgb.match(/\d+(\.\d+)?/g)?.slice(0, 3).map(Number) ?? [0, 0, 0];
  return `#${n.map((v) => Math.round(v).toString(16).padStart(2, "0")).join("")}`;
}

// Terminals live on while other views are shown, each in its place below them: a frame that moves loses its document.
const place = document.getElementById("terminals");
const all = new Map(); // by sandbox, the oldest first
const together = 6; // terminals

export async function terminal(body, { id, at, info }, signal) {
  let t = all.get(id);
  if (!t) {
    if (all.size >= together) [...all.values()][0].end();
    t = new Terminal(id, at, info.name || info.id);
    all.set(id, t);
    place.append(t.element);
  }
  for (const one of all.values()) one.element.hidden = one !== t;
  place.hidden = false;
  t.focus();
  signal.addEventListener("abort", () => {
    t.frame.blur(); // a frame that is hidden with the focus does not get it again
    place.hidden = true;
  });
}

changed.addEventListener("logout", () => all.forEach((t) => t.end()));
document.addEventListener("theme", () => all.forEach((t) => t.theme()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all.forEach((t) => t.theme()));
addEventListener("message", (e) => all.forEach((t) => e.source === t.frame.contentWindow && t.heard(e.data)));

const encoder = new TextEncoder();

// Terminal is a connection and its emulator.
class Terminal {
  command = "";
  size = null;
  live = null; // WebSocket
  early = []; // what was typed before the connection
  held = ""; // what was typed before there was an emulator
  behind = 0; // bytes that the emulator has not shown yet
  left = 0; // bytes that were left out

  constructor(id, at, name) {
    this.id = id;
    this.at = at;
    this.frame = el("iframe", { sandbox: "allow-scripts", src: "/page/frame/terminal.html", title: `Terminal of ${name}` });
    this.status = el("p.quiet", { role: "status" }, "Connecting …");
    this.again = button("New session", () => this.open(), "small");
    this.keys = el("div.terminal", { tabindex: "-1", "aria-label": `Terminal of ${name}` }, this.frame);
    this.keys.addEventListener("keydown", (e) => this.hold(e));
    this.element = el("div", this.keys,
      el("div.bar", this.status, el("div.actions", el("small.quiet", "Ctrl Shift E leaves the terminal"), button("Other program", () => this.ask(), "small"), this.again, button("Close", () => this.end(), "small"))));
  }

  post(message, transfer) {
    this.frame.contentWindow?.postMessage(message, "*", transfer);
  }

  focus() {
    if (place.hidden || this.element.hidden) return;
    if (!this.size) { // the frame has no emulator yet, and would lose keys
      this.keys.focus();
      return;
    }
    this.frame.focus();
    this.post({ kind: "focus" });
  }

  // hold keeps a key for the program that is about to start.
  hold(e) {
    if (this.size || e.ctrlKey || e.metaKey || e.altKey || e.isComposing) return;
    const text = { Enter: "\r", Backspace: "\x7f", Escape: "\x1b" }[e.key] ?? ([...e.key].length === 1 ? e.key : "");
    if (!text || this.held.length >= heldMost) return;
    e.preventDefault();
    e.stopPropagation(); // it is not a shortcut of the page
    this.held += text;
  }

  theme() {
    this.post({ kind: "theme", theme: themeNow() });
  }

  ask() {
    dialog("Program in the terminal", field("Command", textInput("command", "the image’s shell", { value: this.command })), { confirm: "Start", send: (v) => {
      this.command = v.command;
      this.open();
    } });
  }

  // end closes the connection, which ends the program.
  end() {
    all.delete(this.id);
    this.live?.close();
    this.element.remove();
    if (!place.querySelector(":scope > :not([hidden])") && !place.hidden) location.hash = link("sandbox", this.id);
  }

  open() {
    this.live?.close();
    const s = socket(`${this.at}/terminal`, { rows: this.size.rows, cols: this.size.cols, ...(this.command ? { command: this.command } : {}) });
    this.live = s;
    this.early = this.held ? [encoder.encode(this.held)] : [];
    this.held = "";
    this.focus();
    let code = null, reason = "", fault = "";
    replace(this.status, "Connecting …");
    s.onopen = () => {
      replace(this.status, "Connected");
      this.early.splice(0).forEach((data) => s.send(data));
    };
    s.onmessage = ({ data }) => {
      if (this.live !== s) return;
      if (typeof data === "string") {
        const m = JSON.parse(data);
        if (m.type === "exit") [code, reason] = [m.exit_code, m.reason && m.reason !== "exited" ? `: ${m.reason}` : ""];
        else if (m.type === "note") replace(this.status, "Connected: ", String(m.message));
        else if (m.type === "error") fault = String(m.message);
      } else if (this.behind > most) this.left += data.byteLength;
      else {
        this.behind += data.byteLength;
        this.post({ kind: "output", data: new Uint8Array(data) }, [data]);
      }
    };
    s.onclose = (e) => {
      if (this.live !== s) return;
      this.live = null;
      const why = code !== null ? `The program ended with exit code ${code}${reason}.` : fault || e.reason || "The connection is closed.";
      replace(this.status, why);
      this.post({ kind: "note", text: why });
    };
  }

  send(data) {
    if (this.live?.readyState === WebSocket.OPEN) this.live.send(data);
    else if (this.live?.readyState === WebSocket.CONNECTING) this.early.push(data);
  }

  // heard handles a message of the emulator.
  heard(m) {
    switch (m?.kind) {
      case "ready":
        this.size = { rows: m.rows, cols: m.cols };
        this.theme();
        this.open();
        break;
      case "input":
        this.send(encoder.encode(String(m.data)));
        break;
      case "binary":
        this.send(Uint8Array.from(String(m.data), (c) => c.charCodeAt(0)));
        break;
      case "size":
        this.size = { rows: Number(m.rows), cols: Number(m.cols) };
        this.send(JSON.stringify({ type: "resize", ...this.size }));
        break;
      case "drained":
        this.behind = Math.max(0, this.behind - Number(m.bytes));
        if (this.left && this.behind < most / 2) {
          this.post({ kind: "note", text: `${this.left} bytes of output left out` });
          this.left = 0;
        }
        break;
      case "leave":
        this.again.focus();
        break;
    }
  }
}
