// Shows what a sandbox's programs print of a stored secret that reached them by another way. The argument is the value.
import assert from 'node:assert/strict'
import { Sandbox, Secret } from 'e2b'

const value = process.argv[2]
await Secret.create('shown-key', value)
const network = { allowOut: ['vault.test'], denyOut: ['0.0.0.0/0'], rules: { 'vault.test': [{ transform: { headers: { Authorization: `Bearer ${Secret.fill('shown-key')}` } } }] } }
const s = await Sandbox.create({ timeoutMs: 600e3, network })
await s.files.write('/leak', value)
const show = 'cat /leak; echo; base64 -w0 /leak; echo; head -c 5 /leak; sleep 0.2; tail -c +6 /leak; echo; cat /leak >&2'
const hidden = (text, times) => {
  assert.ok(!text.includes(value.slice(5)) && text.split('***').length > times, text)
}
const done = await s.commands.run(show)
hidden(done.stdout, 3)
hidden(done.stderr, 1)
let shown = ''
const pty = await s.pty.create({ cols: 80, rows: 24, onData: (b) => { shown += Buffer.from(b).toString() } })
await s.pty.sendInput(pty.pid, Buffer.from(show + '; exit\r'))
await pty.wait()
hidden(shown, 4)
// A prompt that ends like the beginning of the value is shown at once.
let prompt
const seen = new Promise((done) => { prompt = done })
const waiting = await s.commands.run(`printf 'word: ${value[0]}'; sleep 60`, { background: true, onStdout: (text) => { if (text.endsWith(value[0])) prompt() } })
await seen
await waiting.kill()
assert.ok(await s.kill())
