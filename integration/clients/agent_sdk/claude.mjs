// Claude's Agent SDK: node claude.mjs MODULES PROGRAM DIR. Each line on stdout is JSON.
import { pathToFileURL } from "node:url";

const [modules, program, cwd] = process.argv.slice(2);
const { query } = await import(pathToFileURL(modules + "/@anthropic-ai/claude-agent-sdk/sdk.mjs"));
const say = (what, value) => console.log(JSON.stringify({ what, value }));

async function turn(prompt, options = {}) {
  const abort = new AbortController();
  let session;
  const asked = [];
  const q = query({
    prompt,
    options: {
      cwd,
      pathToClaudeCodeExecutable: program,
      permissionMode: "default",
      abortController: abort,
      stderr: (line) => process.stderr.write(line),
      canUseTool: async (name, input) => {
        asked.push(name);
        return { behavior: "allow", updatedInput: input };
      },
      ...options,
    },
  });
  try {
    for await (const m of q) {
      session = m.session_id ?? session;
      if (m.type === "assistant" && m.message.content.some((c) => c.text === "waiting")) abort.abort();
      if (m.type === "result") say("result", m.result ?? m.subtype);
    }
  } catch (e) {
    say("cancelled", e.name);
  }
  say("asked", asked.join(" "));
  return session;
}

const session = await turn("please make the file");
await turn("and now wait");
await turn("once more", { resume: session });
