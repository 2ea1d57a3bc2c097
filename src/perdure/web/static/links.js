// Where an address ends that stands in a text without spaces around it. Pure.

const ASCII_HOST = /^[a-z][a-z0-9+.-]*:\/\/[\w.:@[\]-]+/i;
const FOREIGN = /[^\x00-\x7f]/;
// Signs that end a sentence or a quotation in scripts that put no space behind them.
const ENDS = /[\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\u2018-\u201f\u2026]/;

// A host that begins in ASCII ends where another script begins; a path may have other letters.
export function endOfLink(raw) {
  const [host] = ASCII_HOST.exec(raw) ?? [''];
  if (host && FOREIGN.test(raw[host.length] ?? '')) return host.length;
  const at = raw.search(ENDS);
  return at < 0 ? raw.length : at;
}
