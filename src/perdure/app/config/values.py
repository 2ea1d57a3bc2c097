"""Declares the configuration as values.

Each struct is one section of `perdure.toml`, made of the types in `ports/platform/settings.py`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from perdure.app.config.tool_values import ApproveChoice, ToolsConfig
from perdure.domain.secret import Secret
from perdure.ports.platform.settings import (
    AdapterSettings,
    BusyChoice,
    CommandWords,
    Count,
    Days,
    Name,
    NonEmptyText,
    Port,
    Seconds,
    Section,
    Url,
    WaitSeconds,
    WholeNumber,
)

MAIN: Final = "main"
Money = Annotated[float, Meta(ge=0, le=1e15, description="an amount of money, 0 or more")]
Share = Annotated[float, Meta(gt=0, le=1, description="a number above 0 and at most 1")]
Temperature = Annotated[float, Meta(ge=0, le=2, description="a number from 0 to 2")]
_NOTHING: Final[Mapping[str, Secret]] = MappingProxyType({})


class ServerConfig(Section, frozen=True, kw_only=True):
    """Holds where the HTTP server listens and how it is reached. `base_url` is the public address
    behind a proxy. Requests may use the names in `hosts`. `X-Forwarded-For` is believed from
    `trusted_proxies`. `busy` is what a message over HTTP does while a turn runs. `call_wait_s` is
    how long a `/v1` call that is not streamed stays open while its turn waits for a person."""

    host: NonEmptyText = "127.0.0.1"
    port: Port = 8585
    busy: BusyChoice = "queue"
    base_url: Url | None = None
    trusted_proxies: tuple[NonEmptyText, ...] = ()
    hosts: tuple[NonEmptyText, ...] = ()
    call_wait_s: Seconds = 60.0
    timezone: str = ""

    def __post_init__(self) -> None:
        """Remove the slash at the end of `base_url`, because paths begin with one."""
        if self.base_url is not None:
            msgspec.structs.force_setattr(self, "base_url", self.base_url.rstrip("/"))


class NetworkConfig(Section, frozen=True, kw_only=True):
    """Holds how other servers are reached: over which proxy, and which certificate authorities are
    trusted besides those of the system. The proxy is a secret, because its address may contain a
    password."""

    proxy: Secret | None = None
    ca_file: NonEmptyText | None = None


class StoreConfig(Section, frozen=True, kw_only=True):
    """Holds where the store is. `url` is the word sqlite or a postgresql:// address. It is a
    secret, because the address may contain a password."""

    url: Secret = Secret("sqlite")

    @property
    def is_sqlite(self) -> bool:
        """Tell whether the store is a SQLite file in the home."""
        return self.url.reveal() == "sqlite"


class PricesSection(Section, frozen=True, kw_only=True):
    """Holds what a million tokens cost."""

    input: Money = 0.0
    output: Money = 0.0
    cached: Money | None = None


class RuleSection(Section, frozen=True, kw_only=True):
    """Holds a rule for an agent's calls of `tool` that match `match`, a glob on a path, on the
    address of a page, or on an argument vector. An empty `match` matches every call."""

    tool: NonEmptyText
    do: Literal["allow", "ask", "deny"]
    match: str = ""


class AgentSection(Section, frozen=True, kw_only=True):
    """Holds the settings that every kind of agent takes. `description` tells other agents what this
    one is good at, and `delegates` are those to which it may give work. `approve` says for this
    agent when people are asked about a tool, and `rules` refine it."""

    description: str = ""
    delegates: tuple[Name, ...] = ()
    instructions: str = ""
    context: bool = True
    context_tokens: Count = 128_000
    pictures: WholeNumber = 20
    compact_at: Share = 0.75
    compact_agent: Name | None = None
    tools: tuple[NonEmptyText, ...] = ()
    approve: Mapping[NonEmptyText, ApproveChoice] = MappingProxyType({})
    rules: tuple[RuleSection, ...] = ()
    fallbacks: tuple[Name, ...] = ()
    patience_s: Seconds = 60.0
    concurrent: Count | None = None
    prices: PricesSection | None = None


class ChatAgentSection(AgentSection, frozen=True, kw_only=True, tag_field="kind", tag="chat"):
    """Configures a model behind the OpenAI or the Anthropic wire. An empty `base_url` means the
    provider's own address."""

    api: Literal["openai", "anthropic"] = "openai"
    base_url: Url = ""
    model: NonEmptyText
    api_key: Secret | None = None
    headers: Mapping[NonEmptyText, Secret] = _NOTHING
    max_tokens: Count | None = None
    temperature: Temperature | None = None
    reasoning: Literal["low", "medium", "high", "off"] | None = None
    vision: bool = True
    connect_timeout_s: WaitSeconds = 10.0
    first_token_timeout_s: WaitSeconds = 120.0
    silence_timeout_s: WaitSeconds = 60.0

    def __post_init__(self) -> None:
        base_url = self.base_url.rstrip("/") or MAKERS[self.api]
        msgspec.structs.force_setattr(self, "base_url", base_url)


