// An editor for a text file of a sandbox.
import { el } from "./dom.js";
import { upload, request } from "./api.js";
import { button, dialog, gate, note } from "./ui.js";
import { numbers } from "./source.js";

const drafts = new Map(); // what was typed and not saved, by the file's address: the view may be left meanwhile

addEventListener("beforeunload", (e) => drafts.size && e.preventDefault());

export const drafted = (address) => drafts.has(address);

// text returns what a file has as text, or null if a text field would not give the same bytes back.
export function text(data) {
  try {
    const all = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
    return restored(typed(all), all) === all && !all.includes("\0") ? all : null;
  } catch {
    return null;
  }
}

// A text field has no carriage returns. restored puts them back, if each line of the file had one.
const typed = (all) => all.replace(/\r\n?/g, "\n");
const restored = (value, all) => (all.includes("\r\n") ? value.replaceAll("\n", "\r\n") : value);

const same = (a, b) => a.length === b.length && a.every((v, i) => v === b[i]);

// edit shows an editor. read reads the file's bytes as they are now, or returns null if there is none; done shows the file.
export function edit(address, at, file, data, { read, done }) {
  const draft = drafts.get(address) ?? { before: data, all: text(data) };
  draft.value ??= typed(draft.all);
  const gutter = el("pre.gutter", { "aria-hidden": "true" });
  const area = el("textarea", { "aria-label": `Content of ${file}`, spellcheck: "false", autocapitalize: "off", autocomplete: "off" });
  area.value = draft.value;
  area.setSelectionRange(0, 0);
  const state = el("small.quiet", { role: "status" });
  const place = el("div.source.edit", gutter, area);
  const drawn = () => {
    const all = numbers(`${area.value}.`);
    gutter.textContent = all;
    place.style.setProperty("--lines", all.slice(all.lastIndexOf("\n") + 1));
    gutter.scrollTop = area.scrollTop;
    state.textContent = drafts.has(address) ? "Not saved" : "";
    gate(save, !drafts.has(address));
  };
  const put = async () => {
    const bytes = new TextEncoder().encode(restored(area.value, draft.all));
    await upload(`${at}/files/raw?path=${encodeURIComponent(file)}`, new Blob([bytes]));
    drafts.delete(address);
    note("Saved");
    await done();
  };
  const save = button("Save", async () => {
    const now = await read();
    if (now && same(now, draft.before)) await put();
    else dialog(now ? "The file changed meanwhile." : "The file was deleted meanwhile.", el("p", now ? "A program or another person wrote it since you opened it. Saving replaces that." : "Saving creates it again."), { confirm: "Save all the same", kind: "danger", send: put });
  }, "small primary", true);
  const leave = button("Cancel", async () => {
    drafts.delete(address);
    await done();
  }, "small");
  area.addEventListener("input", () => {
    drafts.set(address, Object.assign(draft, { value: area.value }));
    drawn();
  });
  area.addEventListener("scroll", () => {
    gutter.scrollTop = area.scrollTop;
  });
  area.addEventListener("keydown", (e) => keys(e, area, save));
  drawn();
  requestAnimationFrame(() => area.focus());
  return el("div.stack", el("div.bar", el("h2.mono.break", file), el("div.actions", state, leave, save)), place,
    el("p.quiet", el("small", "Ctrl S saves. Tab inserts a tab; after Escape it moves on.")));
}

let free = false; // Escape was pressed: Tab moves the focus

function keys(e, area, save) {
  if ((e.ctrlKey || e.metaKey) && e.key === "s") {
    e.preventDefault();
    save.click();
  } else if (e.key === "Tab" && !free && !e.shiftKey && !e.ctrlKey && !e.altKey) {
    e.preventDefault();
    document.execCommand("insertText", false, "\t"); // unlike setRangeText, it can be undone
  }
  free = e.key === "Escape";
}

// added asks for a name in a directory, and makes a file or a directory there.
export function added(at, dir, join, directory, done) {
  const name = el("input", { name: "name", required: true, autocomplete: "off", spellcheck: "false", autocapitalize: "off", "aria-label": "Name" });
  dialog(directory ? "New directory" : "New file", [el("p.quiet.break", "In ", el("span.mono", dir)), name], { confirm: "Create", send: async (v) => {
    const path = join(dir, v.name);
    const r = await request("POST", `${at}/files/exists`, { body: { path } });
    if ((await r.json()).data?.exists) throw new Error(`"${v.name}" exists already.`);
    if (directory) await request("POST", `${at}/files/mkdir`, { body: { path } });
    else await upload(`${at}/files/raw?path=${encodeURIComponent(path)}`, new Blob([]));
    done(path);
  } });
}
