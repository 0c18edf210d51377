// The terminal emulator. It runs in a frame with an opaque origin: what a sandbox prints can at worst confuse this
// document, which reaches neither the page nor the API. The page owns the connection and passes bytes in both directions.
"use strict";

(() => {
  const say = (message) => parent.postMessage(message, "*");
  const term = new Terminal({
    fontFamily: 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace',
    fontSize: 13,
    lineHeight: 1.2,
    scrollback: 5000,
    minimumContrastRatio: 4.5, // programs choose colours for a dark ground
    screenReaderMode: false,
    linkHandler: { activate() {} }, // OSC 8: a link of a sandbox leads nowhere
  });
  const fit = new FitAddon.FitAddon();
  term.loadAddon(fit);
  term.open(document.getElementById("screen"));
  term.attachCustomKeyEventHandler((e) => {
    if (e.type === "keydown" && e.ctrlKey && e.shiftKey && e.code === "KeyE") {
      say({ kind: "leave" });
      e.preventDefault();
      return false;
    }
    return true;
  });
  addEventListener("focus", () => term.focus()); // whichever way the frame gets the focus
  term.onData((data) => say({ kind: "input", data }));
  term.onBinary((data) => say({ kind: "binary", data }));
  term.onResize(({ rows, cols }) => say({ kind: "size", rows, cols }));
  new ResizeObserver(() => fit.fit()).observe(document.getElementById("screen"));

  addEventListener("message", (e) => {
    if (e.source !== parent) return;
    const m = e.data;
    switch (m.kind) {
      case "output":
        term.write(m.data, () => say({ kind: "drained", bytes: m.data.length }));
        break;
      case "theme":
        term.options.theme = m.theme;
        document.documentElement.style.background = m.theme.background;
        break;
      case "note":
        term.write(`\r\n\x1b[2m${m.text}\x1b[0m\r\n`);
        break;
      case "focus":
        term.focus();
        break;
    }
  });
  fit.fit();
  say({ kind: "ready", rows: term.rows, cols: term.cols });
})();
