/** The tabs next to the conversation. Only the visible one is updated. */

import { h, iconButton, perFrame } from './view.js';
import { TABS } from './router.js';
import { stateTab } from './state-tab.js';
import { timelineTab } from './timeline-tab.js';
import { artifactsTab } from './artifacts-tab.js';
import { traceTab } from './trace-tab.js';
import { eventsTab } from './events-tab.js';

/** @param {Studio} studio */
export function inspector(studio) {
	/** @type {Record<string, Tab>} */
	const made = { State: stateTab(studio), Timeline: timelineTab(studio), Artifacts: artifactsTab(studio), Trace: traceTab(studio), Events: eventsTab(studio) };
	const tabs = TABS.map((name) => h('button', { role: 'tab', id: `tab-${name}`, 'aria-controls': `panel-${name}`, onclick: () => open(name) }, name));
	const close = iconButton('close', 'Close the panel', () => element.classList.remove('open'), { class: 'icon close-panel' });
	const panels = TABS.map((name) => h('div', { role: 'tabpanel', id: `panel-${name}`, 'aria-labelledby': `tab-${name}`, tabindex: '0', class: 'panel' }, made[name].element));
	const tablist = h('div', { role: 'tablist', 'aria-label': 'Inspector', class: 'tabs' }, tabs);
	const element = h('aside.inspector', { 'aria-label': 'Inspector' }, h('div.tab-bar', tablist, close), h('div.panels', panels));

	tablist.addEventListener('keydown', (event) => {
		const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
		if (!step) return;
		event.preventDefault();
		const next = (TABS.indexOf(studio.place.tab) + step + TABS.length) % TABS.length;
		open(TABS[next]);
		tabs[next].focus();
	});
	const update = perFrame(() => made[studio.place.tab].update());
	const choose = () => {
		TABS.forEach((name, index) => {
			const isOpen = name === studio.place.tab;
			tabs[index].setAttribute('aria-selected', String(isOpen));
			tabs[index].tabIndex = isOpen ? 0 : -1;
			panels[index].hidden = !isOpen;
		});
		update();
	};
	const open = (name) => {
		// On a narrow page the panel covers the conversation; its open tab closes it.
		const isSame = studio.place.tab === name;
		element.classList.toggle('open', !isSame || !element.classList.contains('open'));
		if (!isSame) studio.rename({ tab: name });
	};
	studio.on('place', choose);
	studio.on('conversation', () => {
		const { conversation } = studio;
		for (const [name, tab] of Object.entries(made)) {
			for (const event of tab.on) {
				conversation?.on(event, () => {
					if (studio.place.tab === name) update();
				});
			}
		}
		update();
	});
	choose();
	return { element, open };
}
