/** The server's HTTP API, as much of it as the page uses. */

import { eventsOf } from './stream.js';

/** An error response. */
export class ApiError extends Error {
	/** @param {string} status @param {string} message @param {number} code */
	constructor(status, message, code) {
		super(message);
		this.status = status;
		this.code = code;
	}
}

/** The server cannot be reached. */
export class Unreachable extends Error {}

const TOKEN = 'everturn:token';

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

/** Sets the token for the calls of this tab; `null` removes it. @param {string | null} token */
export function keepToken(token) {
	if (token) sessionStorage.setItem(TOKEN, token);
	else sessionStorage.removeItem(TOKEN);
}

/**
 * @param {string} path
 * @param {RequestInit & {headers?: Record<string, string>}} [options]
 */
async function request(path, options = {}) {
	const token = sessionStorage.getItem(TOKEN);
	const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
	let response;
	try {
		response = await fetch(path, { ...options, headers });
	} catch (error) {
		if (options.signal?.aborted) throw error;
		throw new Unreachable('The server cannot be reached.');
	}
	if (response.ok) return response;
	const body = await response.json().catch(() => null);
	throw new ApiError(body?.status ?? 'UNKNOWN', body?.message ?? `${response.status} ${response.statusText}`, response.status);
}

/** @returns {Promise<AgentInfo[]>} */
export async function agents() {
	const response = await request('/agents');
	return (await response.json()).agents;
}

/**
 * Calls a companion action of an agent.
 * @param {AgentInfo} agent
 * @param {string} action
 * @param {any} data
 * @param {AbortSignal} [signal]
 */
export async function ask(agent, action, data, signal) {
	const response = await request(`${agent.path}/${action}`, {
		method: 'POST', signal, headers: { 'content-type': 'application/json', 'x-everturn-extensions': '1' }, body: JSON.stringify({ data }),
	});
	return (await response.json()).result;
}

/** Reads a listing page by page. @param {AgentInfo} agent @param {string} action @param {any} data */
export async function* pages(agent, action, data) {
	let after = {};
	while (after) {
		const page = await ask(agent, action, { ...data, ...after });
		yield page;
		after = page.next && { after: page.next };
	}
}

/**
 * Calls an agent or an action as a stream, or reconnects to a call.
 * @param {string} path
 * @param {any} body
 * @param {{signal?: AbortSignal, stream?: string | null, after?: string | null}} [options]
 */
export async function stream(path, body, { signal, stream: id, after } = {}) {
	/** @type {Record<string, string>} */
	const headers = {
		'content-type': 'application/json', accept: 'text/event-stream', 'x-everturn-extensions': '1', 'x-everturn-event-ids': '1',
	};
	if (id) headers['x-genkit-stream-id'] = id;
	if (id && after) headers['last-event-id'] = after;
	const response = await request(path, { method: 'POST', signal, headers, body: JSON.stringify(body) });
	return {
		/** A stream that the server does not have, or no longer. */
		isGone: response.status === 204,
		id: response.headers.get('x-genkit-stream-id') ?? id ?? null,
		events: eventsOf(response),
	};
}

/** @param {AgentInfo} agent @param {string} id */
export async function stop(agent, id) {
	await request(agent.path, { method: 'DELETE', headers: { 'x-genkit-stream-id': id } });
}

/** @param {AgentInfo} agent @param {string} sessionId */
export async function exportLines(agent, sessionId) {
	const response = await request(`${agent.path}/export`, {
		method: 'POST', headers: { 'content-type': 'application/json', accept: 'application/x-ndjson' }, body: JSON.stringify({ data: { sessionId } }),
	});
	return response.blob();
}

/** @param {AgentInfo} agent @param {Blob} file @param {{sessionId?: string}} init */
export async function importLines(agent, file, init) {
	const query = new URLSearchParams({ init: JSON.stringify(init) });
	const response = await request(`${agent.path}/import?${query}`, {
		method: 'POST', headers: { 'content-type': 'application/x-ndjson' }, body: file,
	});
	return (await response.json()).result;
}

/** @param {string} path the path below `/dev/` @returns {Promise<any>} `null` if the server keeps no traces, or not for this caller */
export async function development(path) {
	try {
		return await (await request(`/dev/${path}`)).json();
	} catch (error) {
		// Only operators may read traces.
		if (error instanceof ApiError && [403, 404].includes(error.code)) return null;
		throw error;
	}
}
