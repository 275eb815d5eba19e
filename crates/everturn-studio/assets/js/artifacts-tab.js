/** The artifacts of the conversation, one tab each. */

import { h, fill, iconButton } from './view.js';
import { copyButton, download } from './copy.js';
import { markdown } from './markdown-view.js';
import { media } from './part-view.js';
import { jsonTree } from './json-tree.js';

/** @param {Studio} studio @returns {Tab} */
export function artifactsTab(studio) {
	const names = h('div.artifact-names', { role: 'tablist', 'aria-label': 'Artifacts of the session' });
	const body = h('div.artifact', { role: 'tabpanel', id: 'artifact', 'aria-label': 'Artifact', tabindex: '0' });
	let chosen = 0;
	/** @type {Artifact[]} */ let shown = [];
	const update = () => {
		const artifacts = studio.conversation?.artifacts ?? [];
		// The newest artifact is shown.
		const newer = artifacts.findIndex((artifact, index) => artifact !== shown[index]);
		if (newer >= 0 && shown.length > 0 && artifacts.length >= shown.length) chosen = newer;
		shown = artifacts;
		chosen = Math.min(chosen, Math.max(0, artifacts.length - 1));
		fill(names, artifacts.map((artifact, index) => h('button', { role: 'tab', 'aria-controls': 'artifact', 'aria-selected': String(index === chosen), onclick: () => {
			chosen = index;
			update();
		} }, nameOf(artifact, index))));
		names.hidden = artifacts.length === 0;
		const artifact = artifacts[chosen];
		fill(body, artifact ? view(artifact, nameOf(artifact, chosen)) : h('p.meta.empty', 'Artifacts of the agent, such as files, are shown here.'));
	};
	return { element: h('div.artifacts', names, body), update, on: ['artifacts'] };
}

function nameOf(artifact, index) {
	return artifact.name || `artifact ${index + 1}`;
}

function view(artifact, name) {
	const text = artifact.parts.map((part) => part.text ?? '').join('');
	return [
		h('div.panel-bar', h('strong', name), h('span.space'), copyButton(() => text),
			iconButton('download', 'Download', () => download(name, new Blob([text], { type: 'text/plain' })))),
		...artifact.parts.map((part) => {
			if (part.media) return media(part.media);
			if (part.text === undefined) return jsonTree(part.data ?? part);
			return /\.(md|markdown)$/i.test(name) ? markdown(part.text) : h('pre.source', { tabindex: '0' }, h('code', part.text));
		}),
	];
}
