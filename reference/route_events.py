"""What can happen to name servers and to the brokers that register with them: a schedule is a sequence of these.

Plain data, for both sides. Anybody may send requests to a name server: the first group of events. The brokers of the second
group send theirs by themselves, as time passes; the network between them and the name servers is the schedule's.
"""

from dataclasses import dataclass
from typing import Literal

from rocketmq_ha.reference.route_table import DataVersion, QueueData, Registration

Form = Literal["json", "compressed", "none"]
Damage = Literal["", "crc", "cut", "control", "long"]
Lacks = Literal["", "brokerName", "clusterName", "brokerAddr", "haServerAddr", "brokerId"]


# --- Requests of anybody ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """A broker is registered (103). channel: 0 to 2. damage: of its body or of its name; lacks: a field of its header."""

    server: int
    channel: int
    registration: Registration
    form: Form = "json"
    damage: Damage = ""
    lacks: Lacks = ""


@dataclass(frozen=True, slots=True)
class Unregister:
    """A broker is unregistered (104)."""

    server: int
    channel: int
    broker_name: str
    broker_addr: str


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """A broker of 5.x gives a sign of life (904)."""

    server: int
    channel: int
    broker_addr: str


@dataclass(frozen=True, slots=True)
class QueryVersion:
    """A broker asks whether its topics are known (322)."""

    server: int
    channel: int
    broker_addr: str
    version: DataVersion


@dataclass(frozen=True, slots=True)
class Ask:
    """A question of a client, or of an administrator. argument: of the first field that the code needs; None: it is missing."""

    server: int
    code: int
    argument: str | None = None
    second: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """An administrator changes what is there: 205, 327 (name: a group), 216, 217 (name: a topic), 318."""

    server: int
    code: int
    name: str
    cluster: str | None = None  # 216
    queue_datas: tuple[tuple[str, QueueData], ...] = ()  # 217


@dataclass(frozen=True, slots=True)
class PutText:
    """Code 100."""

    server: int
    namespace: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class DeleteText:
    """Code 102."""

    server: int
    namespace: str
    key: str


@dataclass(frozen=True, slots=True)
class Close:
    """One of the connections 0 to 2 of a name server closes."""

    server: int
    channel: int


# --- Brokers and their network ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartBroker:
    """A broker starts, or one that runs is killed and starts again."""

    broker: int


@dataclass(frozen=True, slots=True)
class StopBroker:
    """power: its connections stay open at the name servers, which are not told."""

    broker: int
    how: Literal["clean", "kill", "power"]


@dataclass(frozen=True, slots=True)
class UpdateTopic:
    """A topic of a broker is created or changed (17)."""

    broker: int
    name: str
    queue_nums: int
    perm: int


@dataclass(frozen=True, slots=True)
class DropTopic:
    """A topic of a broker is deleted (215)."""

    broker: int
    name: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """The oldest request of a broker to a name server arrives there."""

    broker: int
    server: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The oldest answer of a name server to a broker arrives there."""

    broker: int
    server: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection of a broker to a name server breaks. is_told: the name server sees it too, now."""

    broker: int
    server: int
    is_told: bool


@dataclass(frozen=True, slots=True)
class CloseStale:
    """A name server sees at last that its oldest connection without another end is closed."""

    server: int


# --- Name servers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of a name server refuses to write, or takes files again."""

    server: int
    is_full: bool


@dataclass(frozen=True, slots=True)
class RestartServer:
    """A name server is killed, and starts again."""

    server: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes, and then every loop has a turn."""

    ms: int


Event = (
    Register | Unregister | SignOfLife | QueryVersion | Ask | Change | PutText | DeleteText | Close | StartBroker | StopBroker
    | UpdateTopic | DropTopic | Deliver | Answer | Cut | CloseStale | Disk | RestartServer | Tick
)  # fmt: skip
