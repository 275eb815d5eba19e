import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { LONG, open, openPage } from './support.js';

const { playground, browser } = await open(after);

test('the first session is listed, with a branch and a label', async () => {
  const { page, items, tab, faults } = await openPage(browser, playground);

  await page.waitForURL(/#\/chef\/dinner/);
  await tab('Timeline');
  await page.locator('.item', { hasText: 'well stocked' }).waitFor();
  await page.getByRole('treeitem', { name: '2 Stock the pantry with beans' }).waitFor();
  assert.equal(await items.count(), 6);
  assert.deepEqual(faults, []);
});

test('retrying and editing an earlier message create branches and keep the later messages', async () => {
  const { page, from, items, say, tab, idle } = await openPage(browser, playground, '#/chef');
  await tab('Timeline');
  for (const text of ['Stock the pantry with leeks', 'Stock the pantry with beans', 'What can I cook?']) {
    await say(text);
    await idle();
  }
  await items.nth(2).waitFor();

  await from('You').nth(1).hover();
  await from('You').nth(1).getByRole('button', { name: 'Retry' }).click();
  await items.nth(3).waitFor();
  await idle();
  assert.equal(await from('You').count(), 2);
  await from('You').nth(1).hover();
  await from('You').nth(1).getByRole('button', { name: 'Edit' }).click();
  await page.getByRole('textbox', { name: 'Edited text' }).fill('Stock the pantry with eggs');
  await page.getByRole('button', { name: 'Branch', exact: true }).click();
  await items.nth(4).waitFor();
  await idle();

  assert.match(await from('chef').last().textContent(), /the pantry holds leeks, eggs/);
  assert.equal(await page.getByRole('tree', { name: 'Timeline' }).locator('[aria-level="2"]').count(), 2);
});

test('an earlier snapshot is read and resumed as a branch', async () => {
  const { page, from, say, tab, idle, button, items } = await openPage(browser, playground, '#/chef/dinner');
  await tab('Timeline');
  await page.getByRole('treeitem', { name: '1 Stock the pantry with leeks' }).click();
  await page.getByText('Reading snapshot 1 of 6').waitFor();
  assert.equal(await from('You').count(), 1);

  await button('Resume from here').click();
  await say('Stock the pantry with radishes');
  await idle();

  await items.nth(6).waitFor();
  assert.equal(await from('You').count(), 2);
  assert.match(await from('chef').last().textContent(), /leeks, radishes/);
});

test('a fork continues separately, and the comparison shows the differences', async () => {
  const { page, say, tab, idle, button } = await openPage(browser, playground, '#/chef/dinner');
  await tab('Timeline');
  await page.getByRole('treeitem', { name: '2 Stock the pantry with beans' }).click();

  await button('Fork').click();
  await page.waitForURL(/#\/chef\/dinner-fork/);
  await say('Stock the pantry with tomatoes');
  await idle();
  await page.getByRole('treeitem', { name: /^2 / }).click();
  await button('Compare').click();
  const region = page.getByRole('region', { name: 'Differences' });
  await region.getByText('messages in common').waitFor();

  assert.match(await region.textContent(), /tomatoes/);
  await page.getByRole('treeitem', { name: /^1 / }).click();
  await region.getByText('8 messages in common').waitFor();
});

test('two branches of a session differ on screen: messages, state', async () => {
  const { page, tab, button, faults } = await openPage(browser, playground, '#/chef/dinner');
  await tab('Timeline');
  await page.getByRole('treeitem', { name: '5 What can I cook without beans?' }).click();
  await button('Compare').click();
  await page.getByRole('treeitem', { name: '6 What is in season in month 11?' }).click();

  const region = page.getByRole('region', { name: 'Differences' });
  await region.getByText('8 messages in common').waitFor();
  const text = await region.textContent();
  assert.match(text, /toast with melted cheese/);
  assert.match(text, /pumpkin/);
  assert.match(text, /old cheese.*absent|absent.*old cheese/s);
  await region.getByRole('button', { name: 'Swap' }).click();
  await page.waitForURL(/compare=/);
  await region.getByRole('button', { name: 'Close the comparison' }).click();
  await page.getByRole('log', { name: 'Conversation' }).waitFor();
  assert.deepEqual(faults, []);
});

test('a snapshot is labelled, and deleted with its descendants', async () => {
  const { page, say, tab, idle, button, items } = await openPage(browser, playground, '#/chef');
  await tab('Timeline');
  for (const text of ['One', 'Two', 'Three']) {
    await say(text);
    await idle();
  }
  await items.nth(2).waitFor();
  await page.getByRole('treeitem', { name: '2 Two' }).click();

  await button('Label').click();
  await page.getByRole('textbox', { name: 'Label' }).fill('good');
  await page.getByRole('textbox', { name: 'Note' }).fill('so far');
  await button('Save').click();
  await page.locator('.item', { hasText: 'good' }).waitFor();
  await button('Delete').click();
  await page.getByText('Snapshot 2 and its 1 descendant').waitFor();
  await button('Delete all 2').click();
  await items.nth(1).waitFor({ state: 'detached' });

  assert.equal(await items.count(), 1);
});

test('an edited state continues in the same session, as a new snapshot', async () => {
  const { page, say, idle, from, button, tab, items } = await openPage(browser, playground, '#/chef/dinner');
  await tab('Timeline');
  await items.nth(5).waitFor();
  const before = await items.count();
  await tab('State');
  await button('Edit…').click();
  await page.getByRole('textbox', { name: 'State as JSON' }).fill('{"pantry": ["caviar"], "mood": "rich"}');
  await button('Continue with this state').click();
  await page.getByText('The session continues with the edited state').waitFor();
  await page.getByRole('tabpanel', { name: 'State' }).getByText('caviar').first().waitFor();

  await say('Stock the pantry with eggs');
  await idle();

  assert.match(await from('chef').last().textContent(), /caviar, eggs/);
  await tab('Timeline');
  await items.nth(before + 1).waitFor();
  assert.equal(await items.count(), before + 2);
});

test('the timeline is navigated with the keyboard, and the keys are listed', async () => {
  const { page, tab, items, button } = await openPage(browser, playground, '#/chef/dinner');
  await tab('Timeline');
  await items.nth(3).waitFor();
  await items.first().focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.getByText('Reading snapshot 2').waitFor();

  await button('Keyboard shortcuts').click();
  await page.getByRole('dialog', { name: 'Keys' }).getByText('earlier snapshot').waitFor();
});

test('a second tab sees the turn of the first as it is streamed', async () => {
  const first = await openPage(browser, playground, '#/chef');
  await first.say('Stock the pantry with tea');
  await first.idle();
  const second = await openPage(browser, playground, new URL(first.page.url()).hash, { context: first.context });
  await second.from('chef').getByText('the pantry holds tea').first().waitFor();

  await first.say(LONG);
  await second.button('Stop').waitFor();
  await second.from('You').nth(1).waitFor();
  await second.from('chef').getByText('word1').waitFor();
  const third = await openPage(browser, playground, new URL(first.page.url()).hash, { context: first.context });
  await third.from('chef').getByText('word1').waitFor();
  await first.button('Stop').click();
  await second.idle();
  await third.idle();
});

test('another browser sees a turn when it is saved', async () => {
  const first = await openPage(browser, playground, '#/chef');
  await first.say('Stock the pantry with salt');
  await first.idle();
  const second = await openPage(browser, playground, new URL(first.page.url()).hash);
  await second.from('You').first().waitFor();

  await first.say('Stock the pantry with pepper');

  await second.from('chef').getByText('salt, pepper').first().waitFor();
});
