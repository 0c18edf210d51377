// Times clicks by Playwright on a page that counts them, and prints the median in milliseconds. It needs playwright-core, and
// Chromium at /usr/bin/chromium.
import { createRequire } from 'node:module'
const { chromium } = createRequire(process.env.CLIENTS ?? '/usr/local/lib/node_modules/')('playwright-core')

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] })
const page = await browser.newPage()
await page.setContent('<button id=b onclick="this.textContent = 1 + +this.textContent">0</button>')
const times = []
for (let i = 0; i < 120; i++) {
  const began = performance.now()
  await page.click('#b')
  times.push(performance.now() - began)
}
if (await page.textContent('#b') !== '120') throw new Error('clicks were lost')
await browser.close()
console.log(times.slice(20).sort((a, b) => a - b)[50].toFixed(2))
