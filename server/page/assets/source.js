// A text of a sandbox with line numbers and colours.
import { el, replace, add } from "./dom.js";
import { shown } from "./ui.js";

const colouredMost = 100000; // characters
const patience = 4000; // milliseconds for the highlighter, which a text could keep busy

// The classes of the highlighter's scopes. Others have no colour.
const classes = {
  keyword: "key", built_in: "key", literal: "key", "selector-tag": "key", doctag: "key",
  string: "str", regexp: "str", char: "str", addition: "str", link: "str", symbol: "str", bullet: "str", "template-variable": "str",
  number: "num", comment: "com", quote: "com", deletion: "com",
  title: "nam", name: "nam", section: "nam", tag: "nam", "selector-class": "nam", "selector-id": "nam",
  attr: "att", attribute: "att", property: "att", variable: "att", type: "att", meta: "att",
};

const classOf = (scope) => (typeof scope === "string" && Object.hasOwn(classes, scope.split(".")[0]) ? classes[scope.split(".")[0]] : "");

let frame = null, last = 0; // the highlighter's frame; the number of the last question

function highlighter() {
  if (frame) return frame;
  const e = el("iframe", { sandbox: "allow-scripts", src: "/page/frame/colour.html", title: "Syntax colours", hidden: true, "aria-hidden": "true", tabindex: "-1" });
  const ready = new Promise((done) => {
    addEventListener("message", (m) => m.source === e.contentWindow && m.data === "ready" && done());
  });
  add(document.body, [e]);
  return frame = { e, ready };
}

// runs returns the coloured parts of a text, or null: the highlighter knows no language for it, failed, or took too long.
async function runs(name, text) {
  const one = highlighter(), id = ++last;
  let heard, timer;
  try {
    const found = await Promise.race([
      new Promise((done) => {
        heard = (m) => m.source === one.e.contentWindow && m.data?.id === id && done(m.data.runs);
        addEventListener("message", heard);
        one.ready.then(() => one.e.contentWindow?.postMessage({ id, name, text }, "*"));
      }),
      new Promise((_, fail) => {
        timer = setTimeout(fail, patience);
      })]);
    return Array.isArray(found) && found.length && found.reduce((n, r) => n + (Number.isInteger(r?.[0]) && r[0] > 0 ? r[0] : NaN), 0) === text.length ? found : null;
  } catch {
    if (frame === one) frame = null;
    one.e.remove();
    return null;
  } finally {
    clearTimeout(timer);
    removeEventListener("message", heard);
  }
}

// colour colours a text that e shows. The text stays the one that e has: an answer says only where parts end.
async function colour(e, name, text) {
  if (text.length > colouredMost) return;
  const all = await runs(name, text);
  if (!all || !e.isConnected || e.textContent !== text) return;
  let at = 0;
  replace(e, all.map(([length, scope]) => {
    const part = text.slice(at, at += length), kind = classOf(scope);
    return kind ? el("span", { class: kind }, part) : part;
  }));
}

export function numbers(text) {
  let n = 1;
  for (let at = text.indexOf("\n"); at >= 0 && at < text.length - 1; at = text.indexOf("\n", at + 1)) n++;
  return Array.from({ length: n }, (_, i) => i + 1).join("\n");
}

// source shows a text, and marks a line if there is one.
export function source(name, whole, line = 0) {
  const text = shown(whole);
  const code = el("pre.code", text);
  const mark = line > 0 ? el("div.mark") : null;
  if (mark) mark.style.setProperty("--line", String(line - 1));
  const e = el("div.source", { role: "region", "aria-label": name, tabindex: "0" }, el("pre.gutter", { "aria-hidden": "true" }, numbers(text)), code, mark);
  requestAnimationFrame(() => mark?.scrollIntoView({ block: "center" }));
  colour(code, name, text);
  return e;
}
