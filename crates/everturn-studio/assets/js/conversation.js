/**
 * A conversation with an agent: its contents, the running turn, and the current position in its tree of snapshots. Views listen
 * to its events: `reset`, `live`, `turn`, `state`, `artifacts`, `tree`, `event` and `notice`.
 */

import * as api from './api.js';
import { pause } from './stream.js';
import { Emitter } from './emitter.js';
import { Turn } from './turn.js';
import { apply } from './patch.js';
import { grow, interruptsIn, withArtifact } from './messages.js';
import { pathTo } from './timeline-layout.js';
import { minus } from './usage.js';

/** The number of raw events kept. */
const MOST_EVENTS = 5000;

export class Conversation extends Emitter {
	/** @type {Message[]} */ messages = [];
	/** @type {any} */ custom = null;
	/** @type {Artifact[]} */ artifacts = [];
	/** The snapshot that is shown; none before the first turn, and for agents whose clients keep the state. @type {Snapshot | null} */
	snapshot = null;
	/** All snapshots of the session, oldest first. @type {Snapshot[]} */ tree = [];
	/** The first words of snapshots, by id. @type {Map<string, string>} */ excerpts = new Map();
	/** @type {string | null} */ latest = null;
	/** @type {Turn | null} */ turn = null;
	/** The messages of the running turn. @type {Message[]} */ live = [];
	/** What the agent says it is doing. @type {any} */ status = null;
	/** @type {RawEvent[]} */ events = [];
	/** The patches that arrived here, newest last. @type {Patch[]} */ patches = [];
	/** @type {{text: string, retry: (() => void) | null, usage?: Usage} | null} */ failure = null;
	/** Whether the user has opened an earlier snapshot. */ isReading = false;
	isLoaded = false;
	/** How long each tool took, by the reference of its call, as seen from here. @type {Map<string, number>} */ toolTimes = new Map();
	/** How long the last turn took. @type {number | null} */ lasted = null;

	/** @param {AgentInfo} agent @param {string} id @param {LocalSessions} local */
	constructor(agent, id, local) {
		super();
		this.agent = agent;
		this.id = id;
		this.local = local;
	}

	/** @param {string} action */
	can(action) {
		return this.agent.actions.includes(action);
	}

	get isServerManaged() {
		return this.can('getSnapshot');
	}

	/** Returns the duration of a tool call. @param {Part} part */
	timeOf({ toolRequest }) {
		return toolRequest?.ref ? this.toolTimes.get(toolRequest.ref) : undefined;
	}

	get interrupts() {
		return this.turn ? [] : interruptsIn(this.messages);
	}

	/** The snapshots from the root to the current position. */
	get path() {
		return pathTo(this.tree, this.snapshot?.snapshotId);
	}

	/**
	 * Loads the session, at a snapshot or at its latest.
	 * @param {string | null} [at]
	 * @param {boolean} [isReading] whether the user has opened the snapshot for reading
	 * @param {Turn | null} [ended] a turn that ends when its snapshot is shown; an earlier message would continue the previous snapshot
	 */
	async load(at = null, isReading = at !== null, ended = null) {
		if (!this.isServerManaged) {
			const kept = this.local.get(this.agent.name, this.id);
			this.#show(kept?.state ?? { messages: [] });
			this.isLoaded = true;
			return;
		}
		const request = at ? { snapshotId: at } : { sessionId: this.id };
		try {
			this.snapshot = await api.ask(this.agent, 'getSnapshot', request);
			this.isReading = isReading;
		} catch (error) {
			if (!(error instanceof api.ApiError && error.code === 404)) throw error;
			this.snapshot = null;
		}
		const shown = this.snapshot;
		// A running background run has no state yet: its initial state is shown, and the run's messages below it.
		const begun = shown && !shown.state && shown.parentId ? await api.ask(this.agent, 'getSnapshot', { snapshotId: shown.parentId }) : shown;
		if (this.turn === ended) this.turn = null;
		this.#show(this.#withAsked(begun?.state, shown));
		this.isLoaded = true;
		this.failure = await this.#keptFailure();
		if (ended) this.#end(ended);
		await this.loadTree();
		if (shown && (shown.status === 'pending' || shown.status === 'expired') && !this.turn) this.watch(shown.snapshotId);
	}

