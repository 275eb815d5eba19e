/** A running turn: its stream over one or more connections, and its outcome. */

import * as api from './api.js';
import { delay, pause } from './stream.js';

/** The reason of a stream that ended without an outcome, because its process died. */
class Broken extends api.Unreachable {}

/** Another turn holds the session, possibly one that is being stopped. */
class Busy extends Error {}

const STOPPED = 'The turn was stopped, and nothing was saved.';

/** How often a turn is retried while another one holds the session. */
const PATIENCE = 3;

export class Turn {
	startedAt = Date.now();
	/** The name by which the server keeps the stream. @type {string | null} */ stream;
	/** Whether the connection is currently lost. */ isLost = false;
	isStopping = false;
	#over = new AbortController();
	#resent = false;
	#isServed = false;

	/** @param {Conversation} conversation @param {TurnOptions} options */
	constructor(conversation, options) {
		this.conversation = conversation;
		this.options = options;
		this.stream = options.stream ?? null;
	}

	/** Stops reading; a turn with a kept stream continues. */
	leave() {
		this.#over.abort();
	}

	/** Requests that the server stop the turn, once the stream has an id. */
	async stop() {
		this.isStopping = true;
		const { agent } = this.conversation;
		if (this.options.run) await api.ask(agent, 'abort', { snapshotId: this.options.run });
		else if (this.stream) await api.stop(agent, this.stream);
		else if (this.#isServed) this.#over.abort();
	}

	/**
	 * Yields the events of the turn, and `again` when the turn restarts. At its end it passes the outcome to the conversation.
	 * @returns {AsyncGenerator<any>}
	 */
	async *events() {
		const { conversation, options } = this;
		const { signal } = this.#over;
		/** @type {string | null} */
		let after = null;
		let busy = 0;
		for (let attempt = 0; ;) {
			if (this.isStopping && !this.stream && !options.run) return void await conversation.fail(STOPPED, this, { finishReason: 'aborted' });
			if (signal.aborted) return;
			try {
				const call = await api.stream(options.path, options.body, { signal, stream: this.stream, after });
				this.#connection(false);
				const wasServed = this.#isServed;
				this.#isServed = true;
				if (call.isGone) {
					after = null;
					if (yield* this.#recover()) continue;
					return;
				}
				if (options.run && attempt > 0) yield 'again';
				attempt = 0;
				if (call.id && !options.run && this.stream !== call.id) {
					this.stream = call.id;
					conversation.emit('begun', this);
				}
				if (this.isStopping && !wasServed) await this.stop();
				for await (const { id, data } of call.events) {
					if (data.error?.status === 'ABORTED' && after === null && busy < PATIENCE) throw new Busy(data.error.message);
					if (id !== null) after = id;
					yield data;
					if (data.result) return void await conversation.finish(data.result, this);
					if (data.error) {
						if (data.error.status === 'UNAVAILABLE') throw new Broken(data.error.message);
						if (data.error.status === 'CANCELLED') return void await conversation.fail(STOPPED, this, { finishReason: 'aborted' });
						return void await conversation.fail(data.error.message, this, { error: data.error });
					}
				}
				throw new api.Unreachable('The connection ended before the turn did.');
			} catch (error) {
				if (signal.aborted) continue;
				if (error instanceof Busy) {
					busy += 1;
					this.stream = null;
					await pause(delay(busy), signal).catch(() => {});
					continue;
				}
				if (error instanceof api.ApiError && error.code !== 503) return void await conversation.fail(error.message, this, { error: { status: error.status, message: error.message } });
				if (error instanceof api.ApiError || error instanceof api.Unreachable || error instanceof TypeError) {
					if (!this.#isServed && !this.stream && !options.run && attempt > 8) return void await conversation.fail('The server cannot be reached. Your message is kept here.', this);
					this.#connection(true);
					await pause(delay(attempt), signal).catch(() => {});
					attempt += 1;
					if (signal.aborted) continue;
					// The stream of a dead process ends there: the turn is restarted, unless it was saved.
					if (!options.run && error instanceof Broken) {
						after = null;
						if (!(yield* this.#recover())) return;
					}
					continue;
				}
				throw error;
			}
		}
	}

	/**
	 * Handles a turn whose stream is lost: it was saved, or is sent once more. Recorded effects are not repeated.
	 * @returns {AsyncGenerator<any, boolean>} whether to call again
	 */
	async *#recover() {
		const { conversation, options } = this;
		let tip;
		try {
			tip = await api.ask(conversation.agent, 'getSnapshot', { sessionId: conversation.id });
		} catch (error) {
			if (error instanceof api.Unreachable) return true;
			tip = null;
		}
		this.#connection(false);
		if (tip && tip.snapshotId !== options.base) {
			await conversation.load();
			conversation.emit('ended', null);
			return false;
		}
		if (this.#resent || !options.input || options.stream) {
			await conversation.fail('The server stopped during this turn, and nothing was saved.', this);
			return false;
		}
		this.#resent = true;
		this.stream = null;
		yield 'again';
		return true;
	}

	/** @param {boolean} isLost */
	#connection(isLost) {
		if (this.isLost === isLost) return;
		this.isLost = isLost;
		this.conversation.emit('turn');
	}
}
