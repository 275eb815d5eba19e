/** The playground in a temporary folder, and a real browser. */

import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const packages = createRequire(join(process.env.STUDIO_PACKAGES ?? join(process.cwd(), '.tools/studio'), 'index.js'));
const { chromium } = packages('playwright-core');

/** Variables that would select another model are removed from the environment. */
const MODELS = /^(OPENAI|ANTHROPIC|GEMINI|GOOGLE|OLLAMA|EVERTURN)_/;

export const axeSource = () => packages.resolve('axe-core/axe.min.js');

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** The program, which can be killed and restarted at the same address. */
export class Playground {
  #child = null;

  /** @param {string[]} options further arguments of the program */
  static async start(options = []) {
    const playground = new Playground();
    playground.options = options;
    playground.folder = await mkdtemp(join(tmpdir(), 'studio-'));
    playground.port = await freePort();
    await playground.begin();
    return playground;
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  async begin() {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !MODELS.test(name)));
    this.#child = spawn(process.env.PLAYGROUND ?? 'target/debug/playground', ['--addr', `127.0.0.1:${this.port}`, '--database', join(this.folder, 'test.db'), ...this.options], { env, stdio: ['ignore', 'pipe', 'inherit'] });
    await new Promise((resolve, reject) => {
      this.#child.stdout.on('data', (text) => String(text).includes('Serving on') && resolve());
      this.#child.on('exit', () => reject(new Error('the playground ended')));
    });
  }

  /** @param {'SIGKILL' | 'SIGTERM'} signal */
  async end(signal = 'SIGKILL') {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.on('exit', resolve));
    child.kill(signal);
    await ended;
  }

  async post(path, data, headers = {}) {
    const response = await fetch(this.url + path, { method: 'POST', headers: { 'content-type': 'application/json', 'x-everturn-extensions': '1', ...headers }, body: JSON.stringify({ data }) });
    return response.json();
  }
}

/** Opens the program and a browser, and closes them when the test file ends. */
export async function open(after, options = []) {
  const playground = await Playground.start(options);
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
  after(async () => {
    await browser.close();
    await playground.end();
    await rm(playground.folder, { recursive: true, force: true });
  });
  return { playground, browser };
}

/** A message that the chef repeats at reading speed: its turn lasts minutes, longer than any test step. */
export const LONG = Array.from({ length: 5000 }, (_, index) => `word${index}`).join(' ');

/** Opens a page at a place, and collects its errors. */
export async function openPage(browser, playground, place = '', options = {}) {
  const context = options.context ?? await browser.newContext({ viewport: { width: 1360, height: 860 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const faults = [];
  page.on('pageerror', (error) => faults.push(error.message));
  page.on('console', (message) => message.type() === 'error' && !message.text().includes('Failed to load resource') && !message.text().includes('net::ERR') && faults.push(message.text()));
  await page.goto(`${playground.url}/${place}`);
  return { page, context, faults, ...parts(page) };
}

function parts(page) {
  const log = page.getByRole('log', { name: 'Conversation' });
  return {
    log,
    from: (name) => log.getByRole('article', { name, exact: true }),
    say: async (text) => {
      await page.getByRole('textbox', { name: 'Message' }).fill(text);
      await page.getByRole('button', { name: 'Send', exact: true }).click();
    },
    tab: (name) => page.getByRole('tab', { name, exact: true }).click(),
    items: page.getByRole('tree', { name: 'Timeline' }).getByRole('treeitem'),
    button: (name) => page.getByRole('button', { name, exact: true }),
    /** Waits until no turn is running. */
    idle: () => page.getByRole('button', { name: 'Send', exact: true }).waitFor(),
  };
}
