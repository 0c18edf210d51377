// The VNC client. It runs in a frame with an opaque origin, as the terminal's emulator does: a sandbox that sends something
// else than a screen can at worst confuse this document. The page owns the connection and passes bytes in both directions.
"use strict";

(() => {
  const say = (message) => parent.postMessage(message, "*");
  const most = 1 << 25; // pixels of a screen
  const channel = {
    binaryType: "arraybuffer", protocol: "", readyState: "open", onopen: null, onmessage: null, onerror: null, onclose: null,
    send: (data) => say({ kind: "input", data: Uint8Array.from(data) }),
    close: () => say({ kind: "close" }),
  };
  const rfb = new RFB(document.getElementById("screen"), channel, { shared: true });
  rfb.scaleViewport = true;
  rfb.focusOnClick = true;
  rfb.background = "transparent";
  rfb.addEventListener("connect", () => say({ kind: "shown" }));
  rfb.addEventListener("credentialsrequired", () => say({ kind: "close" }));
  const resize = rfb._resize.bind(rfb);
  rfb._resize = (width, height) => {
    if (width * height > most) say({ kind: "close" });
    else resize(width, height);
  };

  addEventListener("keydown", (e) => {
    if (!e.ctrlKey || !e.shiftKey || e.code !== "KeyE") return;
    e.preventDefault();
    e.stopPropagation();
    say({ kind: "leave" });
  }, true);
  addEventListener("message", ({ source, data: m }) => {
    if (source !== parent) return;
    if (m.kind === "focus") rfb.focus();
    if (m.kind !== "output") return;
    channel.onmessage({ data: m.data });
    say({ kind: "drained", bytes: m.data.byteLength });
  });
  setTimeout(() => say({ kind: "ready" })); // RFB takes its channel in a timeout
})();
