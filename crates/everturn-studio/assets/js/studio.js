/**
 * The state of the page: the agents, their sessions and runs, and one open conversation. Views listen to its events: `place`,
 * `conversation`, `sessions`, `runs`, `reach` and `notice`.
 *
 * `patch.js`, `markdown.js`, `timeline-layout.js`, `messages.js` and `stream.js` do not use the page, so they are tested
 * without a browser.
 */

import * as api from './api.js';
import { Emitter } from './emitter.js';
import { Conversation } from './conversation.js';
import { LocalSessions } from './local-sessions.js';
import { Runs } from './runs.js';
import { Tabs } from './tabs.js';
import { read, write } from './router.js';
import { pause } from './stream.js';
import { sessionName } from './time.js';

/** @typedef {{items: SessionSummary[], next: Cursor | null}} Sessions */

/** The interval at which the sessions of the open agent are read, in milliseconds. */
const POLL = 2500;
const PAGE = 50;

export class Studio extends Emitter {
	/** @type {AgentInfo[]} */ agents = [];
	/** @type {AgentInfo | null} */ agent = null;
	/** @type {Conversation | null} */ conversation = null;
	/** @type {Map<string, Sessions>} */ sessions = new Map();
	place = read(location.hash);
	local = new LocalSessions(localStorage);
	runs = new Runs(this);
	tabs = new Tabs(this);
	isReachable = true;

	/** Reads the agents and shows the place in the address; retries until the server responds. */
	async open() {
		addEventListener('hashchange', () => void this.#arrive());
		for (;;) {
			try {
				this.agents = await api.agents();
				break;
			} catch (error) {
				if (error instanceof api.ApiError) throw error;
				this.reached(false);
				await pause(1000);
			}
		}
		this.reached(true);
		if (!this.place.agent) await this.#begin();
		this.emit('agents');
		await this.#arrive();
		void this.#poll();
	}

	/** Opens the newest session of all agents, or the first agent. */
	async #begin() {
		const listed = await Promise.all(this.agents.map((agent) => this.readSessions(agent).catch(() => null)));
		let newest = null;
		for (const [index, sessions] of listed.entries()) {
			const latest = sessions?.items[0];
			if (latest && (!newest || latest.latest.createdAt > newest.latest.createdAt)) newest = { ...latest, agent: this.agents[index].name };
		}
		this.place = { ...this.place, agent: newest?.agent ?? this.agents[0]?.name ?? null, session: newest?.sessionId ?? null };
		history.replaceState(null, '', write(this.place));
	}

	/** @param {Partial<Place>} change */
	go(change) {
		const address = write({ ...this.place, ...change });
		if (address === location.hash) return;
		location.hash = address;
	}

	/** The address of an agent, or of one of its sessions. @param {string | null} agent @param {string | null} [session] */
	link(agent, session = null) {
		return write({ agent, session, at: null, tab: this.place.tab, compare: null });
	}

	/** Changes the address without navigating. @param {Partial<Place>} change */
	rename(change) {
		this.place = { ...this.place, ...change };
		history.replaceState(null, '', write(this.place));
		this.emit('place');
	}

