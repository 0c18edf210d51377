// The files of a sandbox, and what has changed since its start.
import { el, replace, add } from "./dom.js";
import { get, request, items } from "./api.js";
import { bytes, button, empty, shown } from "./ui.js";
import { link } from "./lists.js";
import { content, kindOf, decoded, save } from "./show.js";
import { difference } from "./lines.js";

const most = 1 << 20; // bytes of a file that are shown
const listMost = 2000;

// The calls. Paths are absolute in the sandbox.
export async function listDirectory(at, dir, signal) {
  const r = await request("POST", `${at}/files/list`, { body: { path: dir }, signal });
  return (await r.json()).data ?? [];
}

// describeFile returns a file's type and size, or undefined if there is none.
async function describeFile(at, name, signal) {
  const r = await request("POST", `${at}/files/exists`, { body: { path: name }, signal });
  return (await r.json()).data?.file;
}

export async function readFile(at, name, signal, limit = most) {
  const r = await request("GET", `${at}/files/raw?path=${encodeURIComponent(name)}`, { signal, accept: "application/octet-stream" });
  const size = Number(r.headers.get("Content-Length") ?? NaN);
  const reader = r.body.getReader();
  const parts = [];
  let n = 0, truncated = false;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    parts.push(value);
    if ((n += value.length) >= limit) {
      truncated = size > limit || !(size <= limit);
      reader.cancel();
      break;
    }
  }
  const data = new Uint8Array(Math.min(n, limit));
  let to = 0;
  for (const p of parts) {
    const part = p.subarray(0, data.length - to);
    data.set(part, to);
    to += part.length;
  }
  return { data, truncated };
}

export function join(dir, name) {
  return `${dir === "/" ? "" : dir}/${name}`;
}

function parent(p) {
  return p.replace(/\/[^/]*\/?$/, "") || "/";
}

// files shows a directory, or the changes, on the left, and a file on the right. The address has the path.
export async function files(body, { id, at, rest, info }, signal) {
  const changes = rest[0] === "changes";
  const base = `${link("sandbox", id)}/files`;
  const to = (p, kind = "at") => `${base}/${kind}/${encodeURIComponent(p)}`;
  const wanted = rest[1] ?? (changes ? "" : "/");
  const crumbs = el("nav.crumbs", { "aria-label": "Path" }), list = el("ul.listing", { "aria-label": changes ? "Changes" : "Files" }), viewer = el("div"), fault = el("div.fault", { role: "alert" });
  const kinds = el("div.actions", el("a", { href: to("/"), "aria-current": changes ? null : "page" }, "All files"), el("a", { href: `${base}/changes`, "aria-current": changes ? "page" : null }, "Changes since start"));
  kinds.classList.add("tabs");
  const left = el("div.stack", kinds, crumbs, list);
  add(body, [fault, el("div.files", left, viewer)]);
  const fail = (e) => replace(fault, e.message);
  try {
    if (changes) await changeList(at, list, viewer, wanted, (p) => `${base}/changes/${encodeURIComponent(p)}`, signal, info);
    else await directory(at, wanted, { list, viewer, crumbs, to, signal });
  } catch (e) {
    if (!signal.aborted) fail(e);
  }
}

async function directory(at, wanted, { list, viewer, crumbs, to, signal }) {
  const found = await describeFile(at, wanted, signal);
  if (!found) {
    replace(viewer, empty("There is no such file.", el("a", { href: to("/") }, "All files")));
    return;
  }
  let dir = wanted, file = "", entries = null;
  if (isDir(found)) entries = await listDirectory(at, dir, signal);
  else if (found.type === "link") entries = await listDirectory(at, dir, signal).catch(() => null); // it may lead to a file
  if (entries === null) {
    file = wanted;
    dir = parent(wanted);
    entries = await listDirectory(at, dir, signal);
  }
  const parts = dir.split("/").filter(Boolean);
  replace(crumbs, el("a", { href: to("/") }, "/"), parts.map((p, i) => [el("a", { href: to(`/${parts.slice(0, i + 1).join("/")}`) }, p), i < parts.length - 1 ? "/" : ""]));
  entries.sort((a, b) => Number(isDir(b)) - Number(isDir(a)) || String(a.name).localeCompare(String(b.name)));
  const up = dir === "/" ? null : entryLine(to(parent(dir)), "↑", "..", "", false);
  replace(list, up, entries.slice(0, listMost).map((e) => {
    const p = join(dir, baseName(e));
    return entryLine(to(p), isDir(e) ? "▸" : "", isDir(e) ? `${baseName(e)}/` : baseName(e), isDir(e) ? "" : bytes(e.size), p === file);
  }), entries.length > listMost ? el("li.quiet", `${entries.length - listMost} more`) : null, !entries.length && !up ? el("li.quiet", "Empty") : null);
  if (file) await open(at, file, viewer, signal);
  else replace(viewer, empty(entries.length ? "Choose a file." : "This directory is empty."));
}

