import { make } from './elements.js';
import { t } from './language.js';

function commandHint() {
  const hint = make('p');
  hint.append(
    'Type ', make('code', '', '/'), ' for commands: ',
    make('code', '', '/undo'), ' takes back the last message, ',
    make('code', '', '/new'), ' begins afresh, ',
    make('code', '', '/resume'), ' goes back to where you were, and ',
    make('code', '', '/help'), ' lists them all.',
  );
  return hint;
}

export function drawEmpty(element, agents) {
  const isDemo = agents.length > 0 && agents[0].kind === 'demo';
  const lines = [
    make('h2', '', t('Start a conversation')),
    make('p', '', t('What you write is stored before it is answered, and what you have seen stays: through restarts, crashes and lost connections. Close this page at any time; the answer will be here.')),
    commandHint(),
  ];
  if (isDemo) {
    const hint = make('p', 'demo');
    hint.append(
      make('strong', '', 'This is the offline demo agent.'),
      ' No model is configured, so it repeats what you say. Try ',
      make('code', '', 'demo words=80 delay_ms=40'),
      ' and restart the gateway while it speaks. To connect a model, name it in ',
      make('code', '', 'perdure.toml'),
      '.',
    );
    lines.push(hint);
  }
  element.replaceChildren(...lines);
}