MAKERS: Final[Mapping[str, str]] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
}


class Pool(Section, frozen=True, kw_only=True):
    """Holds how many processes of an external agent run, and for how long. Without
    `sessions_per_process` a process has as many sessions as its preset bears."""

    processes: Count = 1
    prewarm: bool = True
    sessions_per_process: Count | None = None
    idle_s: Seconds = 900.0


class AcpAgent(AgentSection, frozen=True, kw_only=True, tag_field="kind", tag="acp"):
    """Configures an external agent program that speaks ACP on its standard streams. A `preset`
    knows how to start it; `command` starts it otherwise. It works in `cwd`, or in a folder for each
    conversation, and may write in `roots`. With `own_tools` it keeps its own tools for files and
    commands. `share` says whether people share its processes; without it, they do if the agent has
    no tools of its own."""

    preset: Literal["gemini", "claude", "codex", "opencode", "qwen", "vibe"] | None = None
    command: CommandWords | None = None
    env: Mapping[NonEmptyText, Secret] = _NOTHING
    cwd: NonEmptyText | None = None
    roots: tuple[NonEmptyText, ...] = ()
    own_tools: bool = False
    sandbox: Literal["auto", "off"] = "auto"
    share: bool | None = None
    silence_timeout_s: WaitSeconds = 600.0
    pool: Pool = Pool()


class DemoAgentSection(AgentSection, frozen=True, kw_only=True, tag_field="kind", tag="demo"):
    """Configures the offline agent."""


AgentConfig = ChatAgentSection | AcpAgent | DemoAgentSection


class PersonaConfig(Section, frozen=True, kw_only=True):
    """Holds how an agent answers where /persona has chosen this persona."""

    instructions: NonEmptyText


class RecoveryConfig(Section, frozen=True, kw_only=True):
    """Holds what happens to an interrupted turn at the next start: it continues, its people are
    asked, or it waits for their next message. After `freshness_s` it always waits. After
    `attempts_max` unplanned interruptions in a row it is given up."""

    resume: Literal["continue", "ask", "wait"] = "continue"
    freshness_s: Seconds = 3600.0
    attempts_max: Count = 3


class DrainConfig(Section, frozen=True, kw_only=True):
    """Holds how long running turns may go on after a stop was asked for."""

    timeout_s: Seconds = 30.0


class SessionsConfig(Section, frozen=True, kw_only=True):
    """Holds whether sessions get titles, and after how long a silence a message begins a new
    session. 0 means never."""

    titles: bool = True
    idle_reset_s: Seconds = 0.0


class TurnsConfig(Section, frozen=True, kw_only=True):
    """Holds how many turns may run at once, how long one may take, and how many model calls it may
    make."""

    concurrent: Count = 10_000
    timeout_s: WaitSeconds = 1800.0
    steps_max: Count = 50


class DeliveryConfig(Section, frozen=True, kw_only=True):
    """Holds how long a part may wait to be sent. After that it is parked."""

    expire_s: WaitSeconds = 86_400.0


class LimitsConfig(Section, frozen=True, kw_only=True):
    """Bounds what comes in: requests, queues, files, and the answers of models. `fetch_wait_s` is
    how long a message waits for its files before its turn begins without them. `private_urls`
    allows attachments and pages from private networks."""

    body_bytes: Count = 10_000_000
    queued_per_conversation: Count = 100
    media_bytes: Count = 20_000_000
    fetch_wait_s: WaitSeconds = 60.0
    answer_bytes: Count = 4_000_000
    answer_calls: Count = 128
    turn_bytes: Count = 16_000_000
    turn_calls: Count = 1_000
    private_urls: bool = False


