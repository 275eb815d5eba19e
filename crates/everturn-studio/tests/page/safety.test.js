import assert from 'node:assert/strict';
import { request } from 'node:http';
import test, { after } from 'node:test';
import { open, openPage } from './support.js';

const { playground, browser } = await open(after);

test('a hostile message stays text', async () => {
  const { page, say, idle, from, faults, tab } = await openPage(browser, playground, '#/chef');
  const hostile = '<img src=x onerror="document.title=1"> [click](javascript:alert(1)) </script><script>document.title=2</script> \u202Eevil\u202C **bold** [ok](https://example.com)';
  await say(hostile);
  await idle();
  await tab('Timeline');
  await page.getByRole('treeitem').first().waitFor();

  assert.match(await from('You').textContent(), /<img src=x onerror=.*<\/script><script>/);
  assert.match(await from('chef').last().textContent(), /<img src=x/);
  assert.equal(await page.locator('article img, article script, article a[href^="javascript"]').count(), 0);
  assert.equal(await from('chef').last().locator('a').count(), 1);
  assert.match(await page.title(), /Everturn$/);
  assert.deepEqual(faults, []);
});

test('the page runs only its own scripts, and no other page may frame it', async () => {
  const response = await fetch(`${playground.url}/`);
  const policy = response.headers.get('content-security-policy');

  assert.match(policy, /default-src 'none'/);
  assert.match(policy, /script-src 'self'/);
  assert.match(policy, /frame-ancestors 'none'/);
  assert.match(policy, /require-trusted-types-for 'script'/);
  assert.doesNotMatch(policy, /unsafe/);
});

/** Sends a request with any `Host` and `Origin`. */
const ask = (method, path, headers) => new Promise((resolve, reject) => {
  const asked = request({ host: '127.0.0.1', port: playground.port, method, path, headers }, (response) => {
    response.resume();
    response.on('end', () => resolve(response.statusCode));
  });
  asked.on('error', reject);
  asked.end(method === 'POST' ? '{"data": null}' : undefined);
});

test('other origins and foreign hosts are refused, on the routes of the page and of the agents', async () => {
  const json = { 'content-type': 'application/json' };
  const routes = [['GET', '/', {}], ['GET', '/studio/js/app.js', {}], ['GET', '/agents', {}], ['GET', '/dev/traces', {}], ['POST', '/agents/chef/listSessions', json]];
  for (const [method, path, headers] of routes) {
    assert.equal(await ask(method, path, { ...headers }), 200, path);
    assert.equal(await ask(method, path, { ...headers, origin: playground.url }), 200, path);
    assert.equal(await ask(method, path, { ...headers, origin: 'http://evil.example' }), 403, path);
    assert.equal(await ask(method, path, { ...headers, origin: 'null' }), 403, path);
    assert.equal(await ask(method, path, { ...headers, origin: 'http://127.0.0.1:1' }), 403, path);
    assert.equal(await ask(method, path, { ...headers, host: 'evil.example' }), 403, path);
  }
});
