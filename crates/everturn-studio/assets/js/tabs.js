/** Tabs of one browser announce their turns to each other, so that each shows them as they are streamed. */

export class Tabs {
	#channel = new BroadcastChannel('everturn');

	/** @param {Studio} studio */
	constructor(studio) {
		this.studio = studio;
		this.#channel.onmessage = ({ data }) => this.#receive(data);
	}

	/** @param {Conversation} conversation @param {Turn} turn */
	begun(conversation, turn) {
		const { input = {}, base } = turn.options;
		this.#channel.postMessage({ kind: 'begun', agent: conversation.agent.name, session: conversation.id, stream: turn.stream, input, base });
	}

	/** @param {Conversation} conversation */
	changed(conversation) {
		this.#channel.postMessage({ kind: 'changed', agent: conversation.agent.name, session: conversation.id });
	}

	/** Asks the other tabs for a running turn. @param {string} agent @param {string} session */
	askFor(agent, session) {
		this.#channel.postMessage({ kind: 'who', agent, session });
	}

	/** @param {any} data */
	#receive({ kind, agent, session, stream, input, base }) {
		const { conversation } = this.studio;
		if (!conversation || conversation.agent.name !== agent || conversation.id !== session) return;
		const turn = conversation.turn;
		if (kind === 'who' && turn && turn.stream && !turn.options.run) this.begun(conversation, turn);
		else if (kind === 'begun' && !turn && !conversation.isReading) void conversation.join({ stream, input, base });
		else if (kind === 'changed' && !turn && !conversation.isReading) void conversation.load().catch(() => {});
	}
}
