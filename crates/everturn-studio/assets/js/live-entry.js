/** What the agent is saying: an article that grows. Parts are appended, and only the one that grows is touched. */

import { h } from './view.js';
import { GrowingMarkdown } from './markdown-view.js';
import { partView, reasoning } from './part-view.js';
import { entries } from './messages.js';

export class LiveEntry {
	#content = h('div.content');
	#status = h('div.live-status', { role: 'status' });
	/** @type {Map<Part, {element: HTMLElement, update?: (part: Part) => void, isAnswered?: boolean}>} */ #parts = new Map();

	/** @param {Conversation} conversation */
	constructor(conversation) {
		this.conversation = conversation;
		this.element = h('article.entry.agent.live', { 'aria-label': conversation.agent.name, 'aria-busy': 'true' },
			h('div.who', conversation.agent.name), this.#content, this.#status);
	}

	update() {
		const { live, status, turn } = this.conversation;
		for (const entry of entries(live)) {
			for (const part of entry.parts) {
				const known = this.#parts.get(part);
				const answer = entry.answers.get(part);
				if (known?.update) known.update(part);
				if (known && (!answer || known.isAnswered)) continue;
				const made = part.text !== undefined ? growing() : part.reasoning !== undefined ? thought() : {
					element: partView(part, { answer, time: this.conversation.timeOf(part), waits: Boolean(part.metadata?.interrupt) }),
					isAnswered: Boolean(answer),
				};
				if ('update' in made) made.update(part);
				if (known) known.element.replaceWith(made.element);
				else this.#content.append(made.element);
				this.#parts.set(part, made);
			}
		}
		const note = status === null ? '' : typeof status === 'string' ? status : status.note ?? status.message ?? JSON.stringify(status);
		const step = typeof status === 'object' && status?.of ? ` (${status.step} of ${status.of})` : '';
		const words = turn?.isLost ? 'The connection is lost; the turn continues when the server is back.' : turn?.isStopping ? 'Stopping…' : note ? `${note}${step}` : live.length === 0 ? 'Thinking…' : '';
		if (this.#status.textContent !== words) this.#status.textContent = words;
		this.#status.classList.toggle('idle', words === '');
	}
}

function growing() {
	const text = new GrowingMarkdown();
	return { element: text.element, update: (part) => text.update(part.text ?? '') };
}

function thought() {
	const element = reasoning('');
	const text = /** @type {HTMLElement} */ (element.querySelector('.reasoning-text'));
	return { element, update: (grown) => void (text.textContent = grown.reasoning ?? '') };
}
