import assert from 'node:assert/strict';
import test from 'node:test';
import { lineDiff } from '../../assets/js/line-diff.js';
import { read, write } from '../../assets/js/router.js';
import { costs, waterfall } from '../../assets/js/spans.js';
import { ago, clip, lasted, sessionName } from '../../assets/js/time.js';

test('two texts differ line by line', () => {
  const signs = lineDiff('a\nb\nc\nd', 'a\nx\nc\nd\ne').map(({ sign, text }) => sign + text);

  assert.deepEqual(signs, [' a', '-b', '+x', ' c', ' d', '+e']);
});

test('an address round-trips', () => {
  const place = { agent: 'chef', session: 'a/b ü', at: 'id', tab: 'Timeline', compare: null };

  assert.deepEqual(read(write(place)), place);
  assert.deepEqual(read('#/'), { agent: null, session: null, at: null, tab: 'State', compare: null });
  assert.deepEqual(read('#/%E0%A4%A/x').agent, '%E0%A4%A');
});

test('spans are placed below their parents, to scale', () => {
  const span = (spanId, parentSpanId, startTime, endTime, type) => ({ spanId, parentSpanId, displayName: spanId, startTime, endTime, attributes: { 'genkit:metadata:subtype': type } });
  const bars = waterfall({ c: span('c', 'a', 5, 10, 'tool'), a: span('a', undefined, 0, 10, 'agent'), b: span('b', 'a', 1, 4, 'model') });

  assert.deepEqual(bars.map((bar) => [bar.span.spanId, bar.depth, bar.kind]), [['a', 0, 'other'], ['b', 1, 'model'], ['c', 1, 'tool']]);
  assert.equal(bars[2].left, 0.5);
});

test('the cost of a model call is shown if it is known', () => {
  const span = (attributes) => ({ spanId: 'a', displayName: 'a', startTime: 0, endTime: 1, attributes });

  assert.equal(costs(waterfall({ a: span({ 'everturn.usage.cost': 0.0012345 }) })[0].cost), ' · cost 0.00123');
  assert.equal(costs(waterfall({ a: span({}) })[0].cost), '');
});

test('times are short', () => {
  assert.equal(ago(0, 90_000), '1 min');
  assert.equal(lasted(1234), '1.2 s');
  assert.equal(clip('a  b\nc', 4), 'a b…');
});

test('a session is named after its first words', () => {
  assert.equal(sessionName('Stock the pantry with leeks!', () => 0), 'stock-the-pantry-with-0000');
  assert.equal(sessionName('<img src=x>', () => 0), 'img-srcx-0000');
});
