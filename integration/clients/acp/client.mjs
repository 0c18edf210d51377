// An editor, by the protocol's published library: node client.mjs MODULES DIR STEP… -- COMMAND…
// Each step and each message of the agent is a line of JSON on stdout.
import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const split = process.argv.indexOf("--");
const [modules, dir, ...steps] = process.argv.slice(2, split);
const acp = await import(pathToFileURL(modules + "/@agentclientprotocol/sdk/dist/v1/stable/acp.js"));
const say = (what, value) => console.log(JSON.stringify({ what, value }));
const started = Date.now();
const [command, ...args] = process.argv.slice(split + 1);
const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
let answer = "allow_once";
let waits = () => {};
const editor = acp
  .client({ name: "editor" })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    say("permission", params.toolCall.title);
    const option = params.options.find((o) => o.kind === answer) ?? params.options[0];
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  })
  .onRequest(acp.methods.client.fs.readTextFile, ({ params }) => {
    say("read", params.path);
    return { content: readFileSync(params.path, "utf8") };
  })
  .onRequest(acp.methods.client.fs.writeTextFile, ({ params }) => {
    say("write", params.path);
    writeFileSync(params.path, params.content);
    return {};
  })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    const u = params.update;
    if (process.env.ACP_RAW) say("raw", u);
    const text = u.content?.text ?? (Array.isArray(u.content) ? u.content.map((c) => c.type).join(" ") : undefined);
    say(u.sessionUpdate, text ?? u.title ?? u.status);
    if (u.sessionUpdate === "agent_message_chunk") waits();
  });
await editor.connectWith(acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)), async (ctx) => {
  const call = async (method, params) => {
    try {
      return await ctx.request(method, params);
    } catch (e) {
      say("error", `${method}: ${e.message} ${JSON.stringify(e.data ?? "")}`);
      return {};
    }
  };
  const m = acp.methods.agent;
  const hello = await call(m.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: true },
  });
  say("initialized", hello.agentCapabilities?.loadSession);
  say("milliseconds", Date.now() - started);
  let session = "";
  for (const step of steps) {
    const [verb, ...rest] = step.split(" ");
    const text = rest.join(" ");
    const prompt = (words) => call(m.session.prompt, { sessionId: session, prompt: [{ type: "text", text: words }] });
    switch (verb) {
      case "new":
        session = (await call(m.session.new, { cwd: text || dir, mcpServers: [] })).sessionId;
        say("session", session);
        break;
      case "load":
        session = text;
        await call(m.session.load, { sessionId: text, cwd: dir, mcpServers: [] });
        say("loaded", text);
        break;
      case "mode":
        await call(m.session.setMode, { sessionId: session, modeId: text });
        break;
      case "answer":
        answer = text;
        break;
      case "prompt":
        say("stopped", (await prompt(text)).stopReason);
        break;
      case "cancel": {
        const turn = prompt(text);
        await new Promise((r) => (waits = r));
        waits = () => {};
        await ctx.notify(m.session.cancel, { sessionId: session });
        say("stopped", (await turn).stopReason);
        break;
      }
    }
  }
});
agent.stdin.end();
agent.on("exit", (code, signal) => say("exit", code ?? signal));
