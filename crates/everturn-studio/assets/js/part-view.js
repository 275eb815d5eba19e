/** One part of a message. */

import { h } from './view.js';
import { markdown } from './markdown-view.js';
import { safeLink } from './markdown.js';
import { toolCard } from './tool-card.js';
import { jsonTree } from './json-tree.js';

/**
 * @param {Part} part
 * @param {{answer?: ToolResponse, time?: number, plain?: boolean, waits?: boolean}} [more] `plain` text stays as it was typed
 */
export function partView(part, { answer, time, plain = false, waits = false } = {}) {
	if (part.text !== undefined) return plain ? h('p.plain', { dir: 'auto' }, part.text) : markdown(part.text);
	if (part.reasoning !== undefined) return reasoning(part.reasoning);
	if (part.summary) return folded(`Summary of the first ${part.summary.upTo} messages, which the model sees in their place`, part.summary.text);
	if (part.media) return media(part.media);
	if (part.toolRequest) return toolCard(part.toolRequest, answer, { time, waits, approval: part.metadata?.approval });
	if (part.toolResponse) return toolCard({ name: part.toolResponse.name, ref: part.toolResponse.ref }, part.toolResponse);
	return h('div.raw', jsonTree(part.data ?? part));
}

/** @param {string} text */
export function reasoning(text) {
	return folded('Reasoning', text);
}

/** @param {string} title @param {string} text */
function folded(title, text) {
	return h('details.reasoning', h('summary', title), h('div.reasoning-text', text));
}

/** @param {{url: string, contentType?: string}} file */
export function media({ url, contentType = '' }) {
	const kind = contentType || /^data:([^;,]+)/.exec(url)?.[1] || '';
	const isHere = /^(data:|blob:)/.test(url);
	if (isHere && /^image\/(png|jpe?g|gif|webp|avif|bmp)/.test(kind)) return h('img.media', { src: url, alt: 'Attached picture', loading: 'lazy' });
	if (isHere && kind.startsWith('audio/')) return h('audio', { controls: true, src: url });
	if (isHere && kind.startsWith('video/')) return h('video.media', { controls: true, src: url });
	const href = isHere ? url : safeLink(url);
	const name = `File${kind ? ` (${kind})` : ''}`;
	return href ? h('a.file', { href, download: isHere ? 'file' : null, target: '_blank', rel: 'noopener noreferrer' }, name) : h('span.file', name);
}
