/**
 * Parses Markdown to plain nodes. The nodes are data from which a view creates elements, so no text can become markup.
 */

/**
 * @typedef {{type: 'text', text: string} | {type: 'code', text: string} | {type: 'strong' | 'em' | 'del', children: Inline[]}
 *   | {type: 'link', href: string, children: Inline[]} | {type: 'break'}} Inline
 * @typedef {{type: 'paragraph', children: Inline[]} | {type: 'heading', level: number, children: Inline[]}
 *   | {type: 'fence', language: string, text: string, open: boolean} | {type: 'quote', children: Block[]} | {type: 'rule'}
 *   | {type: 'list', ordered: boolean, start: number, items: Block[][]}
 *   | {type: 'table', head: Inline[][], rows: Inline[][][]}} Block
 */

const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const FENCE = /^\s{0,3}(`{3,}|~{3,})\s*([^`\s]*)/;

/** @param {string} text @returns {Block[]} */
export function parse(text) {
	return blocks(text.replace(/\r\n?/g, '\n').split('\n'), 0);
}

function blocks(lines, depth) {
	/** @type {Block[]} */
	const found = [];
	for (let at = 0; at < lines.length;) {
		const line = lines[at];
		const fence = FENCE.exec(line);
		const heading = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$/.exec(line);
		if (line.trim() === '') at += 1;
		else if (fence) {
			let end = at + 1;
			while (end < lines.length && !lines[end].trim().startsWith(fence[1])) end += 1;
			found.push({ type: 'fence', language: fence[2], text: lines.slice(at + 1, end).join('\n'), open: end >= lines.length });
			at = end + 1;
		} else if (heading) {
			found.push({ type: 'heading', level: heading[1].length, children: inline(heading[2]) });
			at += 1;
		} else if (/^\s{0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) {
			found.push({ type: 'rule' });
			at += 1;
		} else if (/^\s{0,3}>/.test(line) && depth < 8) {
			const end = endOf(lines, at, (each) => /^\s{0,3}>/.test(each));
			const inner = lines.slice(at, end).map((each) => each.replace(/^\s{0,3}>\s?/, ''));
			found.push({ type: 'quote', children: blocks(inner, depth + 1) });
			at = end;
		} else if (ITEM.test(line) && depth < 8) {
			const [list, end] = listFrom(lines, at, depth);
			found.push(list);
			at = end;
		} else if (line.includes('|') && /^[\s|:-]+$/.test(lines[at + 1] ?? '') && (lines[at + 1] ?? '').includes('-')) {
			const end = endOf(lines, at + 2, (each) => each.includes('|'));
			found.push({ type: 'table', head: cells(line), rows: lines.slice(at + 2, end).map(cells) });
			at = end;
		} else {
			const end = endOf(lines, at + 1, (each) => each.trim() !== '' && !FENCE.test(each) && !ITEM.test(each) && !/^\s{0,3}(#{1,6}\s|>)/.test(each));
			found.push({ type: 'paragraph', children: inline(lines.slice(at, end).join('\n')) });
			at = end;
		}
	}
	return found;
}

function endOf(lines, from, belongs) {
	let end = from;
	while (end < lines.length && belongs(lines[end])) end += 1;
	return end;
}

function listFrom(lines, from, depth) {
	const first = /** @type {RegExpExecArray} */ (ITEM.exec(lines[from]));
	const ordered = /\d/.test(first[2]);
	const indent = first[1].length;
	/** @type {string[][]} */
	const items = [];
	let at = from;
	while (at < lines.length) {
		const item = ITEM.exec(lines[at]);
		if (item && item[1].length <= indent && /\d/.test(item[2]) === ordered) items.push([item[3]]);
		else if (lines[at].trim() === '' && startsWithSpace(lines[at + 1], indent)) items.at(-1)?.push('');
		else if (lines[at].trim() === '' && ITEM.test(lines[at + 1] ?? '')) items.at(-1)?.push('');
		else if (startsWithSpace(lines[at], indent)) items.at(-1)?.push(lines[at].slice(Math.min(indent + 2, lines[at].search(/\S/))));
		else break;
		at += 1;
	}
	const start = ordered ? Number.parseInt(first[2], 10) : 1;
	return [{ type: 'list', ordered, start, items: items.map((item) => blocks(item, depth + 1)) }, at];
}

function startsWithSpace(line, indent) {
	return line !== undefined && line.trim() !== '' && line.search(/\S/) > indent;
}

function cells(line) {
	return line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => inline(cell.trim()));
}

const INLINE = /(`+)([\s\S]+?)\1(?!`)|(\*\*|__)(?=\S)([\s\S]*?\S)\3|(~~)(?=\S)([\s\S]*?\S)~~|([*_])(?=\S)([\s\S]*?\S)\7(?!\w)|!?\[([^\]\n]*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+"[^"\n]*")?\)|(https?:\/\/[^\s<>"')\]]+[^\s<>"')\].,;:!?])|\\([\\`*_{}[\]()#+\-.!|~>])| {2,}\n/;

/** @param {string} text @param {number} [depth] @returns {Inline[]} */
export function inline(text, depth = 0) {
	/** @type {Inline[]} */
	const found = [];
	let rest = text;
	while (rest) {
		const match = depth < 8 ? INLINE.exec(rest) : null;
		if (!match) break;
		// An underscore inside a word is part of the word.
		const inWord = (match[7] === '_' || match[3] === '__') && /\w$/.test(rest.slice(0, match.index));
		if (inWord) {
			const end = match.index + 1;
			push(found, rest.slice(0, end));
			rest = rest.slice(end);
			continue;
		}
		push(found, rest.slice(0, match.index));
		rest = rest.slice(match.index + match[0].length);
		if (match[2] !== undefined) found.push({ type: 'code', text: match[2].replace(/^ (.*) $/, '$1') });
		else if (match[4] !== undefined) found.push({ type: 'strong', children: inline(match[4], depth + 1) });
		else if (match[6] !== undefined) found.push({ type: 'del', children: inline(match[6], depth + 1) });
		else if (match[8] !== undefined) found.push({ type: 'em', children: inline(match[8], depth + 1) });
		else if (match[10] !== undefined) link(found, match, depth);
		else if (match[11] !== undefined) found.push({ type: 'link', href: match[11], children: [{ type: 'text', text: match[11] }] });
		else if (match[12] !== undefined) push(found, match[12]);
		else found.push({ type: 'break' });
	}
	push(found, rest);
	return found;
}

function link(found, match, depth) {
	const href = safeLink(match[10]);
	if (href) found.push({ type: 'link', href, children: inline(match[9] || href, depth + 1) });
	else push(found, match[0]);
}

function push(found, text) {
	if (!text) return;
	const last = found.at(-1);
	if (last?.type === 'text') last.text += text;
	else found.push({ type: 'text', text });
}

/**
 * Returns a safe link address: a web or mail address without hidden characters.
 * @param {string} address
 */
export function safeLink(address) {
	if (/[\u0000-\u0020\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(address)) return null;
	return /^(https?:\/\/|mailto:)/i.test(address) ? address : null;
}

/**
 * Returns the length of the stable part of a growing text: up to the last empty line outside a fence or list.
 * @param {string} text
 */
export function stableLength(text) {
	let end = 0;
	let fence = '';
	let position = 0;
	const lines = text.split('\n');
	for (const [number, line] of lines.entries()) {
		const opening = FENCE.exec(line);
		if (fence && line.trim().startsWith(fence)) fence = '';
		else if (!fence && opening) fence = opening[1];
		position += line.length + 1;
		const following = lines[number + 1];
		const isPlain = following !== undefined && following.trim() !== '' && !/^\s/.test(following) && !ITEM.test(following);
		if (!fence && line.trim() === '' && isPlain && number + 1 < lines.length) end = position;
	}
	return Math.min(end, text.length);
}
