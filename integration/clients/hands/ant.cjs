// The commands of ant that a worker uses, on the SDK that the vendor publishes: ant itself is in no registry.
// $MODULES has the SDK. As ant does, poll calls the program of --on-work for each item, with the item on stdin and the session in
// variables, and run serves one item.
const { spawn } = require('node:child_process');
(async () => {
  const { default: Anthropic } = await import(process.env.MODULES + '/@anthropic-ai/sdk/index.mjs');
  const { ANTHROPIC_ENVIRONMENT_ID: environmentId, ANTHROPIC_ENVIRONMENT_KEY: environmentKey } = process.env;
  const client = new Anthropic({ authToken: environmentKey, logLevel: 'info' });
  const stop = new AbortController();
  process.on('SIGTERM', () => stop.abort());
  const [group, verb, flag, script] = process.argv.slice(2);
  if (group !== 'beta:worker') throw new Error('unknown command ' + group);
  if (verb === 'run') {
    await client.beta.environments.work.worker({ workdir: process.cwd() }).handleItem({ signal: stop.signal });
    return;
  }
  if (verb !== 'poll' || flag !== '--on-work') throw new Error('unknown command ' + verb);
  for await (const work of client.beta.environments.work.poller({ environmentId, environmentKey, autoStop: false, signal: stop.signal })) {
    const child = spawn(script, {
      env: { ...process.env, ANTHROPIC_WORK_ID: work.id, ANTHROPIC_ENVIRONMENT_ID: work.environment_id, ANTHROPIC_SESSION_ID: work.data.id },
      stdio: ['pipe', 2, 2],
    });
    const end = () => child.kill('SIGTERM');
    stop.signal.addEventListener('abort', end);
    child.stdin.end(JSON.stringify(work));
    await new Promise((done) => child.on('exit', done));
    stop.signal.removeEventListener('abort', end);
  }
})().catch((e) => {
  console.error(String(e));
  process.exitCode = 1;
});
