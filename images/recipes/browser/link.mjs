// Links Debian's chromium to where each installed Playwright looks for the browser of its own revision.
import { createRequire } from "node:module";
import { mkdirSync, symlinkSync, existsSync } from "node:fs";
import { dirname, join } from "node:path";

const modules = "/usr/local/lib/node_modules";
const require = createRequire(modules + "/");
for (const at of [join(modules, "playwright-core"), join(modules, "@playwright/mcp/node_modules/playwright-core")]) {
  if (!existsSync(at)) continue;
  const full = require(at).chromium.executablePath();
  const { browsers } = require(join(at, "browsers.json"));
  const shell = browsers.find((b) => b.name === "chromium-headless-shell");
  const dir = full.match(/\/(chrome-[a-z0-9-]+)\/chrome$/)[1].replace("chrome-", "chrome-headless-shell-");
  const headless = join(process.env.PLAYWRIGHT_BROWSERS_PATH, `chromium_headless_shell-${shell.revision}`, dir, "chrome-headless-shell");
  for (const name of [full, headless]) {
    mkdirSync(dirname(name), { recursive: true });
    symlinkSync("/usr/bin/chromium", name);
  }
}
mkdirSync("/opt/google/chrome", { recursive: true });
symlinkSync("/usr/bin/chromium", "/opt/google/chrome/chrome"); // Playwright's channel "chrome"
