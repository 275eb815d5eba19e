/** The background runs of all agents, each with its progress and a way to end it. */

import { h, fill, keyed } from './view.js';
import { ago, exact } from './time.js';

/** @param {Studio} studio */
export function backgroundRuns(studio) {
	const list = h('ul');
	const empty = h('p.meta.empty', 'Nothing runs in the background.');
	const update = () => {
		const runs = studio.runs.list;
		keyed(list, runs, (run) => run.snapshotId, (run) => {
			// The head is not replaced while the rest changes, so that a click on it is not lost.
			const item = h('li.run', h('div.run-head', h('a', { href: studio.link(run.agent.name, run.sessionId) }, `${run.agent.name} · ${run.sessionId}`),
				h('button.small', { onclick: () => void studio.runs.abort(run).catch((error) => studio.emit('notice', error.message)) }, 'Abort')), h('div'));
			show(item, run);
			return item;
		}, show);
		empty.hidden = runs.length > 0;
	};
	const show = (item, run) => {
		const state = { pending: 'running', expired: 'lapsed', completed: 'done', failed: 'failed', aborted: 'aborted' }[run.status] ?? run.status;
		const print = JSON.stringify([run.status, run.note, run.done, run.takenOver, run.output, ago(run.startedAt)]);
		if (item.dataset.print === print) return;
		item.dataset.print = print;
		const isOver = run.endedAt !== null;
		const done = run.status === 'completed' ? 1 : run.done;
		item.querySelector('button').hidden = isOver;
		fill(item.lastElementChild,
			h('div', { role: 'progressbar', 'aria-label': `Progress of ${run.sessionId}`, 'aria-valuenow': done === null ? null : Math.round(done * 100), 'aria-valuemin': 0, 'aria-valuemax': 100, class: `track ${run.status}${done === null && !isOver ? ' unknown' : ''}` },
				h('div.fill', { style: { width: `${Math.round((done ?? (isOver ? 1 : 0.35)) * 100)}%` } })),
			h('div.facts', {},
				h('span', { class: `mark ${run.status}` }, state),
				run.takenOver ? h('span.mark.taken', 'taken over') : null,
				h('span.note', isOver ? '' : run.note),
				h('time', { title: exact(run.startedAt) }, ago(run.startedAt))),
			run.output && !isOver ? h('p.run-output', run.output.trim().split('\n').at(-1) ?? '') : null);
	};
	studio.on('runs', update);
	setInterval(update, 5000);
	return h('section.runs', { role: 'region', 'aria-label': 'Background runs' }, h('h2', 'Background runs'), list, empty);
}
