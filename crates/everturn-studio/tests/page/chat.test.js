import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { LONG, open, openPage } from './support.js';

const { playground, browser } = await open(after);

/** Holds back requests for turns of the chef until they are released. */
async function hold(page) {
  let release;
  const released = new Promise((resolve) => { release = resolve; });
  await page.route('**/agents/chef', async (route) => {
    await released;
    await route.continue();
  });
  return { release };
}

test('a chat is streamed, and its state is updated during the turn', async () => {
  const { page, log, from, say, faults, idle } = await openPage(browser, playground, '#/chef');
  await log.evaluate((element) => {
    window.lengths = new Set();
    new MutationObserver(() => window.lengths.add(element.textContent.length)).observe(element, { subtree: true, childList: true, characterData: true });
  });

  await say('Stock the pantry with leeks');
  const reply = from('chef').last();
  await reply.getByText('the pantry holds leeks').first().waitFor();
  await idle();

  assert.ok(await page.evaluate(() => window.lengths.size) > 3, 'the text grew while it was read');
  assert.match(await from('You').last().textContent(), /Stock the pantry with leeks/);
  assert.match(await reply.textContent(), /the pantry holds leeks/);
  await page.getByRole('tabpanel', { name: 'State' }).getByText('leeks').first().waitFor();
  await say('Stock the pantry with beans');
  await page.locator('.json .changed').getByText('beans').waitFor();
  await idle();
  assert.match(page.url(), /#\/chef\/stock-the-pantry/);
  await page.getByRole('list', { name: 'Sessions' }).getByRole('link', { name: /stock-the-pantry/ }).waitFor();
  assert.deepEqual(faults, []);
});

test('a tool call is a card with its input, output and time', async () => {
  const { from, say, idle } = await openPage(browser, playground, '#/chef');

  await say('What is in season in month 11?');
  await idle();
  const card = from('chef').last().locator('details.tool');
  await card.locator('summary').click();

  assert.match(await card.textContent(), /in_season.*pumpkin/s);
  assert.match(await card.locator('summary').textContent(), /ms|s$/);
});

test('an approval moves the money, and the messages stay visible', async () => {
  const { page, from, say, idle, faults } = await openPage(browser, playground, '#/banker');
  await say('Transfer 50 to Ann');

  const group = page.getByRole('group', { name: 'Approval needed' });
  await group.waitFor();
  assert.match(await group.textContent(), /Move 50 to Ann\?/);
  assert.equal(await from('You').count(), 1);
  await group.getByRole('button', { name: 'Approve' }).click();
  await from('banker').getByText('moved 50 to Ann, 150 left').first().waitFor();
  await idle();

  assert.equal(await group.count(), 0);
  await page.getByRole('tabpanel', { name: 'State' }).getByText('150').first().waitFor();
  assert.deepEqual(faults, []);
});

test('a rejection moves nothing', async () => {
  const { page, from, say, idle } = await openPage(browser, playground, '#/banker');
  await say('Transfer 60 to Bob');

  await page.getByRole('group', { name: 'Approval needed' }).getByRole('button', { name: 'Reject' }).click();
  await from('banker').getByText('rejected').first().waitFor();
  await idle();

  const { result } = await playground.post('/agents/banker/getSession', { sessionId: decodeURIComponent(page.url().split('/').at(-1)) });
  assert.equal(result.latest.state.custom, undefined);
  assert.equal(await page.getByRole('tabpanel', { name: 'State' }).getByText('140').count(), 0);
});

test('arguments are edited, and any answer is given as JSON', async () => {
  const { page, from, say, idle } = await openPage(browser, playground, '#/banker');
  await say('Transfer 70 to Cem');
  const group = page.getByRole('group', { name: 'Approval needed' });

  await group.getByRole('button', { name: 'Edit arguments' }).click();
  await group.getByRole('textbox', { name: 'Arguments' }).fill('{"amount": 7, "to": "Cem"}');
  await group.getByRole('button', { name: 'Call with these' }).click();
  await from('banker').getByText('moved 7 to Cem, 193 left').first().waitFor();
  await idle();
  await say('Transfer 80 to Dan');
  await group.getByRole('textbox', { name: 'Answer as JSON' }).fill('not json');
  await group.getByRole('button', { name: 'Send answer' }).click();
  await group.getByText('This is not JSON').waitFor();
  await group.getByRole('textbox', { name: 'Answer as JSON' }).fill('{"approved": false}');
  await group.getByRole('button', { name: 'Send answer' }).click();
  await from('banker').getByText('declined, nothing was moved').first().waitFor();
});

test('an artifact is shown, with its code in the conversation', async () => {
  const { page, from, say, idle, tab } = await openPage(browser, playground, '#/coder');
  await say('Write a function that sorts names');
  await idle();

  await from('coder').getByText('Reasoning').waitFor();
  await tab('Artifacts');
  await page.getByRole('tab', { name: 'sort.rs' }).waitFor();
  await page.getByRole('tabpanel', { name: 'Artifacts', exact: true }).getByText('pub fn sorted').waitFor();
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download' }).click()]);
  assert.equal(file.suggestedFilename(), 'sort.rs');
});

test('a turn is stopped and kept, and can be continued', async () => {
  const { page, say, button, idle, from } = await openPage(browser, playground, '#/chef');
  await say(LONG);
  await from('chef').getByText('word1').waitFor();

  await button('Stop').click();
  await page.getByRole('alert').getByText('stopped').waitFor();
  await idle();
  assert.equal(await from('You').count(), 1);
  // The server has kept the turn, so another page can continue it.
  await page.reload();
  await button('Try again').click();
  await from('chef').getByText('word1').waitFor();
  await button('Stop').click();
  await page.getByRole('alert').getByText('stopped').waitFor();

  await say('Stock the pantry with mint');
  await from('chef').getByText('the pantry holds mint').first().waitFor();
});

test('the usage of a failed turn is shown after a reload, too', async () => {
  const { page, say, idle, faults } = await openPage(browser, playground, '#/chef');
  await say('Stock the pantry with sorrel');
  await idle();
  await say('Thank you');
  await idle();
  let failed;
  await page.route('**/agents/chef/getSnapshot', async (route) => {
    const response = await route.fetch();
    const body = await response.json();
    failed ??= body.result.snapshotId;
    if (body.result.snapshotId === failed) Object.assign(body.result, { status: 'failed', error: { status: 'UNAVAILABLE', message: 'the model is busy' } });
    await route.fulfill({ response, json: body });
  });

  await page.reload();

  // The session has used more: the first turn called the model twice.
  const alert = page.getByRole('alert');
  await alert.getByText('the model is busy').waitFor();
  assert.match(await alert.textContent(), /It used: .*\b1 model calls/);
  assert.deepEqual(faults, []);
});

test('a turn is stopped before the server has answered at all', async () => {
  const { page, say, button, idle } = await openPage(browser, playground, '#/chef');
  const held = await hold(page);
  await say(LONG);
  await button('Stop').click();

  held.release();

  await page.getByRole('alert').getByText('stopped').waitFor();
  await idle();
  const { result } = await playground.post('/agents/chef/listSessions', null);
  assert.equal(result.sessions.filter(({ latest }) => latest.status === 'pending').length, 0);
});

test('a message sent during a turn is held back, with a note', async () => {
  const { page, say, button, from, idle } = await openPage(browser, playground, '#/chef');
  // The turn cannot end before the second message arrives, even on a slow machine.
  const held = await hold(page);
  await say('Stock the pantry with peas');
  await button('Stop').waitFor();

  await page.getByRole('textbox', { name: 'Message' }).fill('What did I say before?');
  await page.getByRole('textbox', { name: 'Message' }).press('Enter');
  await page.getByText('chef accepts one message at a time').waitFor();
  held.release();
  await from('chef').getByText('So far you have said').first().waitFor();
  await idle();

  assert.equal(await from('You').count(), 2);
});

test('the state of an agent without a store stays in the browser', async () => {
  const { page, say, idle, from } = await openPage(browser, playground, '#/tutor');
  await say('Teach me about France');
  await idle();
  await say('Paris');
  await idle();

  await from('tutor').getByText('1 of 1 answers were right').first().waitFor();
  await page.reload();
  await from('tutor').getByText('1 of 1 answers were right').first().waitFor();
});

test('an orchestrator delegates tasks', async () => {
  const { say, idle, from } = await openPage(browser, playground, '#/orchestrator');
  await say('Let the chef say what is in season in month 2, and the coder print a list');
  await idle();

  const reply = from('orchestrator').last();
  assert.match(await reply.textContent(), /delegate_to_chef.*delegate_to_coder/s);
  assert.match(await reply.textContent(), /leeks/);
});

test('a turn is shown span by span, and event by event', async () => {
  const { page, say, idle, tab } = await openPage(browser, playground, '#/chef');
  await say('Stock the pantry with kale');
  await idle();

  await tab('Trace');
  const panel = page.getByRole('tabpanel', { name: 'Trace' });
  await panel.locator('.span', { hasText: 'stock_pantry' }).first().waitFor();
  await panel.locator('.span.k-store', { hasText: 'journal' }).first().waitFor();
  await panel.locator('.span.k-store', { hasText: 'snapshot' }).first().waitFor();
  await panel.locator('.span.k-model summary').first().click();
  await panel.getByText('Output').first().waitFor();
  await tab('Events');
  await page.getByRole('tabpanel', { name: 'Events' }).locator('.event-kind', { hasText: 'customPatch' }).first().waitFor();
});

test('a session is exported, saved as a page, imported and deleted', async () => {
  const { page, button, faults } = await openPage(browser, playground, '#/chef/dinner');
  await page.getByRole('article', { name: 'You' }).first().waitFor();
  const choose = async (name) => {
    await button('Session menu').click();
    return Promise.all([page.waitForEvent('download'), page.getByRole('button', { name, exact: true }).click()]);
  };

  const [html] = await choose('Save as one HTML file');
  const saved = await (await import('node:fs/promises')).readFile(await html.path(), 'utf8');
  assert.match(saved, /^<!doctype html>/);
  assert.match(saved, /leek and potato soup/);
  assert.doesNotMatch(saved, /<script|https?:\/\/(?!www\.w3\.org)/);
  const [lines] = await choose('Export as JSON lines');
  const [chooser] = await Promise.all([page.waitForEvent('filechooser'), button('Import').click()]);
  await chooser.setFiles(await lines.path());
  await page.getByText('6 snapshots were imported').waitFor();
  await page.waitForURL(/#\/chef\/dinner-/);
  await button('Session menu').click();
  await page.getByRole('button', { name: 'Delete session…' }).click();
  await page.getByRole('dialog').getByText('6 snapshots').waitFor();
  await page.getByRole('button', { name: 'Delete the session' }).click();
  await page.waitForURL(/#\/chef$/);
  assert.deepEqual(faults, []);
});
