// Opens pages in one Chromium and answers questions about them, a line of JSON for a line of JSON.
//     node ask.mjs FOLDER < questions > answers
// FOLDER holds node_modules. A question: {"page": path, "width", "height", "dark", "before": code, "steps": [{"do": …}, …]}.
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const require = createRequire(join(process.argv[2], 'package.json'));
const puppeteer = require('puppeteer-core').default ?? require('puppeteer-core');
const { default: chromium } = await import(pathToFileURL(require.resolve('@sparticuz/chromium')).href);

const FLAGS = ['--no-sandbox', '--no-zygote', '--lang=en-US', '--use-angle=swiftshader', '--use-gl=angle',
  '--enable-unsafe-swiftshader', '--font-render-hinting=none', '--hide-scrollbars', '--disable-dev-shm-usage'];

const STEPS = {
  visit: async (page, { path }) => {
    await page.goto(new URL(path, page.url()).href, { waitUntil: 'load' });
    await page.waitForFunction('document.documentElement.dataset.ready === "yes"', { timeout: 20000 });
  },
  evaluate: (page, { code }) => page.evaluate(code),
  click: (page, { selector }) => page.click(selector),
  type: (page, { selector, text }) => page.type(selector, text),
  key: (page, { key }) => page.keyboard.press(key),
  media: (page, { type }) => page.emulateMediaType(type),
  scheme: (page, { value }) => page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value }]),
  resize: (page, { width, height }) => page.setViewport({ width, height }),
  tree: (page) => page.accessibility.snapshot({ interestingOnly: true }),
  pdf: async (page) => (await page.pdf({ format: 'A4' })).length,
  select: (page, { selector, value }) => page.select(selector, value),
  wait: (page, { code }) => page.waitForFunction(code, { timeout: 20000 }).then(() => true),
  screenshot: async (page, { path, selector, whole = false }) => {
    if (selector) await (await page.$(selector)).screenshot({ path });
    else await page.screenshot({ path, fullPage: whole });
    return path;
  },
  // shares of the element's width and height
  hover: async (page, { selector, x = 0.5, y = 0.5 }) => {
    const element = await page.$(selector);
    await element.scrollIntoView();
    const box = await element.boundingBox();
    await page.mouse.move(box.x + box.width * x - 1, box.y + box.height * y);
    await page.mouse.move(box.x + box.width * x, box.y + box.height * y);
    return page.evaluate(() => {
      const hover = document.getElementById('hover');
      return hover.hidden ? null : hover.innerText;
    });
  },
  // from one share of the element's width to another, with the button held down
  drag: async (page, { selector, from, to, y = 0.5 }) => {
    const element = await page.$(selector);
    await element.scrollIntoView();
    const box = await element.boundingBox();
    await page.mouse.move(box.x + box.width * from, box.y + box.height * y);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * to, box.y + box.height * y, { steps: 8 });
    await page.mouse.up();
  },
  wheel: async (page, { selector, x = 0.5, y = 0.5, turn }) => {
    const element = await page.$(selector);
    await element.scrollIntoView();
    const box = await element.boundingBox();
    await page.mouse.move(box.x + box.width * x, box.y + box.height * y);
    await page.mouse.wheel({ deltaY: turn });
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  },
  // how long each frame takes while the page is scrolled from its top to its end
  scroll: (page) => page.evaluate(async () => {
    const frames = [];
    let before = performance.now();
    for (let top = 0; top < document.documentElement.scrollHeight; top += 400) {
      scrollTo({ top, behavior: 'instant' });
      await new Promise((done) => requestAnimationFrame(done));
      frames.push(performance.now() - before);
      before = performance.now();
    }
    return { frames: frames.length, worst_ms: Math.max(...frames), mean_ms: frames.reduce((a, b) => a + b, 0) / frames.length };
  }),
};

async function answer(browser, asked) {
  const told = { answers: [], console: [], errors: [], requests: [], paint_ms: null };
  const page = await browser.newPage();
  try {
    await page.setViewport({ width: asked.width ?? 1200, height: asked.height ?? 800 });
    if (asked.dark) await STEPS.scheme(page, { value: 'dark' });
    page.on('console', (message) => told.console.push(`${message.type()}: ${message.text()}`));
    page.on('pageerror', (error) => told.errors.push(String(error)));
    page.on('request', (request) => told.requests.push(request.url()));
    page.on('dialog', (dialog) => { told.errors.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
    if (asked.before) await page.evaluateOnNewDocument(asked.before);
    await page.goto(asked.page.startsWith('http') ? asked.page : pathToFileURL(asked.page).href, { waitUntil: 'load' });
    await page.waitForFunction('document.documentElement.dataset.ready === "yes"', { timeout: 20000 });
    for (const step of asked.steps ?? []) told.answers.push((await STEPS[step.do](page, step)) ?? null);
    told.paint_ms = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null);
  } catch (error) {
    told.errors.push(String(error));
  } finally {
    await page.close();
  }
  return told;
}

// It unpacks itself into the folder for temporary files, where everybody's would be the same.
async function unpacked() {
  const before = process.env.TMPDIR ?? '/tmp';
  process.env.TMPDIR = resolve(process.argv[2]);
  const path = await chromium.executablePath();
  process.env.TMPDIR = before;
  return path;
}

const browser = await puppeteer.launch({
  executablePath: process.env.RANKSCOPE_CHROMIUM || (await unpacked()),
  args: FLAGS, headless: 'shell', env: { ...process.env, LANG: 'en_US.UTF-8', LC_ALL: 'en_US.UTF-8' },
});
try {
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(browser, JSON.parse(line)))}\n`);
  }
} finally {
  await browser.close();
}
