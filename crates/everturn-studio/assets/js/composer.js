/** The composer: drafts per session, files, and messages sent while a turn runs. */

import { h, fill, iconButton } from './view.js';
import * as api from './api.js';
import { textOf } from './messages.js';

/** The maximum size of an attached file, in bytes. */
const MOST = 2_500_000;

/** The effect of an agent's policy on a message sent during a turn. @type {Record<string, (agent: string) => string>} */
const POLICIES = {
	reject: (agent) => `${agent} accepts one message at a time: yours is kept here and sent when this turn ends.`,
	queue: (agent) => `${agent} answers messages in their order: yours waits for this turn to end.`,
	fork: (agent) => `${agent} answers both at once: yours becomes a branch, which the timeline shows.`,
};

/** @param {Studio} studio */
export function composer(studio) {
	/** @type {{name: string, part: Part}[]} */ let files = [];
	/** @type {Part[] | null} */ let held = null;
	const area = h('textarea', { 'aria-label': 'Message', rows: 1, placeholder: 'Message', enterkeyhint: 'send', disabled: true });
	const send = h('button.primary', { onclick: () => submit() }, 'Send');
	const stop = h('button.stop', { hidden: true, onclick: () => void studio.conversation?.turn?.stop().catch(showError) }, 'Stop');
	const background = h('button.plain', { onclick: () => submit(true) }, 'Run in background');
	const picker = h('input', { type: 'file', multiple: true, hidden: true, onchange: () => void attach([...picker.files ?? []]) });
	const chips = h('div.chips');
	const note = h('p.policy.meta', { role: 'status', hidden: true });
	const element = h('div.composer', note, chips,
		h('div.compose', area,
			h('div.compose-bar', iconButton('attach', 'Attach files', () => picker.click()), background, h('span.space'), stop, send)), picker);

	const showError = (error) => studio.emit('notice', error.message ?? String(error));
	const key = () => `everturn:draft:${studio.place.agent}/${studio.conversation?.id ?? ''}`;
	const notify = (text) => {
		note.textContent = text;
		note.hidden = text === '';
	};
	const fit = () => {
		area.style.setProperty('height', 'auto');
		area.style.setProperty('height', `${Math.min(area.scrollHeight + 2, 240)}px`);
	};
	const showFiles = () => fill(chips, files.map((file) => h('span.chip', file.name,
		iconButton('close', `Remove ${file.name}`, () => {
			files = files.filter((each) => each !== file);
			showFiles();
		}))));

	const update = () => {
		const { conversation, agent } = studio;
		const turn = conversation?.turn ?? null;
		send.hidden = turn !== null;
		stop.hidden = turn === null;
		stop.disabled = turn?.isStopping ?? false;
		background.hidden = !agent?.actions.includes('watch');
		area.disabled = !agent;
		area.placeholder = agent ? `Message to ${agent.name}` : 'Choose an agent';
		if (!turn && held && conversation) {
			const parts = held;
			held = null;
			notify('');
			void studio.say(parts).catch(showError);
		}
	};

	const submit = (detach = false) => {
		const text = area.value.trim();
		const { conversation, agent } = studio;
		if ((!text && files.length === 0) || !conversation || !agent) return area.focus();
		const parts = [...(text ? [{ text }] : []), ...files.map((file) => file.part)];
		localStorage.removeItem(key());
		area.value = '';
		files = [];
		showFiles();
		fit();
		if (!conversation.turn) return void studio.say(parts, { detach }).catch(showError);
		const policy = agent.metadata.everturn?.concurrency ?? 'reject';
		notify((POLICIES[policy] ?? POLICIES.reject)(agent.name));
		if (policy === 'fork' && conversation.turn.options.base) void branch(parts, conversation.turn.options.base).catch(showError);
		else held = parts;
	};

	/** Sends a message while a turn is running. */
	const branch = async (parts, base) => {
		const { conversation, agent } = studio;
		if (!conversation || !agent) return;
		const call = await api.stream(agent.path, { data: { message: { role: 'user', content: parts } }, init: { snapshotId: base } });
		for await (const { data } of call.events) if (data.error) throw new Error(data.error.message);
		notify('');
		await conversation.loadTree();
	};

	const attach = async (chosen) => {
		for (const file of chosen) {
			if (file.size > MOST) {
				studio.emit('notice', `${file.name} is too large: at most ${MOST / 1_000_000} MB are sent along.`);
				continue;
			}
			const url = await new Promise((resolve) => {
				const reader = new FileReader();
				reader.onload = () => resolve(reader.result);
				reader.readAsDataURL(file);
			});
			files.push({ name: file.name, part: { media: { url, contentType: file.type || 'application/octet-stream' } } });
		}
		picker.value = '';
		showFiles();
	};

	area.addEventListener('input', () => {
		fit();
		localStorage.setItem(key(), area.value);
	});
	area.addEventListener('keydown', (event) => {
		if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
			event.preventDefault();
			submit();
		} else if (event.key === 'ArrowUp' && area.value === '') {
			const last = studio.conversation?.messages.findLast((message) => message.role === 'user');
			if (!last) return;
			event.preventDefault();
			area.value = textOf(last.content);
			fit();
		}
	});
	area.addEventListener('paste', (event) => {
		const pasted = [...event.clipboardData?.files ?? []];
		if (pasted.length === 0) return;
		event.preventDefault();
		void attach(pasted);
	});
	element.addEventListener('dragover', (event) => event.preventDefault());
	element.addEventListener('drop', (event) => {
		event.preventDefault();
		void attach([...event.dataTransfer?.files ?? []]);
	});
	studio.on('hint', (hint) => {
		area.value = hint;
		fit();
		area.focus();
	});
	studio.on('conversation', () => {
		held = null;
		notify('');
		studio.conversation?.on('turn', update);
		area.value = localStorage.getItem(key()) ?? '';
		fit();
		update();
	});
	return { element, focus: () => area.focus() };
}
