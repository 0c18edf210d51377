// Connects Playwright and Puppeteer, unchanged, to a browser in a sandbox. The argument is its address. It prints what pages
// say, and the policies that Chromium has in force.
import { chromium } from 'playwright-core'
import puppeteer from 'puppeteer-core'

const address = process.argv[2]
const page = 'data:text/html,<title>Named</title><button id=b onclick="document.title+=1">x</button>'

const playwright = await chromium.connectOverCDP(address)
const first = await playwright.contexts()[0].newPage()
await first.goto(page)
await first.click('#b')
console.log('playwright', await first.title())
await first.goto('chrome://policy')
const row = (name) => first.locator('policy-row').filter({ hasText: name }).first()
for (const name of ['QuicAllowed', 'EncryptedClientHelloEnabled', 'DnsOverHttpsMode']) {
  console.log(name, (await row(name).locator('.value.row, .value').first().textContent()).trim())
}
await playwright.close()

const other = await puppeteer.connect({ browserURL: address })
const second = await other.newPage()
await second.goto(page)
await second.click('#b')
console.log('puppeteer', await second.title())
await other.disconnect()
