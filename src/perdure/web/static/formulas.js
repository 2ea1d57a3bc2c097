// Formulas in text: `\( \)` and `\[ \]`, and `$$ $$` for those on lines of their own. A single dollar
// is money. What is drawn is decided later; here they only survive markdown.

const MARKS = [['\\(', '\\)', false], ['\\[', '\\]', true], ['$$', '$$', true]];

function inline(state, isSilent) {
  const { src, pos } = state;
  const mark = MARKS.find(([open]) => src.startsWith(open, pos));
  if (!mark) return false;
  const [open, close, isDisplay] = mark;
  const end = src.indexOf(close, pos + open.length);
  if (end < 0 || end >= state.posMax + close.length || end === pos + open.length) return false;
  if (!isSilent) {
    const token = state.push('formula', 'span', 0);
    token.content = src.slice(pos + open.length, end).trim();
    token.markup = src.slice(pos, end + close.length);
    token.meta = { isDisplay };
  }
  state.pos = end + close.length;
  return true;
}

// A formula on lines of its own may hold what markdown would take for lists or rules.
function block(state, startLine, endLine, isSilent) {
  const begin = state.bMarks[startLine] + state.tShift[startLine];
  const mark = MARKS.find(([open, , isDisplay]) => isDisplay && state.src.startsWith(open, begin));
  if (!mark || state.sCount[startLine] - state.blkIndent >= 4) return false;
  const [open, close] = mark;
  for (let line = startLine; line < endLine; line += 1) {
    const from = line === startLine ? begin + open.length : state.bMarks[line];
    const at = state.src.slice(from, state.eMarks[line]).lastIndexOf(close);
    if (at < 0) continue;
    if (state.src.slice(from + at + close.length, state.eMarks[line]).trim()) return false;
    if (isSilent) return true;
    const token = state.push('formula', 'div', 0);
    token.block = true;
    token.content = state.src.slice(begin + open.length, from + at).trim();
    token.meta = { isDisplay: true };
    state.line = line + 1;
    return true;
  }
  return false;
}

export function formulas(md) {
  const { escapeHtml } = md.utils;
  md.inline.ruler.before('escape', 'formula', inline);
  md.block.ruler.before('paragraph', 'formula', block, { alt: ['paragraph', 'reference', 'blockquote', 'list'] });
  md.renderer.rules.formula = (tokens, i) => {
    const { content, meta, block: isBlock } = tokens[i];
    const tag = isBlock ? 'div' : 'span';
    return `<${tag} class="math${meta.isDisplay ? ' display' : ''}" data-tex="${escapeHtml(content)}"></${tag}>`;
  };
}
