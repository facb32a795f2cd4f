"""Load certificates and keys into SSL contexts, and read the subject of a peer's certificate."""

import logging
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.impl.errors import ConfigInvalid

_TYPES: Final = {  # the short names of RFC 4514; types without one keep OpenSSL's long name
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: our certificate with its intermediates, its private key, and the CA that signs the peer's certificate."""

    cert: Path
    key: Path
    ca: Path


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """The SSL context of a master: it shows its certificate and demands one of the slave. Raises: ConfigInvalid.

    Sessions are never resumed, so that the slave proves its certificate on each connection (HA-M-70).
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, files)
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    return context


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """The SSL context of a slave: it checks the CA and the name of the master (HA-S-70). Raises: ConfigInvalid."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, files)
    context.check_hostname = True
    return context


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    """HA-M-70 "TLS 1.2 or later"; HA-S-70 "the CA that it is told": the system's own CAs are not trusted."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_RENEGOTIATION
    _check(files.cert, b"-----BEGIN CERTIFICATE-----", "a certificate in PEM (--tls-cert)")
    _check(files.key, b"PRIVATE KEY-----", "a private key in PEM (--tls-key)")
    _check(files.ca, b"-----BEGIN CERTIFICATE-----", "the certificate of a CA in PEM (--tls-ca)")
    try:
        context.load_cert_chain(files.cert, files.key, password=lambda: _refuse_locked(files.key))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigInvalid(f"{files.key}: found another's key, expected that of {files.cert}") from None
        raise ConfigInvalid(f"{files.cert}, {files.key}: {_reason(error)}: expected a certificate and its key") from None
    try:
        context.load_verify_locations(files.ca)
    except ssl.SSLError as error:
        raise ConfigInvalid(f"{files.ca}: {_reason(error)}: expected the certificate of a CA in PEM (--tls-ca)") from None
    if not context.cert_store_stats()["x509_ca"]:
        raise ConfigInvalid(f"{files.ca}: found a certificate that may sign no others, expected that of a CA (--tls-ca)")
    return context


def _check(file: Path, mark: bytes, expected: str) -> None:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigInvalid(f"{file}: {error.strerror or error}: expected {expected}") from None
    if mark not in content:
        raise ConfigInvalid(f"{file}: found none, expected {expected}")


def _refuse_locked(key: Path) -> str:
    """Refuse a key with a password. Without this callback OpenSSL would ask for it on the terminal."""
    raise ConfigInvalid(f"{key}: found a key under a password, expected one without: nobody is there to type it")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or error.strerror or "unusable").lower().replace("_", " ")


def warn_of_readers(key: Path) -> None:
    """Log a warning if other users may read the private key."""
    mode = stat.S_IMODE(key.stat().st_mode)
    if mode & stat.S_IROTH:
        log.warning("%s: every user of this machine may read this private key (mode %03o): chmod 600 it", key, mode)


def subject_of(certificate: Mapping[str, Any] | None) -> str:
    """The subject of a verified certificate. certificate: as `SSLObject.getpeercert` returns it.

    Spec: HA-M-74 "the subject of its certificate, as RFC 4514 writes it".

    >>> subject_of({"subject": ((("countryName", "DE"),), (("organizationName", "A, B"),), (("commonName", "slave-1"),))})
    'CN=slave-1,O=A\\\\, B,C=DE'
    >>> subject_of({"subject": (), "subjectAltName": (("DNS", "slave-1"),), "serialNumber": "2A"})
    'DNS:slave-1'
    """
    assert certificate  # the handshake demands it
    if certificate["subject"]:
        return ",".join(
            "+".join(f"{_TYPES.get(kind, kind)}={_escaped(value)}" for kind, value in rdn)
            for rdn in reversed(certificate["subject"])
        )
    for kind, value in certificate.get("subjectAltName", ()):
        if isinstance(value, str):
            return f"{kind}:{_escaped(value)}"
    return f"serialNumber={certificate['serialNumber']}"


def _escaped(value: str) -> str:
    """Escape a value as in RFC 4514, section 2.4, and all unprintable characters, which could drive a terminal."""
    text = "".join(
        f"\\{char}"
        if char in '"+,;<>\\'
        else char
        if char.isprintable()
        else "".join(f"\\{byte:02X}" for byte in char.encode())
        for char in value
    )
    if text.endswith(" ") and len(value) > 1:
        text = text[:-1] + "\\ "
    return f"\\{text}" if text[:1] in ("#", " ") else text
