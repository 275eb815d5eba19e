/** The sessions of agents that keep none: their states stay in this browser. */

/** @typedef {{id: string, time: number, state: State}} Kept */

const MOST = 30;

export class LocalSessions {
	/** @param {Storage} storage */
	constructor(storage) {
		this.storage = storage;
	}

	/** Newest first. @param {string} agent @returns {Kept[]} */
	list(agent) {
		try {
			return JSON.parse(this.storage.getItem(`everturn:sessions:${agent}`) ?? '[]');
		} catch {
			return [];
		}
	}

	/** @param {string} agent @param {string} id */
	get(agent, id) {
		return this.list(agent).find((kept) => kept.id === id);
	}

	/** @param {string} agent @param {string} id @param {State} state */
	put(agent, id, state) {
		const others = this.list(agent).filter((kept) => kept.id !== id);
		this.#write(agent, [{ id, time: Date.now(), state }, ...others].slice(0, MOST));
	}

	/** @param {string} agent @param {string} id */
	remove(agent, id) {
		this.#write(agent, this.list(agent).filter((kept) => kept.id !== id));
	}

	/** @param {string} agent @param {Kept[]} kept */
	#write(agent, kept) {
		let rest = kept;
		for (;;) {
			try {
				this.storage.setItem(`everturn:sessions:${agent}`, JSON.stringify(rest));
				return;
			} catch {
				if (rest.length <= 1) return;
				rest = rest.slice(0, -1);
			}
		}
	}
}
