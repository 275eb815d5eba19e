/** Event streams: bytes to events, and calls that outlive their connection. */

/** @typedef {{id: string | null, data: any}} StreamEvent */

/**
 * Splits a text into events. An incomplete event is kept for the next text.
 */
export class EventReader {
	#rest = '';

	/** @param {string} text @returns {StreamEvent[]} */
	push(text) {
		this.#rest += text;
		const records = this.#rest.split(/\r?\n\r?\n/);
		this.#rest = records.pop() ?? '';
		return records.flatMap((record) => {
			let id = null;
			const data = [];
			for (const line of record.split(/\r?\n/)) {
				if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
				else if (line.startsWith('id:')) id = line.slice(3).trim();
			}
			return data.length > 0 ? [{ id, data: JSON.parse(data.join('\n')) }] : [];
		});
	}
}

/**
 * Reads the events of a response.
 * @param {Response} response
 * @returns {AsyncGenerator<StreamEvent>}
 */
export async function* eventsOf(response) {
	if (!response.body) return;
	const decoder = new TextDecoder();
	const events = new EventReader();
	const reader = response.body.getReader();
	try {
		for (;;) {
			const { done, value } = await reader.read();
			if (done) return;
			yield* events.push(decoder.decode(value, { stream: true }));
		}
	} finally {
		reader.cancel().catch(() => {});
	}
}

/** Returns the delay before the next attempt, in milliseconds. @param {number} attempt */
export function delay(attempt) {
	return Math.min(250 * 2 ** attempt, 3000);
}

/** @param {number} time @param {AbortSignal} [signal] @returns {Promise<void>} */
export function pause(time, signal) {
	return new Promise((resolve, reject) => {
		if (signal?.aborted) return reject(signal.reason);
		const timer = setTimeout(resolve, time);
		signal?.addEventListener('abort', () => {
			clearTimeout(timer);
			reject(signal.reason);
		}, { once: true });
	});
}
