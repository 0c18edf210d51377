// Installs npm of the major version that the argument names into /usr/local, from the registry, by its SHA-512.
import { createHash } from "node:crypto";
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";

const registry = (process.env.npm_config_registry || process.env.NPM_REGISTRY).replace(/\/$/, "");
const all = await (await fetch(`${registry}/npm`, { headers: { accept: "application/vnd.npm.install-v1+json" } })).json();
const order = (v) => v.split(".").map(Number);
const newest = Object.keys(all.versions)
  .filter((v) => /^\d+\.\d+\.\d+$/.test(v) && v.startsWith(process.argv[2] + "."))
  .sort((a, b) => order(a)[1] - order(b)[1] || order(a)[2] - order(b)[2])
  .at(-1);
const { tarball, integrity } = all.versions[newest].dist;
const bytes = Buffer.from(await (await fetch(registry + new URL(tarball).pathname)).arrayBuffer());
if ("sha512-" + createHash("sha512").update(bytes).digest("base64") !== integrity)
  throw new Error(`npm ${newest}: the content does not match its digest`);
const home = "/usr/local/lib/node_modules/npm";
mkdirSync(home, { recursive: true });
writeFileSync("/tmp/npm.tgz", bytes);
execFileSync("tar", ["-xzf", "/tmp/npm.tgz", "-C", home, "--strip-components=1", "--no-same-owner"]);
rmSync("/tmp/npm.tgz");
writeFileSync(`${home}/npmrc`, "prefix = /usr/local\naudit = false\nfund = false\nupdate-notifier = false\n");
for (const name of ["npm", "npx"]) symlinkSync(`../lib/node_modules/npm/bin/${name}-cli.js`, `/usr/local/bin/${name}`);