class TranscriberConfig(Section, frozen=True, kw_only=True):
    """Configures how speech becomes text: by a server that speaks OpenAI's audio wire, or by a
    program that prints what is said in the file whose name replaces {file}. Without either, speech
    is not transcribed."""

    url: Url | None = None
    model: NonEmptyText = "whisper-1"
    api_key: Secret | None = None
    language: str = ""
    command: CommandWords | None = None
    timeout_s: WaitSeconds = 60.0


class SpeechConfig(Section, frozen=True, kw_only=True):
    """Configures how answers are read aloud: by a server that speaks OpenAI's audio wire. Without
    it nothing is."""

    url: Url | None = None
    model: NonEmptyText = "tts-1"
    voice: NonEmptyText = "alloy"
    api_key: Secret | None = None
    timeout_s: WaitSeconds = 30.0


class RetentionConfig(Section, frozen=True, kw_only=True):
    """Holds how long closed sessions are kept. 0 means forever."""

    closed_days: Days = 0.0


class BudgetSection(Section, frozen=True, kw_only=True):
    """Holds how much may be spent. A key that is left out means no limit, 0 allows nothing."""

    tokens: WholeNumber | None = None
    money: Money | None = None


class BudgetPeriods(Section, frozen=True, kw_only=True):
    """Holds the budgets by period."""

    daily: BudgetSection | None = None


class BudgetsConfig(Section, frozen=True, kw_only=True):
    """Holds what each person, each conversation and each agent may spend."""

    person: BudgetPeriods = BudgetPeriods()
    conversation: BudgetPeriods = BudgetPeriods()
    agent: BudgetPeriods = BudgetPeriods()


class MemberQuotas(Section, frozen=True, kw_only=True):
    """Holds how much one member may use. 0 means no limit."""

    bytes: WholeNumber = 5_000_000_000
    files: WholeNumber = 20
    turns: WholeNumber = 100
    requests_per_minute: WholeNumber = 600


class QuotasConfig(Section, frozen=True, kw_only=True):
    """Holds the quotas of members. Operators have none."""

    member: MemberQuotas = MemberQuotas()


class ScheduleConfig(Section, frozen=True, kw_only=True):
    """Holds how many jobs one person may have, and how often the default agent goes through the
    checklist of the home. 0 means never."""

    jobs_per_person: Count = 100
    heartbeat_s: Seconds = 0.0


class NoticesConfig(Section, frozen=True, kw_only=True):
    """Holds what the gateway tells people of itself: to the operators' homes that it ends and that
    it is back, and to a conversation that its answer takes long, if nothing was shown for so long.
    0 means never."""

    stopping: bool = True
    back: bool = True
    still_at_work_s: Seconds = 60.0


class Config(Section, frozen=True, kw_only=True):
    """Holds the whole file. `agents` keeps the file's order: the first is the default."""

    server: ServerConfig = ServerConfig()
    store: StoreConfig = StoreConfig()
    network: NetworkConfig = NetworkConfig()
    agents: Mapping[Name, AgentConfig] = MappingProxyType({})
    personas: Mapping[Name, PersonaConfig] = MappingProxyType({})
    tools: ToolsConfig = ToolsConfig()
    adapters: Mapping[Name, AdapterSettings] = MappingProxyType({})
    recovery: RecoveryConfig = RecoveryConfig()
    drain: DrainConfig = DrainConfig()
    sessions: SessionsConfig = SessionsConfig()
    turns: TurnsConfig = TurnsConfig()
    delivery: DeliveryConfig = DeliveryConfig()
    limits: LimitsConfig = LimitsConfig()
    transcriber: TranscriberConfig = TranscriberConfig()
    speech: SpeechConfig = SpeechConfig()
    retention: RetentionConfig = RetentionConfig()
    budgets: BudgetsConfig = BudgetsConfig()
    quotas: QuotasConfig = QuotasConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    notices: NoticesConfig = NoticesConfig()

    @property
    def default_agent(self) -> str:
        """Return the name of the first agent, or `main` if none is configured."""
        return next(iter(self.agents), MAIN)
