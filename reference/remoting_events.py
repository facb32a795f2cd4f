"""What can happen to a remoting server and its clients: the events of the world `remoting`.

A client is a number from 0 on, and has one connection at a time. What it sends is on the way until the server reads it, in
pieces of any size; what the server writes waits until the client takes it, in pieces too.
"""

from dataclasses import dataclass
from typing import Literal

# Codes of requests, and what the server does with them.
AT_ONCE, LATER, READS, FAULTY, UNKNOWN = 10, 11, 12, 13, 4242

Form = Literal[
    "command",
    "bare",  # JSON with `code` and `opaque` alone
    "loose",  # JSON whose fields are numbers and a truth value, and whose remark is no UTF-8
    # What is no frame, or no command. The other fields of a Frame say nothing then.
    "serialize_type",
    "short",  # a length of less than 4
    "http",  # a length that is too large
    "beyond",  # a header that does not end within its frame
    "long_header",
    "deep",
    "json",  # no JSON
    "no_opaque",
    "behind",  # bytes behind the fields of a binary header
    "cut_off",  # a binary header that ends within a field
]


@dataclass(frozen=True, slots=True)
class Frame:
    """What a client sends for one frame. number: the text of the field that READS reads; None: there is none."""

    code: int
    opaque: int
    flag: int = 0
    is_binary: bool = False
    body_size: int = 0
    number: str | None = None
    form: Form = "command"


# --- Clients ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connect:
    """A client without a connection opens one."""

    client: int


@dataclass(frozen=True, slots=True)
class End:
    """A client's connection breaks, with all that is on it."""

    client: int


@dataclass(frozen=True, slots=True)
class Send:
    client: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """A client answers a request of ours: the `back` last one of its connection, whatever has become of it, or none there."""

    client: int
    back: int
    body_size: int = 0


@dataclass(frozen=True, slots=True)
class Take:
    """A client takes at most so many bytes of what it has to take."""

    client: int
    nbytes: int


# --- The server ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """The server reads at most so many bytes of what a client has sent, if it may read at all."""

    client: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Serve:
    """A handler answers the `nth` request of those that handlers have. code: of its answer, which may fit no frame."""

    nth: int
    code: int = 0
    body_size: int = 0


@dataclass(frozen=True, slots=True)
class Invoke:
    """The server asks a client, and waits so long for the answer."""

    client: int
    in_ms: int


@dataclass(frozen=True, slots=True)
class Notify:
    """The server tells a client something, and wants no answer."""

    client: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes. looks: then the server looks at it; if not, it does so at a later tick."""

    ms: int
    looks: bool = True


Event = Connect | End | Send | Reply | Take | Read | Serve | Invoke | Notify | Tick
