import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test, { after } from 'node:test';
import { axeSource, open, openPage } from './support.js';

const { playground, browser } = await open(after);

/** A session with many messages, as an export. */
function longSession(count) {
  const messages = Array.from({ length: count }, (_, index) => (index % 2 === 0
    ? { role: 'user', content: [{ text: `Question ${index}: what about dish number ${index}?` }] }
    : { role: 'model', content: [{ text: `Answer ${index}. **Leeks**, cut thin:\n\n- washed\n- dried\n\n\`\`\`js\nconst dish = ${index};\n\`\`\`\n\nServe warm.` }] }));
  const snapshot = { snapshotId: `long-${count}`, sessionId: 'long', createdAt: '2026-01-01T00:00:00Z', status: 'completed', index: 0, turnIndex: 0, state: { sessionId: 'long', messages, custom: {} } };
  return [{ format: 'everturn-session', version: 1, sessionId: 'long' }, { row: { snapshot } }, { end: { snapshots: 1, messages: messages.length } }].map((line) => JSON.stringify(line)).join('\n');
}

test('two thousand messages are scrolled without a long task', async () => {
  const body = longSession(2000);
  const imported = await fetch(`${playground.url}/agents/chef/import`, { method: 'POST', headers: { 'content-type': 'application/x-ndjson' }, body });
  assert.equal(imported.status, 200, await imported.text());

  // Other programs only make tasks longer, so the best of a few rounds is nearest to the page's own time.
  const longest = [];
  for (let round = 0; round < 5 && !(Math.min(...longest) < 200); round += 1) longest.push(await scrolledThrough());

  assert.ok(Math.min(...longest) < 200, `${longest} ms`);
});

/** Scrolls through the session, and returns the duration of the page's longest task on an idle machine. */
async function scrolledThrough() {
  const { page, context, log, from, faults } = await openPage(browser, playground, '#/chef');
  await page.evaluate(() => {
    window.longest = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
    }).observe({ type: 'longtask', buffered: false });
  });
  await page.getByRole('link', { name: /^long/ }).click();
  await from('chef').filter({ hasText: 'Answer 1999' }).waitFor();
  const box = await log.boundingBox();
  await page.mouse.move(box.x + 100, box.y + 100);
  for (let step = 0; step < 60; step += 1) {
    await page.mouse.wheel(0, -2500);
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  await page.waitForFunction(() => document.querySelectorAll('article').length === 2000);
  await log.evaluate((element) => element.scrollTo(0, 0));
  await from('You').filter({ hasText: 'Question 0:' }).waitFor();
  assert.deepEqual(faults, []);
  // The same computation repeated: on an idle machine each takes as long as the quickest.
  const [longest, slowdown] = await page.evaluate(() => {
    const times = Array.from({ length: 60 }, () => {
      const begin = performance.now();
      for (let number = 0, sum = 0; number < 3e6; number += 1) sum += Math.sqrt(number);
      return performance.now() - begin;
    });
    return [window.longest, Math.max(...times) / Math.min(...times)];
  });
  await context.close();
  return Math.round(longest / slowdown);
}

for (const colorScheme of ['light', 'dark']) {
  test(`nothing serious is found by axe, ${colorScheme}`, async () => {
    const { page, tab, button, say, items } = await openPage(browser, playground, '#/chef/dinner', { colorScheme, bypassCSP: true, reducedMotion: 'reduce' });
    const source = await readFile(axeSource(), 'utf8');
    const check = async (place) => {
      await page.evaluate(source);
      const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
      const serious = found.violations.filter((each) => ['serious', 'critical'].includes(each.impact));
      assert.deepEqual(serious.map((each) => `${place}: ${each.id}: ${each.nodes.map((node) => `${node.target} ${node.failureSummary}`).slice(0, 3)}`), []);
    };
    await page.getByRole('article').first().waitFor();
    await check('state');
    for (const name of ['Timeline', 'Artifacts', 'Trace', 'Events']) {
      await tab(name);
      await page.waitForFunction((id) => document.getElementById(id).innerText.trim() !== '', `panel-${name}`);
      await check(name);
    }
    await tab('Timeline');
    await items.nth(4).click();
    await button('Compare').click();
    await page.getByText('messages in common').waitFor();
    await check('comparison');
    await page.goto(`${playground.url}/#/banker`);
    await say('Transfer 50 to Ann');
    await page.getByRole('group', { name: 'Approval needed' }).waitFor();
    await check('approval');
    await button('Keyboard shortcuts').click();
    await check('keys');
  });
}

for (const width of [360, 414, 768, 1024, 1440, 1920]) {
  test(`nothing is wider than the page at ${width} px, and one can chat`, async () => {
    const { page, say, idle, from, tab, items } = await openPage(browser, playground, '#/chef/dinner', { viewport: { width, height: 760 } });
    const isWide = () => page.evaluate(() => document.documentElement.scrollWidth > innerWidth || [...document.querySelectorAll('main, .log, .composer, .panel, .top')].some((each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX !== 'hidden'));
    await page.getByRole('article').first().waitFor();
    assert.equal(await isWide(), false);
    await tab('Timeline');
    await items.first().waitFor();
    assert.equal(await isWide(), false);
    if (width < 1100) await page.getByRole('button', { name: 'Close the panel' }).click();
    await say('Stock the pantry with leeks');
    await idle();
    assert.match(await from('chef').last().textContent(), /leeks/);
    if (width < 720) {
      await page.getByRole('button', { name: 'Agents and sessions' }).click();
      await page.getByRole('navigation', { name: 'Agents' }).getByRole('link', { name: 'banker' }).click();
      await page.getByRole('heading', { name: 'banker' }).first().waitFor();
    }
  });
}

test('the page is usable soon after loading', async () => {
  const { page, context } = await openPage(browser, playground);
  await context.addInitScript(() => {
    const look = () => (document.querySelector('textarea:enabled') ? void (window.usable = performance.now()) : requestAnimationFrame(look));
    requestAnimationFrame(look);
  });
  const usable = async (address) => {
    await page.goto(address);
    await page.waitForFunction(() => window.usable);
    return Math.round(await page.evaluate(() => window.usable));
  };
  // A document with only a text field shows how busy the machine is.
  const [ours, bare] = [[], []];
  for (let round = 0; round < 10 && !(Math.min(...ours) < 300); round += 1) {
    bare.push(await usable('data:text/html,<textarea></textarea>'));
    ours.push(await usable(`${playground.url}/?${round}`));
  }
  assert.ok(Math.min(...ours) < Math.max(300, 10 * Math.max(...bare)), `${ours} ms, a bare document ${bare} ms`);
});
