/** The trace of a turn: its spans as a waterfall, with inputs, outputs and costs. */

import { h, fill } from './view.js';
import * as api from './api.js';
import { ago, lasted } from './time.js';
import { copyButton } from './copy.js';
import { jsonTree } from './json-tree.js';
import { costs, parsed, waterfall } from './spans.js';
import { used } from './usage.js';

const KINDS = { model: 'model call', tool: 'tool', store: 'store', other: 'step' };

/** @param {Studio} studio @returns {Tab} */
export function traceTab(studio) {
	const choice = h('select', { 'aria-label': 'Turn', onchange: () => {
		chosen = choice.value;
		void load();
	} });
	const list = h('div.waterfall');
	const empty = h('p.meta.empty');
	let chosen = '';
	let wanted = '';
	let loads = 0;
	/** @type {Set<string>} */ const open = new Set();

	const update = () => {
		const { conversation } = studio;
		const key = JSON.stringify([conversation?.agent.name, conversation?.id, conversation?.snapshot?.snapshotId, conversation?.turn?.startedAt]);
		if (key !== wanted) {
			wanted = key;
			chosen = '';
			void load();
		}
	};

	const load = async () => {
		const { conversation } = studio;
		const mine = ++loads;
		if (!conversation?.id) return none('The spans of a turn are shown here.');
		let traces;
		try {
			const answer = await api.development(`traces?${new URLSearchParams({ sessionId: conversation.id, limit: '50' })}`);
			if (mine !== loads) return;
			if (!answer) return none('Turns are traced in development, for operators: start the program with EVERTURN_ENV=dev.');
			traces = answer.traces;
		} catch {
			return none('The traces cannot be read now.');
		}
		if (traces.length === 0) return none('No turn of this session has run since the server started.');
		const here = conversation.snapshot?.snapshotId;
		const fitting = traces.find((trace) => !conversation.turn && here && trace.snapshotIds?.includes(here)) ?? traces[0];
		const id = traces.some((trace) => trace.traceId === chosen) ? chosen : fitting.traceId;
		fill(choice, traces.map((trace) => h('option', { value: trace.traceId, selected: trace.traceId === id },
			`${trace.displayName} · ${trace.endTime ? lasted(trace.endTime - trace.startTime) : 'running'} · ${ago(trace.startTime)}`)));
		choice.hidden = false;
		const trace = await api.development(`traces/${encodeURIComponent(id)}`).catch(() => null);
		const { agent } = conversation;
		const spent = agent.actions.includes('usage') ? await api.ask(agent, 'usage', { sessionId: conversation.id }).catch(() => ({})) : {};
		if (mine !== loads || !trace) return;
		empty.hidden = true;
		show(trace, spent);
		// The trace of a running turn is refreshed while it is visible.
		if (waterfall(trace.spans).some((bar) => bar.running) && studio.place.tab === 'Trace') setTimeout(() => mine === loads && void load(), 700);
	};

	const none = (text) => {
		fill(list);
		choice.hidden = true;
		empty.textContent = text;
		empty.hidden = false;
	};

	const show = (trace, { session, tenant }) => {
		const bars = waterfall(trace.spans);
		const tokens = bars.reduce((sum, bar) => sum + (bar.tokens ?? 0), 0);
		const cost = bars.reduce((sum, bar) => sum + bar.cost, 0);
		const total = Math.max(...bars.map((bar) => bar.time), 0);
		fill(list,
			h('p.meta.totals', `${bars.length} spans · ${lasted(total)}${tokens > 0 ? ` · ${tokens} tokens` : ''}${costs(cost)}`),
			h('p.meta', used('So far', session ?? studio.conversation?.snapshot?.usage)),
			h('p.meta', used('All sessions of the tenant', tenant)),
			h('div.legend.meta', { 'aria-hidden': 'true' }, Object.entries(KINDS).map(([kind, name]) => h('span', { class: `kind k-${kind}` }, name))),
			bars.map((bar) => {
				const { span } = bar;
				const body = h('div.span-body');
				let isMade = false;
				const make = () => {
					if (isMade) return;
					isMade = true;
					body.append(...details(bar));
				};
				const isOpen = open.has(span.spanId) || bar.failed;
				if (isOpen) make();
				return h('details', { class: `span k-${bar.kind}${bar.failed ? ' failed' : ''}${bar.running ? ' running' : ''}`, open: isOpen, ontoggle: (event) => {
					const isNow = /** @type {HTMLDetailsElement} */ (event.target).open;
					if (isNow) {
						make();
						open.add(span.spanId);
					} else open.delete(span.spanId);
				} },
					h('summary', {},
						h('span.span-name', { style: { '--depth': bar.depth } }, span.displayName, h('span.sr', `, ${KINDS[bar.kind]}${bar.failed ? ', failed' : ''}`)),
						h('span.span-track', { 'aria-hidden': 'true' }, h('span.span-bar', { style: { left: `${bar.left * 100}%`, width: `${bar.width * 100}%` } })),
						h('span.span-time', bar.running ? '…' : lasted(bar.time), bar.tokens ? h('span.meta', ` ${bar.tokens} t${costs(bar.cost)}`) : null)),
					body);
			}));
	};
	return { element: h('div.trace', h('div.panel-bar', choice), empty, list), update, on: ['tree', 'turn', 'reset'] };
}

function details({ span }) {
	const { 'genkit:input': input, 'genkit:output': output, ...attributes } = span.attributes;
	const usage = parsed(output)?.usage;
	return [
		span.status?.message ? h('p.complaint', span.status.message) : null,
		usage ? section('Usage', Object.fromEntries(Object.entries(usage).filter(([, count]) => count))) : null,
		input === undefined ? null : section('Input', parsed(input)),
		output === undefined ? null : section('Output', parsed(output)),
		section('Attributes', attributes, 0),
		section('Raw', span, 0),
	].filter((each) => each !== null);
}

function section(title, value, open = 2) {
	return h('details.span-part', { open: open > 0 }, h('summary', title, copyButton(() => (typeof value === 'string' ? value : JSON.stringify(value, null, 2)), `Copy ${title.toLowerCase()}`)),
		typeof value === 'object' && value !== null ? jsonTree(value, { open }) : h('pre', { tabindex: '0' }, String(value)));
}
