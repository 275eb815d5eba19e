/** A session as one HTML file that needs nothing else: no script, no server. */

import { h } from './view.js';
import { entries } from './messages.js';
import { entryView } from './entry-view.js';

const STYLE = `:root{color-scheme:light dark}body{font:16px/1.6 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}
header{border-bottom:1px solid #8884;margin-bottom:1.5rem}article{margin:0 0 1.5rem}.who{font-weight:600;font-size:.85rem}
.you .content{background:#8881;border-radius:10px;padding:.5rem .9rem}.plain{white-space:pre-wrap;margin:0}pre{overflow:auto;background:#8881;padding:.75rem;border-radius:6px}
details{border:1px solid #8884;border-radius:6px;padding:.4rem .8rem;margin:.5rem 0}.tool-input,.tool-output,.meta,.count,.quiet{color:GrayText;margin-left:.5rem}.key{font-weight:600;margin-right:.5rem}
.members{padding-left:1rem}.entry-bar,.fence-bar button,.part-bar button{display:none}img{max-width:100%}table{border-collapse:collapse}td,th{border:1px solid #8884;padding:.2rem .6rem}`;

/** @param {Conversation} conversation */
export function shared(conversation) {
	const page = document.implementation.createHTMLDocument(`${conversation.agent.name} · ${conversation.id}`);
	const policy = page.createElement('meta');
	policy.httpEquiv = 'Content-Security-Policy';
	policy.content = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:";
	const charset = page.createElement('meta');
	charset.setAttribute('charset', 'utf-8');
	page.head.prepend(charset, policy);
	const time = new Date().toLocaleString();
	page.body.append(
		h('header', h('h1', `${conversation.agent.name} · ${conversation.id}`), h('p', `${conversation.messages.length} messages, ${time}`)),
		h('main', entries(conversation.messages).map((entry) => entryView(entry, conversation, null))),
		...conversation.artifacts.map((artifact) => h('section', h('h2', artifact.name ?? 'Artifact'), h('pre', artifact.parts.map((part) => part.text ?? '').join('')))),
		h('section', h('h2', 'State'), h('pre', JSON.stringify(conversation.custom, null, 2) ?? '')));
	// The styles are added to the text: in an element they would be subject to this page's policy.
	const text = new XMLSerializer().serializeToString(page.documentElement).replace('</head>', `<style>${STYLE}</style></head>`);
	return new Blob([`<!doctype html>\n${text}`], { type: 'text/html' });
}
