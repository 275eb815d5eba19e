/** The hints in an empty conversation. */

import { h } from './view.js';

/** @param {Studio} studio */
export function welcome(studio) {
	const { agent } = studio;
	if (!agent) return null;
	const [about] = (agent.description ?? '').split(/[:.]? *“/);
	// Quotations in a description are suggested messages.
	const hints = [...(agent.description ?? '').matchAll(/“([^”]+)”/g)].map(([, hint]) => hint);
	if (!hints[0]) hints.push('Hello! What can you do?');
	return h('div.welcome', {},
		h('h2', agent.name),
		h('p', about ? `This agent ${about}.` : 'Send a message to start a session.'),
		h('div.hints', hints.map((hint) => h('button.hint', { onclick: () => studio.emit('hint', hint) }, hint))));
}
