// What a message consists of, as a list of typed blocks. Pure: each type is drawn by one component
// (see `index.js`).

// A model may write what it thinks into its answer, between these marks, at the very beginning.
const THOUGHTS = /^\s*<(think|thinking)>([\s\S]*?)(?:<\/\1>\s*|$)/;

function thoughtsIn(text) {
  const [whole, , thoughts] = THOUGHTS.exec(text) ?? [];
  if (whole === undefined) return { thoughts: '', rest: text, isThinking: false };
  return { thoughts: thoughts.trim(), rest: text.slice(whole.length), isThinking: whole.length === text.length && !/<\/think(ing)?>\s*$/.test(whole) };
}

export function blocksOf({ role, text, attachments = [] }, { isStreaming = false } = {}) {
  const files = attachments.length ? [{ type: 'files', attachments }] : [];
  if (role === 'user') return [...files, ...(text ? [{ type: 'said', text }] : [])];
  const { thoughts, rest, isThinking } = thoughtsIn(text);
  return [
    ...(thoughts ? [{ type: 'thinking', text: thoughts, isOpen: isStreaming && isThinking }] : []),
    { type: 'text', text: rest, isStreaming },
    ...files,
  ];
}
