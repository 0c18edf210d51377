// A sandbox's receipt: what the kernel enforces, layer by layer.
import { el } from "./dom.js";
import { state, copyable } from "./ui.js";

const words = { held: "enforced", degraded: "degraded", missing: "missing", off: "left out" };
const tones = { held: "good", degraded: "wait", missing: "bad", off: "" };
const verdicts = {
  full: ["good", "Fully enforced.", "Every layer holds, by a test or a value read back from the kernel."],
  degraded: ["wait", "Degraded.", "Namespaces hold. A layer below is weaker than it could be."],
  minimal: ["bad", "Minimal.", "There are no namespaces: only Landlock and seccomp."],
};

export function receipt(r) {
  if (!r) return el("p.quiet", "There is no receipt yet: the sandbox makes it when it starts.");
  const [tone, word, what] = verdicts[r.level] ?? ["", String(r.level ?? "Unknown."), ""];
  return [el("div.verdict", { class: tone }, el("div", el("b", word), " ", what)),
    el("ul.layers", (r.layers ?? []).map((l) => layer(l.name, l))),
    el("h3", "Limits"),
    el("ul.layers", (r.limits ?? []).map((l) => layer(l.name, { ...l, detail: [readable(l.name, l.value), l.mechanism].filter(Boolean).join(" · ") }))),
    el("dl.facts", fact("Kernel", r.kernel), fact("Network", r.network), fact("Landlock ABI", r.landlock_abi), fact("Image digest", r.image_digest), fact("seccomp filter", r.seccomp_sha256))];
}

function readable(name, value) {
  const n = Number(value);
  return (name === "memory" || name === "disk") && Number.isFinite(n) && n > 0 ? `${(n / 2 ** 20).toFixed(0)} MiB` : String(value ?? "");
}

function layer(name, l) {
  return el("li", el("span.name", name), state(words[l.status] ?? l.status, tones[l.status] ?? ""),
    el("div.detail", l.detail, l.why ? el("p", l.why) : null, l.fix ? el("code", copyable(l.fix)) : null));
}

function fact(name, value) {
  return value === undefined || value === null || value === "" ? null : [el("dt", name), el("dd.mono", String(value))];
}
