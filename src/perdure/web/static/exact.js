// Shows what a tool or a model has written so that it means what it looks like, and nothing of it
// is left out or added.

// Control characters, what changes the order of letters, and what takes no room. Joiners stay: whole
// scripts and many emoji need them.
const DISGUISES = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]|[\u{e0000}-\u{e007f}]/gu;

const number = (character) => `<U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}>`;

export const exact = (text) => text.replace(DISGUISES, number);

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/gsu;
const OPENS = { '{': '}', '[': ']' };
const INDENT = '  ';

// Only white space between the tokens is changed. A parser would drop the first of two equal keys
// and round long numbers, and nobody would see what is really asked for.
function indented(tokens) {
  let text = '';
  let depth = 0;
  const line = () => `\n${INDENT.repeat(depth)}`;
  tokens.forEach((token, at) => {
    if (token in OPENS) {
      if (tokens[at + 1] === OPENS[token]) text += token;
      else {
        depth += 1;
        text += token + line();
      }
    } else if (token === '}' || token === ']') {
      if (tokens[at - 1] in OPENS) text += token;
      else {
        depth -= 1;
        text += line() + token;
      }
    } else if (token === ',') text += token + line();
    else if (token === ':') text += ': ';
    else text += token;
  });
  return text;
}

// Arguments as they came, with line breaks if they are JSON.
export function exactJson(text) {
  try {
    JSON.parse(text);
  } catch {
    return exact(text);
  }
  return exact(indented(text.match(TOKEN) ?? []));
}
