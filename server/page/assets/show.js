// Shows a file that a sandbox wrote: as image, table, text, or as HTML in a frame that can reach nothing.
import { el, add, replace } from "./dom.js";
import { bytes, button, shown } from "./ui.js";

const images = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", avif: "image/avif", bmp: "image/bmp", svg: "image/svg+xml", ico: "image/x-icon" };
const rowsMost = 500, columnsMost = 50;
const frameLeast = 48, frameMost = 900; // pixels: the height of an HTML output, which tells its own

export function extension(name) {
  const m = /\.([A-Za-z0-9]+)$/.exec(String(name));
  return m ? m[1].toLowerCase() : "";
}

// kindOf returns how a file is shown: image, html, table, json, text or bytes.
export function kindOf(name, mime = "") {
  const e = extension(name);
  if (e in images || mime.startsWith("image/")) return "image";
  if (e === "html" || e === "htm" || mime.startsWith("text/html")) return "html";
  if (e === "csv" || e === "tsv" || mime.startsWith("text/csv")) return "table";
  if (e === "json" || e === "ipynb" || mime.includes("json")) return "json";
  return "text";
}

// content returns an element for a file's bytes. signal ends what it holds.
export function content(name, data, { mime = "", signal, truncated = false } = {}) {
  const kind = kindOf(name, mime);
  if (kind === "image") return image(name, data, images[extension(name)] ?? mime, signal);
  const text = decoded(data);
  if (text === null) return el("p.quiet", `${bytes(data.byteLength)} that are not text.`);
  switch (kind) {
    case "html":
      return html(text, signal);
    case "table":
      return sheet(text, extension(name) === "tsv" ? "\t" : ",");
    case "json":
      return el("pre.text", shown(truncated ? text : pretty(text)));
  }
  return el("pre.text", shown(text), truncated ? "\n…" : "");
}

export function decoded(data) {
  const view = new Uint8Array(data);
  if (view.subarray(0, 8000).includes(0)) return null;
  return new TextDecoder("utf-8", { fatal: false }).decode(view);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// image shows an image. In an img element an SVG has no scripts and loads nothing.
function image(name, data, type, signal) {
  const url = URL.createObjectURL(new Blob([data], { type }));
  signal?.addEventListener("abort", () => URL.revokeObjectURL(url));
  const e = el("img", { src: url, alt: name });
  e.addEventListener("error", () => e.replaceWith(el("p.quiet", "This image cannot be shown.")));
  return e;
}

// html shows a document in a frame with an opaque origin. Its scripts run only if the user wants it; even then it reaches
// no network, no storage, and neither this page nor the API.
export function html(text, signal) {
  const place = el("div");
  const show = (scripts) => {
    const f = el("iframe", { sandbox: "allow-scripts", src: `/page/frame/${scripts ? "live" : "still"}.html`, title: "HTML output", referrerpolicy: "no-referrer" });
    let sent = false;
    const heard = (e) => {
      if (!e.source || e.source !== f.contentWindow) return;
      if (e.data === "ready" && !sent) {
        sent = true;
        f.contentWindow.postMessage(text, "*");
      } else if (!scripts && typeof e.data?.height === "number") {
        f.style.height = `${Math.max(frameLeast, Math.min(frameMost, Math.ceil(e.data.height)))}px`;
      }
    };
    addEventListener("message", heard, { signal });
    replace(place, f);
  };
  show(false);
  const scripted = /<script|\son\w+=/i.test(text);
  const run = button("Run its scripts", () => {
    show(true);
    run.remove();
  }, "small plain");
  return el("div", place, scripted ? run : null);
}

const number = /^\s*[-+]?[$€£]?(\d[\d,._ ]*|\.\d+)(e[-+]?\d+)?\s*%?\s*$/i;

// numeric returns for each column whether all its values are numbers.
function numeric(rows, columns) {
  return Array.from({ length: columns }, (_, i) => {
    const values = rows.map((r) => r[i] ?? "").filter((v) => v.trim() !== "");
    return values.length > 0 && values.every((v) => number.test(v));
  });
}

// sheet shows comma-separated values. Columns of numbers are aligned at the right.
export function sheet(text, separator) {
  const all = parse(text, separator, rowsMost + 1);
  if (!all.length) return el("p.quiet", "Empty.");
  const cut = (r) => r.slice(0, columnsMost);
  const rows = all.slice(1, rowsMost);
  const right = numeric(rows, Math.min(columnsMost, all[0].length)).map((n) => (n ? "right" : ""));
  const body = el("tbody", rows.map((r) => el("tr", cut(r).map((c, i) => el("td", { class: right[i] ?? "" }, c)))));
  const parts = [el("table", el("thead", el("tr", cut(all[0]).map((c, i) => el("th", { scope: "col", class: right[i] }, c)))), body)];
  if (all.length > rowsMost) parts.push(el("p.quiet", `The first ${rowsMost} rows.`));
  return el("div", parts);
}

// parse reads values with quotes, as RFC 4180 has them, and at most so many rows.
export function parse(text, separator, most) {
  const rows = [];
  let row = [], cell = "", quoted = false;
  for (let i = 0; i < text.length && rows.length < most; i++) {
    const c = text[i];
    if (quoted) {
      if (c !== '"') cell += c;
      else if (text[i + 1] === '"') {
        cell += '"';
        i++;
      } else quoted = false;
    } else if (c === '"' && cell === "") quoted = true;
    else if (c === separator) {
      row.push(cell);
      cell = "";
    } else if (c === "\n" || c === "\r") {
      if (c === "\r" && text[i + 1] === "\n") i++;
      row.push(cell);
      rows.push(row);
      row = [];
      cell = "";
    } else cell += c;
  }
  if (cell !== "" || row.length) {
    row.push(cell);
    rows.push(row);
  }
  return rows.filter((r) => r.length > 1 || r[0] !== "");
}

// card shows one output with its name. load returns {data, mime, truncated}.
export function card({ name, size, load, download, signal }) {
  const body = el("div.body", el("p.quiet", "Loading …"));
  const e = el("figure.output", el("header", el("span.mono", name), el("span.actions", el("small.quiet", bytes(size)), download ? button("Download", download, "small plain") : null)), body);
  if (kindOf(name) === "html") e.classList.add("wide");
  load().then(({ data, mime, truncated }) => replace(body, content(name, data, { mime, truncated, signal })), (err) => replace(body, el("p.quiet", err.message)));
  return e;
}

// save downloads bytes under a name.
export function save(name, data) {
  const url = URL.createObjectURL(new Blob([data], { type: "application/octet-stream" }));
  const a = el("a", { href: url, download: String(name).split("/").pop() || "file" });
  add(document.body, [a]);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
