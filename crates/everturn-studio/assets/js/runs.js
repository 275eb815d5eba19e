/** The background runs of all agents: running, expired, taken over, and recently ended. */

import * as api from './api.js';

/** How long a run that ended stays in sight, in milliseconds. */
const LINGER = 60_000;

export class Runs {
	/** @type {Map<string, Run>} */ #runs = new Map();
	/** @type {{id: string, over: AbortController} | null} */ #watching = null;

	/** @param {Studio} studio */
	constructor(studio) {
		this.studio = studio;
	}

	/** Running ones first. @returns {Run[]} */
	get list() {
		const all = [...this.#runs.values()].filter((run) => run.endedAt === null || Date.now() - run.endedAt < LINGER);
		return all.sort((a, b) => Number(a.endedAt !== null) - Number(b.endedAt !== null) || b.startedAt.localeCompare(a.startedAt));
	}

	get isWaiting() {
		return this.list.some((run) => run.endedAt === null);
	}

	/** Takes note of an agent's runs that are not over. @param {AgentInfo} agent @param {SessionSummary[]} open */
	async seen(agent, open) {
		for (const { sessionId, latest: { snapshotId, createdAt: startedAt, status } } of open) {
			const known = this.#runs.get(snapshotId);
			if (!known) this.#runs.set(snapshotId, { agent, sessionId, snapshotId, startedAt, status, note: '', done: null, takenOver: false, endedAt: null, output: '' });
			else if (known.endedAt === null) {
				// A run that expired and continues has another worker.
				if (known.status === 'expired' && status === 'pending') known.takenOver = true;
				known.status = status;
			}
		}
		const ids = new Set(open.map(({ latest }) => latest.snapshotId));
		for (const run of this.#runs.values()) {
			if (run.agent.name !== agent.name || run.endedAt !== null || ids.has(run.snapshotId)) continue;
			const { status } = await api.ask(agent, 'getSnapshot', { snapshotId: run.snapshotId }).catch((error) => ({ status: error.code === 404 ? 'aborted' : run.status }));
			if (status === 'pending' || status === 'expired') continue;
			run.status = status;
			run.endedAt = Date.now();
		}
		this.#watchOne();
		this.studio.emit('runs');
	}

	/** Takes note of the run that the open conversation shows. @param {Conversation} conversation */
	update(conversation) {
		const id = conversation.turn?.options.run;
		const run = id ? this.#runs.get(id) : undefined;
		if (!run || conversation.status === null) return;
		this.#note(run, conversation.status);
		this.studio.emit('runs');
	}

	/** @param {Run} run @param {any} status */
	#note(run, status) {
		if (typeof status === 'object' && typeof status?.step === 'number' && typeof status?.of === 'number') {
			run.done = Math.min(1, (status.step - 1) / status.of);
		}
		run.note = typeof status === 'string' ? status : status?.note ?? status?.message ?? JSON.stringify(status);
	}

	/** Watches one run that no conversation shows: a browser has few connections to one server. */
	#watchOne() {
		const shown = this.studio.conversation?.turn?.options.run;
		const wanted = this.list.find((run) => run.endedAt === null && run.snapshotId !== shown);
		if (this.#watching?.id === wanted?.snapshotId) return;
		this.#watching?.over.abort();
		this.#watching = null;
		if (!wanted) return;
		const over = new AbortController();
		this.#watching = { id: wanted.snapshotId, over };
		void this.#watch(wanted, over.signal).catch(() => {}).finally(() => {
			if (this.#watching?.over === over) this.#watching = null;
		});
	}

	/** @param {Run} run @param {AbortSignal} signal */
	async #watch(run, signal) {
		const call = await api.stream(`${run.agent.path}/watch`, { data: { snapshotId: run.snapshotId } }, { signal });
		for await (const { data } of call.events) {
			const chunk = data.message;
			if (chunk?.takenOver) run.takenOver = true;
			if (chunk?.status !== undefined) this.#note(run, chunk.status);
			for (const part of chunk?.modelChunk?.content ?? []) run.output = (run.output + (part.text ?? '')).slice(-400);
			this.studio.emit('runs');
			if (data.result) void this.studio.readSessions(run.agent).catch(() => {});
		}
	}

	/** @param {Run} run */
	async abort(run) {
		const { status } = await api.ask(run.agent, 'abort', { snapshotId: run.snapshotId });
		run.status = status ?? 'aborted';
		run.endedAt = Date.now();
		this.studio.emit('runs');
		await this.studio.readSessions(run.agent).catch(() => {});
	}
}
