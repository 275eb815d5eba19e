import assert from 'node:assert/strict';
import test from 'node:test';
import { EventReader, delay, eventsOf } from '../../assets/js/stream.js';

test('events are assembled from pieces of any size', () => {
  const wire = 'id: 1\ndata: {"message": {"status": "é"}}\n\ndata: {"result":\ndata: 2}\r\n\r\n';
  const reader = new EventReader();

  const events = [...wire].flatMap((piece) => reader.push(piece));

  assert.deepEqual(events, [{ id: '1', data: { message: { status: 'é' } } }, { id: null, data: { result: 2 } }]);
});

test('comments are skipped, and an incomplete event is kept', () => {
  const reader = new EventReader();

  assert.deepEqual(reader.push(': hello\n\ndata: 1'), []);
  assert.deepEqual(reader.push('\n\n'), [{ id: null, data: 1 }]);
});

test('characters are not cut between two pieces of a response', async () => {
  const bytes = new TextEncoder().encode('data: "süß"\n\n');
  const body = new ReadableStream({
    start(controller) {
      for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
      controller.close();
    },
  });

  const events = [];
  for await (const event of eventsOf(new Response(body))) events.push(event.data);

  assert.deepEqual(events, ['süß']);
});

test('delays between attempts grow to at most three seconds', () => {
  assert.deepEqual([0, 1, 2, 10].map(delay), [250, 500, 1000, 3000]);
});
