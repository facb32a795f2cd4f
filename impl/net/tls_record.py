"""Recognise TLS on a port that expects the plain protocol, and the other way round, by the first bytes.

No report and no frame begins with these bytes: as an offset, 0x14030000... is more than 2^60.
"""

from typing import Final

HANDSHAKE: Final = b"\x16\x03"  # HA-M-86 "begins as a TLS handshake does (0x16 0x03)": of version 3.x
# A complete alert record: fatal, protocol_version. OpenSSL sends no alert to a peer whose first bytes are not TLS.
ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x46"
_TYPES: Final = range(0x14, 0x18)  # change_cipher_spec, alert, handshake, application_data
_GREATEST_MINOR: Final = 4


def is_tls(data: bytes | bytearray | memoryview) -> bool:
    """Return True if bytes begin like a TLS record.

    >>> is_tls(ALERT), is_tls(bytes(8)), is_tls(b"")
    (True, False, False)
    """
    return len(data) > 2 and data[0] in _TYPES and data[1] == 3 and data[2] <= _GREATEST_MINOR
