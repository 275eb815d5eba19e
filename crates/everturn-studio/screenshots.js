/**
 * Creates the pictures of the README and of the guide: `node crates/everturn-studio/screenshots.js` from the root of the repository,
 * after `./test studio` has installed what it needs and built the playground.
 */

import { execFileSync } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { open, openPage } from './tests/page/support.js';

const closing = [];
const { playground, browser } = await open((close) => closing.push(close));
await mkdir('docs/images', { recursive: true });
const options = { viewport: { width: 1280, height: 720 }, colorScheme: 'light', reducedMotion: 'reduce' };
const shoot = async (page, name) => {
  await page.mouse.move(0, 0);
  await page.waitForTimeout(300);
  await page.screenshot({ path: `docs/images/${name}.png` });
};

const chat = await openPage(browser, playground, '#/chef/dinner', options);
await chat.say('Stock the pantry with tomatoes');
await chat.page.locator('.live').waitFor();
await chat.idle();
await chat.say('What can I cook?');
await chat.page.locator('.live .markdown').waitFor();
await chat.page.waitForTimeout(500);
await shoot(chat.page, 'chat');
await chat.idle();

const { page, tab, button } = await openPage(browser, playground, '#/chef/dinner', options);
await tab('Timeline');
await page.getByRole('treeitem', { name: '5 What can I cook without beans?' }).click();
await page.getByText('You are looking at').waitFor();
await shoot(page, 'timeline');
await button('Compare').click();
await page.getByRole('treeitem', { name: '6 What is in season in month 11?' }).click();
await page.getByText('8 messages in common').waitFor();
await shoot(page, 'comparison');

for (const close of closing) await close();
try {
  execFileSync('pngquant', ['--force', '--ext', '.png', ...['chat', 'timeline', 'comparison'].map((name) => `docs/images/${name}.png`)]);
} catch {
  // Optional: the pictures are only larger without it.
}
