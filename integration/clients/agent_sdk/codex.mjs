// Codex's SDK: node codex.mjs MODULES PROGRAM DIR. Each line on stdout is JSON.
import { pathToFileURL } from "node:url";

const [modules, program, dir] = process.argv.slice(2);
const { Codex } = await import(pathToFileURL(modules + "/@openai/codex-sdk/dist/index.js"));
const say = (what, value) => console.log(JSON.stringify({ what, value }));
const codex = new Codex({ codexPathOverride: program });
const options = { workingDirectory: dir };
const thread = codex.startThread(options);
say("result", (await thread.run("please make the file")).finalResponse);
say("asked", "");
const abort = new AbortController();
try {
  const { events } = await codex.startThread(options).runStreamed("and now wait", { signal: abort.signal });
  for await (const e of events) if (e.type === "item.started" || e.item?.text === "waiting") abort.abort();
} catch (e) {
  say("cancelled", e.name);
}
say("result", (await codex.resumeThread(thread.id, options).run("once more")).finalResponse);