	/** The failure of the shown snapshot. A missing answer of the model can be retried. */
	async #keptFailure() {
		const { snapshot } = this;
		if (snapshot?.status !== 'failed' && snapshot?.status !== 'aborted') return null;
		const text = snapshot.error?.message ?? (snapshot.status === 'failed' ? 'The run failed.' : 'The run was stopped.');
		return { text, retry: snapshot.state ? this.#retry() : null, usage: await this.#usageOf(snapshot) };
	}

	/** The usage of the turn of a snapshot: a snapshot has the sum since its session began. @param {Snapshot} snapshot */
	async #usageOf({ usage, parentId }) {
		if (!usage || !parentId) return usage;
		const parent = await api.ask(this.agent, 'getSnapshot', { snapshotId: parentId, metadataOnly: true }).catch(() => null);
		return parent ? minus(usage, parent.usage) : undefined;
	}

	/** Retries a failed turn, if the model has not answered its last message. */
	#retry() {
		return ['user', 'tool'].includes(this.messages.at(-1)?.role ?? '') ? () => void this.send({}) : null;
	}

	/** @param {State} state */
	#show(state) {
		this.messages = state.messages;
		this.custom = state.custom ?? null;
		this.artifacts = state.artifacts ?? [];
		this.live = [];
		this.emit('reset');
		this.emit('state', { isNew: true });
		this.emit('artifacts');
	}

	/** Adds the first message of a run to the state before it: the server returns it only when the run has ended. */
	#withAsked(/** @type {State} */ state = { messages: [] }, shown) {
		const asked = shown && !shown.state ? sessionStorage.getItem(`everturn:asked:${shown.snapshotId}`) : null;
		return asked ? { ...state, messages: [...state.messages, JSON.parse(asked)] } : state;
	}

	/** Reads the session's tree, page by page. */
	async loadTree() {
		if (!this.can('tree') || !this.snapshot) {
			this.tree = [];
			this.emit('tree');
			return;
		}
		/** @type {Snapshot[]} */
		const tree = [];
		for await (const page of api.pages(this.agent, 'tree', { sessionId: this.id, limit: 1000 })) {
			tree.push(...page.snapshots);
			this.latest = page.latest ?? null;
			// The first page is shown while the others load.
			if (page.next && tree.length === 1000) {
				this.tree = [...tree];
				this.emit('tree');
			}
		}
		this.tree = tree;
		this.emit('tree');
	}

	/**
	 * Reads the first words of a few snapshots around one.
	 * @param {number} index the snapshot's place in the tree
	 */
	async loadExcerpts(index) {
		const first = Math.max(0, index - (index % 50));
		const before = this.tree[first - 1];
		const after = before ? { after: { createdAt: before.createdAt, snapshotId: before.snapshotId } } : {};
		const page = await api.ask(this.agent, 'tree', { sessionId: this.id, limit: 50, excerpts: true, ...after });
		for (const { snapshotId } of page.snapshots) this.excerpts.set(snapshotId, page.excerpts?.[snapshotId] ?? '');
		this.emit('tree');
	}

	/**
	 * Returns the snapshot that a new turn continues.
	 * @param {string | null} [from] a snapshot to branch from
	 */
	start(from = null) {
		if (!this.isServerManaged) return { state: { ...this.local.get(this.agent.name, this.id)?.state, messages: this.messages, custom: this.custom, artifacts: this.artifacts } };
		if (from) return { snapshotId: from };
		const here = this.snapshot;
		if (!here) return { sessionId: this.id };
		if (here.status === 'completed' || (here.state && (here.status === 'failed' || here.status === 'aborted'))) return here.snapshotId === this.latest && !this.isReading ? { sessionId: this.id } : { snapshotId: here.snapshotId };
		// A snapshot without a state cannot be continued; the last completed one before it can.
		const good = this.path.findLast((snapshot) => snapshot.status === 'completed');
		return good ? { snapshotId: good.snapshotId } : { sessionId: this.id };
	}

	/**
	 * Runs a turn.
	 * @param {{message?: Message, resume?: any}} input
	 * @param {{init?: any, detach?: boolean, keep?: number, otherwise?: {message?: Message, resume?: any}}} [options] `keep` is how many
	 *   messages of the conversation stay, `otherwise` an input to send if this one is rejected as invalid
	 */
	async send(input, { init = this.start(), detach = false, keep, otherwise } = {}) {
		if (keep !== undefined) this.messages = this.messages.slice(0, keep);
		if (input.message) this.messages = [...this.messages, input.message];
		this.failure = null;
		this.unsent = undefined;
		this.isReading = false;
		this.live = [];
		this.status = null;
		this.emit('reset');
		const body = { data: detach ? { ...input, detach: true } : input, ...(Object.keys(init).length > 0 ? { init } : {}) };
		await this.#follow(new Turn(this, { path: this.agent.path, body, base: this.snapshot?.snapshotId ?? null, input, otherwise }));
	}

	/** Shows a background run from its beginning to its end. @param {string} snapshotId */
	watch(snapshotId) {
		const turn = new Turn(this, { path: `${this.agent.path}/watch`, body: { data: { snapshotId } }, base: snapshotId, run: snapshotId });
		return this.#follow(turn);
	}

	/**
	 * Shows a turn that another tab started.
	 * @param {{stream: string, input: {message?: Message}, base: string | null}} begun
	 */
	join({ stream, input, base }) {
		if (this.turn) return Promise.resolve();
		if (input.message) this.messages = [...this.messages, input.message];
		this.live = [];
		this.emit('reset');
		return this.#follow(new Turn(this, { path: this.agent.path, body: { data: null }, base, input, stream }));
	}

	/** @param {Turn} turn */
	async #follow(turn) {
		this.turn = turn;
		this.emit('turn');
		const before = this.custom;
		try {
			for await (const event of turn.events()) {
				if (event === 'again') this.#restart(before);
				else this.#take(event);
			}
		} finally {
			if (this.turn === turn) {
				this.turn = null;
				this.status = null;
				this.emit('turn');
			}
		}
	}

	/** Discards the chunks of the turn so far. @param {any} custom */
	#restart(custom) {
		this.live = [];
		this.custom = custom;
		this.emit('reset');
		this.emit('state', {});
	}

	/** @param {any} data */
	#take(data) {
		this.events.push({ time: Date.now(), data });
		if (this.events.length > MOST_EVENTS) this.events.splice(0, this.events.length - MOST_EVENTS);
		this.emit('event');
		const chunk = /** @type {Chunk | undefined} */ (data.message);
		if (!chunk) return;
		if (chunk.takenOver) {
			this.live = [];
			this.emit('reset');
			this.emit('notice', 'Another worker has taken over the run.');
		}
		if (chunk.modelChunk) {
			this.#time(chunk.modelChunk.content);
			this.emit('live', grow(this.live, chunk));
		}
		if (chunk.customPatch) {
			this.custom = apply(this.custom ?? {}, chunk.customPatch);
			this.patches.push({ time: Date.now(), operations: chunk.customPatch });
			this.emit('state', { operations: chunk.customPatch });
		}
		if (chunk.artifact) {
			this.artifacts = withArtifact(this.artifacts, chunk.artifact);
			this.emit('artifacts', { name: chunk.artifact.name });
		}
		if (chunk.status !== undefined) {
			this.status = chunk.status;
			this.emit('turn');
		}
	}

	/** Measures the duration of tool calls. @param {Part[]} parts */
	#time(parts) {
		for (const { toolRequest, toolResponse } of parts) {
			const ref = toolRequest?.ref ?? toolResponse?.ref;
			if (!ref) continue;
			const begun = this.toolTimes.get(ref);
			if (toolRequest) this.toolTimes.set(ref, -Date.now());
			else if (begun !== undefined && begun < 0) this.toolTimes.set(ref, Date.now() + begun);
		}
	}

	/**
	 * Shows the outcome of a turn.
	 * @param {Output} output
	 * @param {Turn} turn
	 */
	async finish(output, turn) {
		this.lasted = turn.options.run ? null : Date.now() - turn.startedAt;
		if (output.state) {
			this.local.put(this.agent.name, this.id, output.state);
			this.#show(output.state);
		}
		if (output.finishReason === 'detached' && output.snapshotId) {
			this.emit('notice', 'The turn continues in the background.');
			const asked = turn.options.input?.message;
			if (asked) sessionStorage.setItem(`everturn:asked:${output.snapshotId}`, JSON.stringify(asked));
			this.#end(turn);
			await this.load();
		} else if (output.finishReason === 'failed' || output.finishReason === 'aborted') {
			const text = output.error?.message ?? (output.finishReason === 'aborted' ? 'The turn was stopped.' : 'The turn failed.');
			await this.fail(text, turn, output);
		} else if (this.isServerManaged) {
			this.latest = output.snapshotId ?? this.latest;
			await this.load(output.snapshotId ?? null, false, turn).catch(() => this.#end(turn));
		} else this.#end(turn);
		this.emit('ended', output);
	}

	/**
	 * Reports a failed turn, and keeps its message for another attempt.
	 * @param {string} text
	 * @param {Turn} turn
	 * @param {Output} [output]
	 */
	async fail(text, turn, output) {
		// A kept failed turn has a snapshot with its message and its finished rounds.
		const { base, input, otherwise, run } = turn.options;
		const here = this.snapshot?.status === 'completed' && output?.finishReason !== 'aborted' ? this.snapshot.snapshotId : null;
		const at = output?.snapshotId ?? here;
		if (this.isServerManaged) {
			if (turn.stream && !at) await this.#saved(base);
			await this.load(at, false, turn).catch(() => this.#end(turn));
		} else {
			this.#end(turn);
			this.emit('reset');
		}
		if (otherwise && output?.error?.status === 'INVALID_ARGUMENT') return this.send(otherwise);
		const isKept = Boolean(output?.state) || (this.snapshot !== null && this.snapshot.snapshotId !== base && this.failure !== null);
		const again = isKept ? this.#retry() : input && !run ? () => void this.send(input) : null;
		this.failure = { text, retry: again, usage: output?.usage };
		// The message is not lost: if the server has not kept it, the page shows it until it is sent again.
		this.unsent = again && !isKept ? input?.message : undefined;
		this.emit('turn');
		this.emit('ended', null);
	}

	/** Waits a short time until the server has saved a stopped turn. @param {string | null} base */
	async #saved(base) {
		for (let attempt = 0; attempt < 15; attempt += 1) {
			const tip = await api.ask(this.agent, 'getSnapshot', { sessionId: this.id, metadataOnly: true }).catch(() => null);
			if (tip && tip.snapshotId !== base) return;
			await pause(100);
		}
	}

	/** @param {Turn} turn */
	#end(turn) {
		if (this.turn && this.turn !== turn) return;
		this.turn = null;
		this.status = null;
		this.emit('turn');
	}

	/** The message of a turn that failed. @type {Message | undefined} */
	unsent;

	/** Finds the snapshot with this number of messages. @param {number} count @returns {Promise<string | null>} */
	async snapshotBefore(count) {
		const path = this.path.filter((snapshot) => snapshot.status === 'completed');
		let [low, high] = [0, path.length - 1];
		while (low <= high) {
			const middle = Math.floor((low + high) / 2);
			const { snapshotId } = path[middle];
			const snapshot = snapshotId === this.snapshot?.snapshotId ? this.snapshot : await api.ask(this.agent, 'getSnapshot', { snapshotId });
			const length = snapshot.state?.messages.length ?? 0;
			if (length === count) return snapshotId;
			if (length < count) low = middle + 1;
			else high = middle - 1;
		}
		return null;
	}
}
