/** A message of one side: an article of the conversation. */

import { h, iconButton } from './view.js';
import { partView } from './part-view.js';
import { copyButton } from './copy.js';
import { textOf } from './messages.js';

/**
 * @param {Entry} entry
 * @param {Conversation} conversation
 * @param {{sayInstead: (index: number, parts: Part[]) => void} | null} actions without them, messages cannot be replaced
 */
export function entryView(entry, conversation, actions) {
	const isUser = entry.role === 'user';
	const name = isUser ? 'You' : conversation.agent.name;
	const parts = entry.parts.map((part) => partView(part, {
		answer: entry.answers.get(part), plain: isUser, waits: Boolean(part.metadata?.interrupt),
		time: conversation.timeOf(part),
	}));
	const body = h('div.content', parts);
	const bar = h('div.entry-bar');
	const article = h('article', { class: `entry ${isUser ? 'you' : 'agent'}`, 'aria-label': name }, h('div.who', name), body, bar);
	if (isUser && actions) {
		bar.append(
			iconButton('edit', 'Edit', () => edit(article, body, entry, actions)),
			iconButton('retry', 'Retry', () => actions.sayInstead(entry.index, entry.parts)));
	}
	bar.append(copyButton(() => textOf(entry.parts)));
	return article;
}

function edit(article, body, entry, actions) {
	if (article.classList.contains('editing')) return;
	const area = h('textarea.edit', { 'aria-label': 'Edited text', rows: 3 });
	area.value = textOf(entry.parts);
	const close = () => {
		article.classList.remove('editing');
		form.replaceWith(body);
	};
	const save = () => {
		const others = entry.parts.filter((part) => part.text === undefined);
		close();
		actions.sayInstead(entry.index, [{ text: area.value }, ...others]);
	};
	area.addEventListener('keydown', (event) => {
		if (event.key === 'Escape') close();
		if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
			event.preventDefault();
			save();
		}
	});
	const form = h('div.edit-form', area,
		h('div.row', h('span.meta', 'This message starts a branch; the later messages are kept.'), h('button', { onclick: close }, 'Cancel'),
			h('button.primary', { onclick: save }, 'Branch')));
	article.classList.add('editing');
	body.replaceWith(form);
	area.focus();
}