export const isDir = (e) => Boolean(e.is_dir);
const baseName = (e) => String(e.name ?? e.path).split("/").filter(Boolean).pop() ?? "";

function entryLine(href, letter, name, size, current) {
  return el("li", el("a", { href, "aria-current": current ? "true" : null }, el("span.letter", { "aria-hidden": "true", class: letter }, letter), el("span.name", name), el("span.size", size)));
}

async function open(at, file, viewer, signal) {
  replace(viewer, el("p.quiet", "Loading …"));
  const { data, truncated } = await readFile(at, file, signal);
  const download = button("Download", async () => save(file, (await readFile(at, file, signal, Infinity)).data), "small");
  replace(viewer, el("div.stack", el("div.bar", el("h2.mono.break", file), el("div.actions", el("small.quiet", truncated ? `the first ${bytes(data.length)}` : bytes(data.length)), download)),
    el("div.output", el("div.body", content(file, data, { signal, truncated })))));
}

const kindNames = { A: "added", M: "changed", D: "deleted" };

async function changeList(at, list, viewer, wanted, to, signal, info) {
  const d = await get(`${at}/changes`, { signal });
  const all = items(d);
  replace(list, all.slice(0, listMost).map((c) => entryLine(to(c.path), c.kind, c.path, kindNames[c.kind] ?? "", c.path === wanted)),
    d.truncated || all.length > listMost ? el("li.quiet", "There are more.") : null);
  if (!all.length) {
    list.hidden = true;
    replace(viewer, empty("Nothing has changed.", "Files that the sandbox adds, changes or deletes appear here."));
    return;
  }
  const c = all.find((one) => one.path === wanted);
  if (!c) {
    replace(viewer, empty("Choose a change."));
    return;
  }
  await change(at, c, viewer, signal, info);
}

// change shows how a file differs from the image's.
async function change(at, c, viewer, signal, info) {
  replace(viewer, el("p.quiet", "Loading …"));
  const nothing = { data: new Uint8Array(), truncated: false };
  const [now, before] = await Promise.all([
    c.kind === "D" ? nothing : readFile(at, c.path, signal).catch((e) => ({ ...nothing, fault: e.message })),
    c.kind === "A" ? nothing : original(c.path, signal, info).catch((e) => ({ ...nothing, fault: e.message }))]);
  const texts = [decoded(before.data), decoded(now.data)];
  let body;
  if (now.fault || before.fault) body = el("p.quiet", now.fault ?? before.fault);
  else if (kindOf(c.path) === "image" || texts.includes(null)) body = el("div.output", el("div.body", content(c.path, c.kind === "D" ? before.data : now.data, { signal })));
  else body = el("div.diff", { role: "region", "aria-label": "Difference", tabindex: "0" }, difference(...texts.map((t) => shown(t))).map(([kind, text]) => el("div", { class: { same: "", add: "add", del: "del", gap: "gap" }[kind] },
    `${{ same: " ", add: "+", del: "-", gap: "⋯" }[kind]} ${text}`)));
  replace(viewer, el("div.stack", el("div.bar", el("h2.mono.break", c.path), el("small.quiet", kindNames[c.kind] ?? c.kind)),
    c.executes ? el("div.fault", `Copied to this machine, ${c.executes} would execute it.`) : null, body));
}

// original reads a file as the image has it, in a sandbox of its own.
async function original(name, signal, info) {
  const r = await request("POST", "/v1/run", { signal, body: { argv: ["cat", "--", name], ...(info.image ? { image: info.image } : {}) } });
  const a = await r.json();
  if (a.exit_code !== 0) throw new Error(a.stderr?.text || "The image has no such file.");
  return { data: new TextEncoder().encode(a.stdout?.text ?? ""), truncated: Boolean(a.stdout?.truncated) };
}

