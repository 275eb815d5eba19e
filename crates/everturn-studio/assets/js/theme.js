/** The theme: light, dark, or that of the system. */

const KEY = 'everturn:theme';
const THEMES = ['auto', 'light', 'dark'];

export function applyTheme() {
	const theme = localStorage.getItem(KEY) ?? 'auto';
	if (theme === 'auto') document.documentElement.removeAttribute('data-theme');
	else document.documentElement.setAttribute('data-theme', theme);
	return theme;
}

export function nextTheme() {
	const now = localStorage.getItem(KEY) ?? 'auto';
	localStorage.setItem(KEY, THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
	return applyTheme();
}
