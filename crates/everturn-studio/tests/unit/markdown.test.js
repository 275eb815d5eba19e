import assert from 'node:assert/strict';
import test from 'node:test';
import { inline, parse, safeLink, stableLength } from '../../assets/js/markdown.js';

const text = (value) => ({ type: 'text', text: value });

test('blocks are distinguished', () => {
  const types = parse('# Soup\n\nA *good* one.\n\n- leeks\n- beans\n\n1. cut\n2. cook\n\n> slowly\n\n---\n\n```rust\nfn main() {}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |').map((block) => block.type);

  assert.deepEqual(types, ['heading', 'paragraph', 'list', 'list', 'quote', 'rule', 'fence', 'table']);
});

test('a list has items, and items have lists', () => {
  const [list] = parse('- a\n  - b\n  - c\n- d');

  assert.equal(list.items.length, 2);
  assert.deepEqual(list.items[0].map((block) => block.type), ['paragraph', 'list']);
  assert.equal(list.items[0][1].items.length, 2);
});

test('a list counts from its first number', () => {
  assert.equal(parse('7. seven\n8. eight')[0].start, 7);
});

test('code keeps its characters, open or closed', () => {
  assert.deepEqual(parse('```\n<b>*x*</b>\n```'), [{ type: 'fence', language: '', text: '<b>*x*</b>', open: false }]);
  assert.equal(parse('```js\nlet x')[0].open, true);
  assert.deepEqual(inline('`*a*`'), [{ type: 'code', text: '*a*' }]);
});

test('emphasis nests, and an underscore in a word is a letter', () => {
  assert.deepEqual(inline('**a *b***')[0].type, 'strong');
  assert.deepEqual(inline('snake_case_name'), [text('snake_case_name')]);
  assert.deepEqual(inline('5 * 3 * 2'), [text('5 * 3 * 2')]);
});

test('only addresses of the web and of mail become links', () => {
  assert.equal(inline('[a](https://a.example/(x))')[0].href, 'https://a.example/(x)');
  for (const bad of ['javascript:alert(1)', 'JaVaScRiPt:alert(1)', 'data:text/html,x', 'vbscript:x', '//evil.example', 'java\tscript:x', 'https://a\u202e.example']) {
    assert.equal(safeLink(bad), null, bad);
    assert.ok(inline(`[click](${bad})`).every((node) => node.type !== 'link'), bad);
  }
});

test('markup stays text', () => {
  assert.deepEqual(inline('<img src=x onerror=alert(1)></script>'), [text('<img src=x onerror=alert(1)></script>')]);
});

test('hostile texts take little time', () => {
  const before = process.cpuUsage();
  for (const bad of ['*'.repeat(5000), '['.repeat(5000), '`'.repeat(5001), '> '.repeat(3000), '- '.repeat(3000), '_a'.repeat(5000), `${'('.repeat(3000)}[a](`]) parse(bad);
  const milliseconds = process.cpuUsage(before).user / 1000;
  assert.ok(milliseconds < 2000, `${milliseconds} ms`);
});

test('a growing text is stable up to its paragraphs, never inside code or a list', () => {
  assert.equal(stableLength('one\n\ntwo'), 5);
  assert.equal(stableLength('one\n\n'), 0);
  assert.equal(stableLength('```\na\n\nb'), 0);
  assert.equal(stableLength('- a\n\n- b'), 0);
  const whole = 'First.\n\n```js\nx\n\ny\n```\n\n- a\n- b\n\nLast *one*.';
  const end = stableLength(whole);
  assert.deepEqual([...parse(whole.slice(0, end)), ...parse(whole.slice(end))], parse(whole));
});
