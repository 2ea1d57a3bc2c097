"""Commands that choose something for this conversation, and for no other."""

from perdure.domain.inbound.commands import Given
from perdure.store.operations.commands.given import STOPPED_TOO, Taken, end, started
from perdure.store.operations.setting import Setting
from perdure.store.statement import Op, run

# Keeps which agent answers in a conversation.
_AGENT = "UPDATE conversations SET agent = $1 WHERE id = $2"
# Keeps which persona was chosen for a conversation.
_PERSONA = "UPDATE conversations SET persona = $1 WHERE id = $2"
# Keeps which conversation is a person's home.
_HOME = "UPDATE principals SET home_conversation_id = $1 WHERE id = $2"


def agent(setting: Setting, given: Given) -> Op[Taken]:
    menu, wanted = setting.menu, given.arguments
    offered = f"Available: {', '.join(menu.agents)}."
    if not wanted:
        return Taken(f"{_answering(setting)} {offered}")
    if wanted not in menu.agents:
        return Taken(f"There is no agent {wanted!r}. {offered}")
    running = started(setting)
    recorded = yield from end(setting, running)
    yield from run(_AGENT, wanted, setting.conversation)
    stopped = f" {STOPPED_TOO}" if running else ""
    return Taken(f"{wanted} answers here from now on.{stopped}", recorded, running)


def _answering(setting: Setting) -> str:
    chosen = setting.place.agent
    answers = setting.menu.answering(chosen)
    if chosen in ("", answers):
        return f"{answers} answers here."
    return f"{answers} answers here: {chosen} was chosen, and is gone."


def persona(setting: Setting, given: Given) -> Op[Taken]:
    menu, wanted = setting.menu, given.arguments
    offered = (
        f"Available: {', '.join(menu.personas)}."
        if menu.personas
        else "None are configured; add [personas.NAME] with instructions to perdure.toml."
    )
    if not wanted:
        return Taken(f"Persona here: {setting.place.persona or 'none'}. {offered}")
    is_none = wanted == "none"
    if not is_none and wanted not in menu.personas:
        return Taken(f"There is no persona {wanted!r}. {offered}")
    yield from run(_PERSONA, "" if is_none else wanted, setting.conversation)
    told = "No persona here from now on." if is_none else f"Persona here from now on: {wanted}."
    return Taken(told)


def home(setting: Setting, given: Given) -> Op[Taken]:
    here = setting.place.via or setting.conversation
    yield from run(_HOME, here, setting.update.principal)
    return Taken("This is your home conversation now.")