	async #arrive() {
		const before = this.place;
		this.place = read(location.hash);
		const { agent: name, session, at } = this.place;
		const agent = this.agents.find((each) => each.name === name) ?? null;
		const isOther = this.agent !== agent || before.session !== session || !this.conversation;
		this.agent = agent;
		this.emit('place');
		if (!agent) {
			this.conversation = null;
			this.emit('conversation');
			return;
		}
		if (isOther) {
			this.conversation?.turn?.leave();
			this.conversation = this.#conversation(agent, session ?? '');
			this.emit('conversation');
			void this.readSessions(agent).catch(() => {});
			if (session) await this.#load(at);
			else this.conversation.isLoaded = true;
			this.conversation?.emit('reset');
			if (session) this.tabs.askFor(agent.name, session);
		} else if (before.at !== at && !this.conversation?.turn) await this.#load(at);
	}

	/** @param {string | null} at */
	async #load(at) {
		const { conversation } = this;
		for (let tries = 0; conversation && conversation === this.conversation; tries += 1) {
			try {
				await conversation.load(at);
				return this.reached(true);
			} catch (error) {
				if (!(error instanceof api.Unreachable)) {
					conversation.failure = { text: error.message, retry: () => void this.#load(at) };
					conversation.emit('turn');
					return;
				}
				this.reached(false);
				await pause(1000);
			}
		}
	}

	/** @param {AgentInfo} agent @param {string} id */
	#conversation(agent, id) {
		const conversation = new Conversation(agent, id, this.local);
		conversation.on('turn', () => this.runs.update(conversation));
		conversation.on('notice', (text) => this.emit('notice', text));
		conversation.on('begun', (turn) => this.tabs.begun(conversation, turn));
		conversation.on('ended', () => {
			this.tabs.changed(conversation);
			void this.readSessions(agent).catch(() => {});
		});
		return conversation;
	}

	/**
	 * Sends a message to the agent.
	 * @param {Part[]} parts
	 * @param {{detach?: boolean, init?: any, keep?: number}} [options]
	 */
	async say(parts, options = {}) {
		const { conversation } = this;
		if (!conversation) return;
		if (!conversation.id) {
			conversation.id = sessionName(parts.map((part) => part.text ?? '').join(' '));
			this.rename({ session: conversation.id, at: null });
		} else if (this.place.at) this.rename({ at: null });
		await conversation.send({ message: { role: 'user', content: parts } }, options);
	}

	/** Replaces an earlier message by the same or another one, which starts a branch. @param {number} index @param {Part[]} parts */
	async sayInstead(index, parts) {
		const { conversation } = this;
		if (!conversation || conversation.turn) return;
		if (!conversation.isServerManaged) {
			conversation.messages = conversation.messages.slice(0, index);
			return this.say(parts);
		}
		const from = index > 0 ? await conversation.snapshotBefore(index) : null;
		if (from) return this.say(parts, { init: { snapshotId: from }, keep: index });
		// The first message has no predecessor, so a new session starts.
		this.emit('notice', 'This is the first message, so a new session starts.');
		this.conversation = this.#conversation(conversation.agent, '');
		this.emit('conversation');
		await this.say(parts);
	}

	/**
	 * Reads the first page of an agent's sessions, or the next one.
	 * @param {AgentInfo} agent
	 * @param {boolean} [more]
	 */
	async readSessions(agent, more = false) {
		if (!agent.actions.includes('listSessions')) return null;
		const known = this.sessions.get(agent.name);
		const after = more && known?.next ? { after: known.next } : {};
		const page = await api.ask(agent, 'listSessions', { limit: PAGE, ...after });
		const newer = new Set(page.sessions.map((each) => each.sessionId));
		const others = (known?.items ?? []).filter((each) => !newer.has(each.sessionId));
		// Sessions after the first page are kept, unless there is no second page any more.
		const rest = !more && page.next ? others : [];
		const items = more ? [...others, ...page.sessions] : [...page.sessions, ...rest];
		const sessions = { items, next: rest.length > 0 && known ? known.next : page.next ?? null };
		this.sessions.set(agent.name, sessions);
		this.emit('sessions', agent);
		void this.#readRuns(agent).catch(() => {});
		return sessions;
	}

	/** Reads the background runs of an agent, in any process. @param {AgentInfo} agent */
	async #readRuns(agent) {
		/** @type {SessionSummary[]} */ const runs = [];
		for await (const page of api.pages(agent, 'listSessions', { pending: true })) runs.push(...page.sessions);
		await this.runs.seen(agent, runs);
	}

	/** Follows the changes of other tabs, clients and processes. */
	async #poll() {
		for (let round = 0; ; round += 1) {
			await pause(POLL);
			if (document.visibilityState === 'hidden') continue;
			const some = round % 4 === 0 || this.runs.isWaiting ? this.agents : this.agent ? [this.agent] : [];
			try {
				for (const agent of some) await this.readSessions(agent);
				this.reached(true);
			} catch (error) {
				if (error instanceof api.Unreachable) this.reached(false);
			}
			await this.#catchUp().catch(() => {});
		}
	}

	/** Shows a turn that another client has started or ended in the open session. */
	async #catchUp() {
		const { conversation, agent } = this;
		if (!conversation?.isLoaded || conversation.turn || conversation.isReading || this.place.at || !agent) return;
		const listed = this.sessions.get(agent.name)?.items.find((each) => each.sessionId === conversation.id);
		if (!listed) return;
		const isKnown = listed.latest.snapshotId === conversation.latest && listed.latest.status === (conversation.tree.at(-1)?.status ?? conversation.snapshot?.status);
		if (!isKnown && conversation.snapshot?.snapshotId === conversation.latest) await conversation.load();
		else if (!isKnown) await conversation.loadTree();
	}

	/** @param {boolean} isReachable */
	reached(isReachable) {
		if (this.isReachable === isReachable) return;
		this.isReachable = isReachable;
		this.emit('reach');
	}
}
