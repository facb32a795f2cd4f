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


def remoting_server_context(cert: Path, key: Path, ca: Path | None) -> ssl.SSLContext:
    """The SSL context of a remoting server. ca: who signs its clients' certificates; None: they need none, as RocketMQ's
    clients have none unless they are told so. Raises: ConfigInvalid.
    """
    context = _bare_context(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    _load_certificate(context, cert, key)
    if ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_ca(context, ca)
    return context


def remoting_client_context(ca: Path, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """The SSL context of a remoting client: it checks the CA and the name of the server (HA-RM-28). cert, key: what it shows
    where it is asked; both or none. Raises: ConfigInvalid.
    """
    context = _bare_context(ssl.PROTOCOL_TLS_CLIENT)  # which demands a certificate
    context.check_hostname = True
    if cert is not None and key is not None:
        _load_certificate(context, cert, key)
    _load_ca(context, ca)
    return context


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    """HA-S-70 "the CA that it is told": the system's own CAs are not trusted."""
    context = _bare_context(protocol)
    context.verify_mode = ssl.CERT_REQUIRED
    _load_certificate(context, files.cert, files.key)
    _load_ca(context, files.ca)
    return context


def _bare_context(protocol: int) -> ssl.SSLContext:
    """HA-M-70 "TLS 1.2 or later"."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _load_certificate(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    _check(cert, b"-----BEGIN CERTIFICATE-----", "a certificate in PEM (--tls-cert)")
    _check(key, b"PRIVATE KEY-----", "a private key in PEM (--tls-key)")
    try:
        context.load_cert_chain(cert, key, password=lambda: _refuse_locked(key))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigInvalid(f"{key}: found another's key, expected that of {cert}") from None
        raise ConfigInvalid(f"{cert}, {key}: {_reason(error)}: expected a certificate and its key") from None


def _load_ca(context: ssl.SSLContext, ca: Path) -> None:
    _check(ca, b"-----BEGIN CERTIFICATE-----", "the certificate of a CA in PEM (--tls-ca)")
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        raise ConfigInvalid(f"{ca}: {_reason(error)}: expected the certificate of a CA in PEM (--tls-ca)") from None
    if not context.cert_store_stats()["x509_ca"]:
        raise ConfigInvalid(f"{ca}: found a certificate that may sign no others, expected that of a CA (--tls-ca)")


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
