// The one component of each type of block.

import { Files } from './file.js';
import { Said, Text } from './text.js';
import { Thinking } from './thinking.js';
import { html } from '../ui.js';
import { blocksOf } from './kinds.js';

const DRAWN = { said: Said, text: Text, thinking: Thinking, files: Files };

export function Blocks({ message, isStreaming = false }) {
  return blocksOf(message, { isStreaming }).map((block) => html`<${DRAWN[block.type]} key=${block.type} ...${block} />`);
}
