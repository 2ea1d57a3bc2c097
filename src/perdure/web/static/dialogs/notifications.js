// The switch for notifications of this browser, and why it cannot be turned on.

import { t } from '../language.js';
import { isOn, problem, turnOff, turnOn } from '../notifying.js';
import { html, useState } from '../ui.js';

const WHY = {
  insecure: () => t('notifications_need_https'),
  unable: () => t('notifications_unable'),
  denied: () => t('notifications_denied'),
  not_allowed: () => t('notifications_not_allowed'),
  no_service: () => t('notifications_no_service'),
};

export function Notifications() {
  const [isWanted, setWanted] = useState(isOn());
  const [isBusy, setBusy] = useState(false);
  const [said, setSaid] = useState('');
  const why = problem();
  const switched = async () => {
    setBusy(true);
    setSaid('');
    try {
      const refusal = isWanted ? await turnOff() : await turnOn();
      if (refusal) setSaid(WHY[refusal]());
      setWanted(isOn());
    } catch (failure) {
      setSaid(failure.message);
    }
    setBusy(false);
  };
  return html`<h3>${t('notifications')}</h3>
    <label class="switch"><input id="notifications" type="checkbox" role="switch" checked=${isWanted} disabled=${isBusy || Boolean(why)} aria-describedby="notifications-about" onChange=${switched} /> ${t('notify_me_on_this_device')}</label>
    <p id="notifications-about" class="meta">${t('notifications_about')}</p>
    <p role="status" class="error">${said || (why && WHY[why]())}</p>`;
}
