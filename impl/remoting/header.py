"""What the two forms of a header share: the fields in the order of RemotingCommand."""

from typing import Protocol

# code, opaque, flag, language, version, remark, ext_fields
Fields = tuple[int, int, int, str, int, str | None, dict[str, str]]


class Header(Protocol):
    """The fields of a command that its header holds."""

    @property
    def code(self) -> int: ...
    @property
    def opaque(self) -> int: ...
    @property
    def flag(self) -> int: ...
    @property
    def language(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def remark(self) -> str | None: ...
    @property
    def ext_fields(self) -> dict[str, str]: ...
