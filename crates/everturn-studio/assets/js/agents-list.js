/** The agents, one link each. */

import { h, keyed } from './view.js';

/** @param {Studio} studio */
export function agentsList(studio) {
	const list = h('ul');
	const update = () => {
		keyed(list, studio.agents, (agent) => agent.name, (agent) => {
			const link = h('a', { href: studio.link(agent.name), title: agent.description ?? '' }, agent.name);
			return h('li', link);
		}, (item, agent) => {
			const link = /** @type {HTMLAnchorElement} */ (item.firstElementChild);
			const isCurrent = studio.agent === agent;
			if (isCurrent) link.setAttribute('aria-current', 'page');
			else link.removeAttribute('aria-current');
			link.href = studio.link(agent.name);
		});
	};
	studio.on('agents', update);
	studio.on('place', update);
	return h('nav.agents', { 'aria-label': 'Agents' }, h('h2', 'Agents'), list);
}
