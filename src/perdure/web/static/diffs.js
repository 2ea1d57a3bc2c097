// Finds the blocks of code in a text, and the lines of those that show what changes in a file. Pure.

// The pieces of a text: plain ones, and blocks of code with their language. A block ends only with
// the very fence that began it.
function piecesOf(text) {
  const pieces = [];
  let open = null;
  for (const line of text.split('\n')) {
    const [, fence, language] = /^(`{3,})(\w*)$/.exec(line) ?? [];
    if (open?.fence) {
      if (line === open.fence) open = null;
      else open.lines.push(line);
    } else if (fence || !open) {
      open = fence ? { fence, language, lines: [] } : { lines: [line] };
      pieces.push(open);
    } else open.lines.push(line);
  }
  return pieces;
}

// The blocks of code that a text holds, and what stands before the first of them.
export function partsOf(text) {
  const pieces = piecesOf(text);
  const lead = pieces[0]?.fence ? [] : (pieces[0]?.lines ?? []);
  return { lead: lead.join('\n').trim(), blocks: pieces.filter(({ fence }) => fence) };
}

export const previewOf = (text) => partsOf(text).blocks.find(({ language }) => language === 'diff')?.lines ?? [];

export function kindOf(line) {
  return (/^(\+\+\+|---) /.test(line) ? 'path' : { '+': 'added', '-': 'removed', '@': 'place' }[line[0]]) ?? '';
}

// The lines of a text whose changes of files are drawn as such, or null if it tells of none.
export function diffLines(text) {
  const pieces = piecesOf(text);
  if (!pieces.some(({ language }) => language === 'diff')) return null;
  return pieces.flatMap(({ fence, language, lines }) => {
    if (language === 'diff') return lines.map((line) => ({ line, kind: kindOf(line) }));
    return lines.join('').trim() || fence ? lines.map((line) => ({ line, kind: '' })) : [];
  });
}
