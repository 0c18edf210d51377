// A sandbox's receipt: what the kernel enforces. What falls short comes first; the rest is a line, and its details are on demand.
import { el } from "./dom.js";
import { state, copyable } from "./ui.js";
import { below } from "./lists.js";

const words = { held: "enforced", degraded: "degraded", missing: "missing", off: "left out" };
const tones = { held: "good", degraded: "wait", missing: "bad", off: "" };
const verdicts = {
  full: ["good", "Fully enforced.", "Every layer holds, by a test or a value read back from the kernel."],
  degraded: ["wait", "Degraded.", "Namespaces hold. What falls short is below."],
  minimal: ["bad", "Minimal.", "There are no namespaces: only Landlock and seccomp."],
};

export function receipt(r) {
  if (!r) return el("p.quiet", "There is no receipt yet: the sandbox makes it when it starts.");
  const [tone, word, what] = verdicts[r.level] ?? ["", String(r.level ?? "Unknown."), ""];
  const layers = r.layers ?? [], limits = (r.limits ?? []).map((l) => ({ ...l, name: `${l.name} limit`, detail: [readable(l.name, l.value), l.mechanism].filter(Boolean).join(" · ") }));
  const all = [...layers, ...limits];
  const short = all.filter((l) => l.status !== "held" && l.status !== "off");
  const names = (status) => all.filter((l) => l.status === status).map((l) => l.name).join(", ");
  return [el("div.verdict", { class: r.level === "full" || below(r.level) ? tone : "" }, el("div", el("b", word), " ", what)),
    short.length ? el("ul.layers.short", short.map((l) => layer(l.name, { ...l, detail: l.why ? "" : l.detail }))) : null,
    names("held") ? el("p.enforced", el("b", "Enforced: "), names("held"), ".") : null,
    names("off") ? el("p.enforced.quiet", "Left out on request: ", names("off"), ".") : null,
    el("details", el("summary", "All layers, limits and digests"), el("div.stack",
      el("ul.layers", all.map((l) => layer(l.name, { ...l, why: "", fix: "" }))),
      el("dl.facts", fact("Kernel", r.kernel), fact("Network", r.network), fact("Landlock ABI", r.landlock_abi), fact("Image digest", r.image_digest), fact("seccomp filter", r.seccomp_sha256))))];
}

function readable(name, value) {
  const n = Number(value);
  return (name === "memory" || name === "disk") && Number.isFinite(n) && n > 0 ? `${(n / 2 ** 20).toFixed(0)} MiB` : String(value ?? "");
}

function layer(name, l) {
  return el("li", el("span.name", name), state(words[l.status] ?? l.status, tones[l.status] ?? ""),
    el("div.detail", l.detail, l.why ? el("p", l.why) : null, l.fix ? remedy(String(l.fix)) : null));
}

// A receipt's fixes are lines for a person at a command line, who starts demesne again. Here it is a server that is started, on
// another machine perhaps.
const remedies = [
  [/^systemd-run --user --scope .*demesne run\b/, "Start the server with control groups of its own:", "systemd-run --user --scope -p Delegate=yes -- demesne serve"],
  [/^systemd-run --user --pty demesne\b/, "Start the server outside of what set no_new_privs. In its systemd unit, set:", "NoNewPrivileges=no"],
  [/^sudo demesne run\b/, "Start the server as root:", "sudo demesne serve"],
  [/^sudo -u USER demesne\b/, "Start the server as a user that /proc/self/uid_map lists:", "sudo -u USER demesne serve"],
  [/^sudo prlimit\b/, "Start the server with a higher limit of core files. In its systemd unit, set:", "LimitCORE=infinity"],
  [/--out DIR\b/, "Outputs are on a disk that others fill too. Mount a file system of this size at the server’s directory of outputs."],
  [/^export DEMESNE_SANDBOX_ROOT=/, "Start the server with this variable. The directory’s disk must suit overlayfs, such as ext4, xfs or btrfs:", "DEMESNE_SANDBOX_ROOT=DIR"],
  [/^(podman|docker) run\b/, "The server is in a container. Start that with:", "--security-opt unmask=ALL  (podman), --security-opt systempaths=unconfined  (docker)"],
  [/^demesne check\b/, "On the server’s machine, this prints what helps:", "demesne check"],
];

// remedy returns what removes a cause, in the words of a server.
function remedy(fix) {
  const [, what, line] = remedies.find(([r]) => r.test(fix)) ?? [null, "On the server’s machine:", fix];
  return el("div.remedy", el("p", what), line ? el("code", copyable(line)) : null);
}

function fact(name, value) {
  return value === undefined || value === null || value === "" ? null : [el("dt", name), el("dd.mono", String(value))];
}
