/** Markdown as elements, whole or while it grows. */

import { h, fill } from './view.js';
import { copyButton } from './copy.js';
import { parse, stableLength } from './markdown.js';

/** @param {string} text */
export function markdown(text) {
	return h('div.markdown', parse(text).map(block));
}

/** A growing Markdown text: its stable part is rendered once, and only the last block is rendered again. */
export class GrowingMarkdown {
	element = h('div.markdown');
	#done = h('div.flow');
	#tail = h('div.flow');
	#stableLength = 0;
	#length = -1;

	constructor() {
		this.element.append(this.#done, this.#tail);
	}

	/** @param {string} text */
	update(text) {
		if (text.length === this.#length) return;
		this.#length = text.length;
		const end = this.#stableLength + stableLength(text.slice(this.#stableLength));
		if (end > this.#stableLength) {
			this.#done.append(...parse(text.slice(this.#stableLength, end)).map(block));
			this.#stableLength = end;
		}
		fill(this.#tail, parse(text.slice(this.#stableLength)).map(block));
	}
}

function block(node) {
	switch (node.type) {
		case 'heading': return h(/** @type {'h3'} */ (`h${Math.min(node.level + 2, 6)}`), { class: `level-${node.level}` }, node.children.map(inline));
		case 'fence': return h('div.fence', {},
			h('div.fence-bar', h('span', node.language || 'text'), copyButton(() => node.text, 'Copy code')),
			h('pre', { tabindex: '0' }, h('code', node.text)));
		case 'quote': return h('blockquote', node.children.map(block));
		case 'rule': return h('hr');
		case 'list': {
			const items = node.items.map((item) => h('li', item.length === 1 && item[0].type === 'paragraph' ? item[0].children.map(inline) : item.map(block)));
			return node.ordered ? h('ol', { start: node.start }, items) : h('ul', items);
		}
		case 'table': return h('div.table', { tabindex: '0' }, h('table', {},
			h('thead', h('tr', node.head.map((cell) => h('th', cell.map(inline))))),
			h('tbody', node.rows.map((row) => h('tr', row.map((cell) => h('td', cell.map(inline))))))));
		default: return h('p', node.children.map(inline));
	}
}

function inline(node) {
	switch (node.type) {
		case 'text': return document.createTextNode(node.text);
		case 'code': return h('code', node.text);
		case 'break': return h('br');
		case 'link': return h('a', { href: node.href, target: '_blank', rel: 'noopener noreferrer nofollow' }, node.children.map(inline));
		case 'strong': return h('strong', node.children.map(inline));
		case 'del': return h('del', node.children.map(inline));
		default: return h('em', node.children.map(inline));
	}
}
