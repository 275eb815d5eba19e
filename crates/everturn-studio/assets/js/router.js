/** The address names agent, session, snapshot and tab, so that a link shows what its sender saw. */

export const TABS = ['State', 'Timeline', 'Artifacts', 'Trace', 'Events'];

/** @param {string} hash @returns {Place} */
export function read(hash) {
	const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
	const [agent, session] = path.split('/').map(decoded);
	const values = new URLSearchParams(query);
	const tab = TABS.find((name) => name.toLowerCase() === values.get('tab'));
	return { agent: agent || null, session: session || null, at: values.get('at'), tab: tab ?? 'State', compare: values.get('compare') };
}

/** @param {Place} place */
export function write(place) {
	const path = [place.agent, place.session].filter((part) => part !== null).map((part) => encodeURIComponent(part));
	const values = new URLSearchParams();
	if (place.at) values.set('at', place.at);
	if (place.compare) values.set('compare', place.compare);
	if (place.tab !== 'State') values.set('tab', place.tab.toLowerCase());
	const query = values.toString();
	return `#/${path.join('/')}${query ? `?${query}` : ''}`;
}

function decoded(text) {
	try {
		return decodeURIComponent(text);
	} catch {
		return text;
	}
}
