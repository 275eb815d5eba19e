/** A conversation's messages as they are shown: tool calls beside their answers, streamed chunks put together. */

/**
 * Groups messages into entries: a message of the user, and the agent's messages up to the next one.
 * @param {Message[]} messages
 * @returns {Entry[]}
 */
export function entries(messages) {
	/** @type {Entry[]} */
	const found = [];
	messages.forEach((message, index) => {
		if (message.role === 'system') return;
		const last = found.at(-1);
		if (message.role === 'user' || !last || last.role === 'user') {
			const role = message.role === 'user' ? 'user' : 'model';
			found.push({ key: `${index}`, role, parts: [], index, answers: new Map() });
		}
		const entry = /** @type {Entry} */ (found.at(-1));
		for (const part of message.content) {
			if (part.toolResponse && message.role === 'tool') answer(entry, part);
			else entry.parts.push(part);
		}
		const { summary } = message.metadata ?? {};
		if (summary) entry.parts.push({ summary });
	});
	return found;
}

/** @param {Entry} entry @param {Part} part */
function answer(entry, part) {
	const response = /** @type {ToolResponse} */ (part.toolResponse);
	const request = entry.parts.findLast((each) => each.toolRequest && !entry.answers.has(each)
		&& each.toolRequest.name === response.name && each.toolRequest.ref === response.ref);
	if (request) entry.answers.set(request, response);
	else entry.parts.push(part);
}

/** @param {Part[]} parts */
export function textOf(parts) {
	return parts.map((part) => part.text ?? '').join('');
}

/**
 * Returns the tool requests that wait for a person.
 * @param {Message[]} messages
 * @returns {Part[]}
 */
export function interruptsIn(messages) {
	const last = messages.at(-1);
	if (last?.role !== 'model') return [];
	return last.content.filter((part) => part.toolRequest && part.metadata?.interrupt);
}

/**
 * Adds a streamed chunk to the messages of the running turn, in place.
 * @param {Message[]} live
 * @param {Chunk} chunk
 * @returns {{message: Message, part: Part | null}} the message that grew, and the part that took the text, if it was one
 */
export function grow(live, chunk) {
	const { role = 'model', index, content, aggregated } = /** @type {NonNullable<Chunk['modelChunk']>} */ (chunk.modelChunk);
	let message = live.at(-1);
	const isNext = !message || message.role !== role || (index !== undefined && message.metadata?.chunkIndex !== undefined && message.metadata.chunkIndex !== index);
	if (isNext || !message) {
		message = { role, content: [], metadata: index === undefined ? undefined : { chunkIndex: index } };
		live.push(message);
	}
	if (aggregated) message.content = [];
	let grown = null;
	for (const part of content) {
		const last = message.content.at(-1);
		const kind = part.text !== undefined ? 'text' : part.reasoning !== undefined ? 'reasoning' : null;
		if (kind && last && last[kind] !== undefined) {
			last[kind] += part[kind];
			grown = last;
		} else {
			const copy = { ...part };
			message.content.push(copy);
			grown = kind ? copy : null;
		}
	}
	return { message, part: grown };
}

/**
 * Adds an artifact: one of the same name is replaced in place.
 * @param {Artifact[]} artifacts
 * @param {Artifact} artifact
 */
export function withArtifact(artifacts, artifact) {
	const place = artifact.name ? artifacts.findIndex((known) => known.name === artifact.name) : -1;
	return place < 0 ? [...artifacts, artifact] : artifacts.with(place, artifact);
}

/**
 * Returns the answer that runs an interrupted tool again with a value, and optionally with other arguments.
 * @param {Part} part
 * @param {any} value
 * @param {any} [input]
 * @returns {Part}
 */
export function restart(part, value, input) {
	const { interrupt: _open, ...metadata } = part.metadata ?? {};
	const again = { ...part, metadata: { ...metadata, resumed: value } };
	const request = /** @type {ToolRequest} */ (part.toolRequest);
	return input === undefined ? again : { ...again, toolRequest: { ...request, input }, metadata: { ...again.metadata, replacedInput: request.input ?? null } };
}

/**
 * Returns the answer that replaces a tool's output.
 * @param {Part} part
 * @param {any} output
 * @returns {Part}
 */
export function respond(part, output) {
	const { name, ref } = /** @type {ToolRequest} */ (part.toolRequest);
	return { toolResponse: ref === undefined ? { name, output } : { name, ref, output }, metadata: { interruptResponse: true } };
}
