/** Tool calls that wait for a person: approved, rejected, changed, or answered with any value. */

import { h } from './view.js';
import { jsonTree } from './json-tree.js';
import { respond, restart } from './messages.js';
import { schemaForm } from './schema-form.js';

/** @typedef {{restart?: Part, respond?: Part, otherwise?: Part | string}} Answer `otherwise` is for tools whose output cannot be a text */

/**
 * One group per call. The turn continues when all calls have an answer.
 * @param {Conversation} conversation
 */
export function approvals(conversation) {
	const { interrupts } = conversation;
	/** @type {Map<Part, Answer>} */
	const answers = new Map();
	const decide = (part, answer) => {
		answers.set(part, answer);
		if (answers.size < interrupts.length) return;
		const all = [...answers.values()];
		const resume = {
			restart: all.flatMap((each) => each.restart ?? []),
			respond: all.flatMap((each) => each.respond ?? []),
		};
		const others = all.flatMap((each) => each.otherwise ?? []);
		const text = others.find((each) => typeof each === 'string');
		const otherwise = others.length === 0 ? undefined : typeof text === 'string' ? { message: { role: 'user', content: [{ text }] } }
			: { resume: { restart: [...resume.restart, ...others], respond: [] } };
		void conversation.send({ resume }, { otherwise });
	};
	const mayEdit = conversation.agent.metadata.everturn?.editedInputs === true;
	return interrupts.map((part) => approval(part, mayEdit, (answer) => decide(part, answer)));
}

const APPROVED = { approved: true, toolApproved: true };

/**
 * The answer with other arguments. If the agent does not accept edited arguments, the model is asked to repeat the call.
 * @param {Part} part
 * @param {any} input
 * @param {boolean} mayEdit
 * @returns {Answer}
 */
function withArguments(part, input, mayEdit) {
	if (mayEdit) return { restart: restart(part, APPROVED, input) };
	const text = `This call was not carried out. Call the tool again, with exactly these arguments: ${JSON.stringify(input)}`;
	return { respond: respond(part, text), otherwise: text };
}

function rejection(part) {
	const text = 'The person rejected this call, so it was not carried out.';
	return { respond: respond(part, text), otherwise: restart(part, { approved: false, toolApproved: false }) };
}

function approval(part, mayEdit, decide) {
	const request = /** @type {ToolRequest} */ (part.toolRequest);
	const data = part.metadata?.interrupt;
	const question = typeof data === 'string' ? data : data?.question ?? data?.message ?? null;
	const group = h('div.approval', { role: 'group', 'aria-label': 'Approval needed' });
	const resolve = (answer) => {
		group.classList.add('settled');
		for (const control of group.querySelectorAll('button, input, textarea')) /** @type {HTMLButtonElement} */ (control).disabled = true;
		decide(answer);
	};
	const complaint = h('p.complaint', { role: 'alert', hidden: true });
	const read = (text) => {
		try {
			complaint.hidden = true;
			return { value: JSON.parse(text) };
		} catch (error) {
			complaint.textContent = `This is not JSON: ${error.message}`;
			complaint.hidden = false;
			return null;
		}
	};

	const argumentsArea = h('textarea', { 'aria-label': 'Arguments', class: 'mono', rows: 4 });
	argumentsArea.value = JSON.stringify(request.input ?? {}, null, 2);
	const editor = h('div.edit-form', { hidden: true }, argumentsArea,
		h('div.row', h('button', { onclick: () => {
			const input = read(argumentsArea.value);
			if (input) resolve(withArguments(part, input.value, mayEdit));
		} }, 'Call with these')));
	const isOutput = h('input', { type: 'checkbox' });
	const answerBox = h('input', { type: 'text', class: 'mono', 'aria-label': 'Answer as JSON', placeholder: 'Answer as JSON', spellcheck: 'false', autocomplete: 'off' });
	const sendAnswer = () => {
		const answer = read(answerBox.value);
		if (answer) resolve(isOutput.checked ? { respond: respond(part, answer.value) } : { restart: restart(part, answer.value) });
	};
	answerBox.addEventListener('keydown', (event) => {
		if (event.key === 'Enter') sendAnswer();
	});
	const schema = data?.schema ?? data?.answerSchema;
	group.append(
		h('div.approval-head', h('span.tool-name', request.name), h('span', question ?? 'asks before it runs.')),
		request.input !== undefined ? jsonTree(request.input) : '',
		question === null && data !== true && data !== undefined ? jsonTree(data, { name: 'asks' }) : '',
		h('div.row', {},
			h('button.primary', { onclick: () => resolve({ restart: restart(part, APPROVED) }) }, 'Approve'),
			h('button', { onclick: () => resolve(rejection(part)) }, 'Reject'),
			h('button.plain', { onclick: () => {
				editor.hidden = !editor.hidden;
				if (!editor.hidden) argumentsArea.focus();
			} }, 'Edit arguments')),
		editor,
		schema ? schemaForm(schema, (value) => resolve({ restart: restart(part, value) })) : '',
		h('div.row.answer', answerBox, h('button', { onclick: sendAnswer }, 'Send answer')),
		h('label.meta.check', isOutput, ' use it as the output, without running the tool'),
		complaint);
	return group;
}
