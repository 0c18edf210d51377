// The outputs of a sandbox: the files in /out.
import { replace, add, el, keyed } from "./dom.js";
import { poll } from "./api.js";
import { empty, code } from "./ui.js";
import { card, save } from "./show.js";
import { isDir, listDirectory, readFile, join } from "./files.js";

const most = 60; // cards
const shownMost = 4 << 20; // bytes of one output

export async function sandboxOutputs(body, { at }, signal) {
  const place = el("div.outputs"), none = el("div"), fault = el("div.fault", { role: "alert" });
  add(body, [fault, none, place]);
  await poll(signal, async () => {
    const all = (await listDirectory(at, "/out", signal)).filter((e) => !isDir(e)).slice(0, most);
    replace(none, all.length ? null : empty("No outputs.", "Files in ", code("/out"), " appear here: images, tables, HTML, text."));
    keyed(place, all, (e) => e.name, (e) => outputCard(at, e, signal));
  }, (text) => replace(fault, text), 4000);
}

function outputCard(at, e, signal) {
  const name = String(e.name).split("/").pop();
  const file = join("/out", name);
  return card({ name, size: e.size, signal, load: () => readFile(at, file, signal, shownMost),
    download: async () => save(name, (await readFile(at, file, signal, Infinity)).data) });
}
