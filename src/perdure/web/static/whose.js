// Whose conversation a link leads to. Operators may read those of others, which have another name for
// them than for their person.

import * as api from './api.js';
import { t } from './language.js';
import { showAsked } from './opened.js';
import { outbox } from './sending.js';
import { redraw, state } from './state.js';

export async function lookWhose(conversation) {
  const { name } = conversation;
  try {
    const { name: known } = await api.standing(name);
    if (known === name || state.current !== conversation) return;
    history.replaceState(null, '', `#c=${encodeURIComponent(known)}`);
    showAsked();
  } catch (failure) {
    if (failure.status !== 404 || state.current !== conversation || outbox.of(name).length) return;
    conversation.problem = t('no_conversation_of_yours');
    redraw();
  }
}
