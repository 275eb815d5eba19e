import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { LONG, open, openPage } from './support.js';

const { playground, browser } = await open(after);

test('a background run is watched, its process is killed and restarted, and the open page shows its end', async () => {
  const { page, from, faults, button } = await openPage(browser, playground, '#/researcher');
  await page.getByRole('textbox', { name: 'Message' }).fill('Research the history of soup');
  await button('Run in background').click();
  const runs = page.getByRole('region', { name: 'Background runs' });
  await runs.getByRole('button', { name: 'Abort' }).waitFor();
  await from('You').getByText('Research the history of soup').waitFor();
  await from('researcher').getByText('how it works').first().waitFor();
  await runs.getByText('reading about').waitFor();

  await playground.end('SIGKILL');
  await page.getByText('The connection is lost').waitFor();
  await playground.begin();

  await from('researcher').getByText('The report is among the artifacts.').first().waitFor();
  await runs.getByText('done').waitFor();
  assert.equal(await runs.getByRole('button', { name: 'Abort' }).count(), 0);
  const session = (await playground.post('/agents/researcher/listSessions', null)).result.sessions[0];
  assert.equal(session.latest.status, 'completed');
  assert.deepEqual(faults, []);
});

test('a run is aborted from the list on any page', async () => {
  const { page, button } = await openPage(browser, playground, '#/chef');
  await page.getByRole('textbox', { name: 'Message' }).fill(LONG);
  await button('Run in background').click();
  const run = page.getByRole('region', { name: 'Background runs' }).getByRole('listitem').filter({ hasText: 'word1' });
  await run.getByRole('button', { name: 'Abort' }).waitFor();
  await page.getByRole('navigation', { name: 'Agents' }).getByRole('link', { name: 'banker' }).click();

  await run.getByRole('button', { name: 'Abort' }).click();

  await run.getByText('aborted').waitFor();
});

test('a run is listed although many sessions are newer', async () => {
  const { result: { sessions } } = await playground.post('/agents/chef/listSessions', null);
  const { snapshotId } = sessions.find(({ latest }) => latest.status === 'completed').latest;
  // Long enough that the run is in progress until it is aborted, however busy the machine is.
  const message = { role: 'user', content: [{ text: `${LONG} ${LONG} ${LONG} ${LONG}` }] };
  const { result: run } = await playground.post('/agents/chef', { message, detach: true });
  await Promise.all(Array.from({ length: 55 }, (_, number) => playground.post('/agents/chef/fork', { snapshotId, sessionId: `newer-${number}` })));

  const { page } = await openPage(browser, playground, '#/chef');
  const item = page.getByRole('region', { name: 'Background runs' }).getByRole('listitem').filter({ hasText: run.sessionId });

  await item.getByRole('button', { name: 'Abort' }).click();
  await item.getByText('aborted').waitFor();
});

test('the page continues after the server restarts', async () => {
  const { page, say, idle, from } = await openPage(browser, playground, '#/chef');
  await say('Stock the pantry with leeks');
  await idle();

  // The list of sessions may contain it, too.
  const banner = page.getByText('The server cannot be reached. The page reconnects automatically.');
  await playground.end('SIGTERM');
  await banner.waitFor();
  await playground.begin();
  await banner.waitFor({ state: 'hidden' });
  await say('Stock the pantry with beans');
  await idle();

  assert.match(await from('chef').last().textContent(), /leeks, beans/);
});

test('a turn continues after its process was killed', async () => {
  const { page, say, from } = await openPage(browser, playground, '#/researcher');
  await say('Research the history of forks');
  await from('researcher').getByText('Looking into').waitFor();

  await playground.end('SIGKILL');
  await page.getByText('The connection is lost').waitFor();
  await playground.begin();

  await from('researcher').getByText('The report is among the artifacts.').first().waitFor();
  assert.equal(await from('You').count(), 1);
});
