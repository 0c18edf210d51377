// Does what the README of @e2b/desktop shows. The argument is a directory for screenshots.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { Sandbox } from '@e2b/desktop'

const d = await Sandbox.create({ timeoutMs: 600e3 })
const shot = async (name) => writeFileSync(`${process.argv[2]}/${name}.png`, await d.screenshot())
assert.deepEqual(await d.getScreenSize(), { width: 1024, height: 768 })
await d.launch('google-chrome')
assert.ok(await d.waitAndVerify('xdotool search --onlyvisible --name Chromium', () => true, 60), 'no window of the browser')
await d.wait(3000)
const [browser] = await d.getApplicationWindows('chromium')
assert.match(await d.getWindowTitle(browser), /Chromium/)
await shot('browser')
await d.commands.run('xterm -geometry 80x24+0+30', { background: true })
assert.ok(await d.waitAndVerify('xdotool search --onlyvisible --class xterm', () => true, 60), 'no terminal')
await d.leftClick(200, 200)
await d.write("echo it is 'typed' > /tmp/typed")
await d.press('enter')
assert.ok(await d.waitAndVerify('cat /tmp/typed', (r) => r.stdout === 'it is typed\n', 30), 'nothing was typed')
await shot('typed')
await d.doubleClick(100, 200)
await d.rightClick(900, 600)
await d.middleClick(900, 600)
await d.press(['ctrl', 'c'])
await d.scroll('down', 3)
await d.drag([100, 100], [200, 210])
assert.deepEqual(await d.getCursorPosition(), { x: 200, y: 210 })
await d.files.write('/home/user/index.js', "console.log('hello')")
await d.open('/home/user/index.js')
await d.stream.start({ requireAuth: true, windowId: await d.getCurrentWindowId() })
const url = new URL(d.stream.getUrl({ authKey: d.stream.getAuthKey() }))
const page = await new Promise((done, no) => request({ host: '127.0.0.1', port: url.port, path: url.pathname, headers: { Host: url.host } },
  (r) => { let text = ''; r.on('data', (b) => { text += b }).on('end', () => done(text)) }).on('error', no).end())
assert.match(page, /noVNC/)
await d.stream.stop()
await d.kill()
