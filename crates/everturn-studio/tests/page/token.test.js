/** A server that identifies its callers: the page loads, asks for a token, and calls with it. */

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { open, openPage } from './support.js';

const TOKEN = 'a-long-random-token';
const { playground, browser } = await open(after, ['--token', TOKEN]);

const dialog = (page) => page.getByRole('dialog', { name: 'Token' });
const field = (page) => dialog(page).getByLabel('Token', { exact: true });

async function give(page, token) {
  await field(page).fill(token);
  await dialog(page).getByRole('button', { name: 'Continue' }).click();
}

test('the page asks for a token, hides it, and works with it', async () => {
  const { page, context, faults, from, say, idle, tab } = await openPage(browser, playground, '#/chef');

  assert.equal(await field(page).getAttribute('type'), 'password');
  await give(page, TOKEN);
  await page.getByRole('textbox', { name: 'Message' }).waitFor();
  await say('Stock the pantry with leeks');
  await idle();
  await from('chef').first().waitFor();
  await tab('Trace');
  await page.getByRole('tabpanel', { name: 'Trace' }).getByLabel('Turn').getByRole('option', { name: /^chef/ }).first().waitFor({ state: 'attached' });

  const kept = await page.evaluate(() => [JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie]);
  assert.ok(kept[0].includes(TOKEN));
  assert.ok(!kept[1].includes(TOKEN) && !kept[2].includes(TOKEN));
  assert.ok(!page.url().includes(TOKEN));
  assert.deepEqual(faults, []);
  await context.close();
});

test('a wrong token is reported, and another one can be entered', async () => {
  const { page, context, faults } = await openPage(browser, playground, '#/chef');

  await give(page, 'a-wrong-token');
  await dialog(page).getByText('The server rejects this token').waitFor();
  assert.equal(await field(page).inputValue(), '');
  await give(page, TOKEN);
  await page.getByRole('textbox', { name: 'Message' }).waitFor();

  assert.deepEqual(faults, []);
  await context.close();
});

test('after cancelling, the token can be entered later', async () => {
  const { page, context, faults } = await openPage(browser, playground, '#/chef');

  await give(page, 'a-wrong-token');
  await dialog(page).getByText('The server rejects this token').waitFor();
  await dialog(page).getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('heading', { name: 'The server needs a token' }).waitFor();
  assert.equal(await dialog(page).count(), 0);
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);

  await page.getByRole('button', { name: 'Enter a token' }).click();
  await give(page, TOKEN);
  await page.getByRole('textbox', { name: 'Message' }).waitFor();

  assert.deepEqual(faults, []);
  await context.close();
});
