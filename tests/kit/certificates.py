"""Issue TLS certificates for tests, as files."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import trustme

from rocketmq_ha.impl.net.tls_files import TlsFiles


class Certificates:
    """A trusted CA, another CA that no peer should trust, and the certificates that they sign, as files of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ca, self.other_ca = trustme.CA(organization_name="ours"), trustme.CA(organization_name="another's")
        self.ca_file, self.other_ca_file = directory / "ca.pem", directory / "other-ca.pem"
        self.ca.cert_pem.write_to_path(str(self.ca_file))
        self.other_ca.cert_pem.write_to_path(str(self.other_ca_file))
        self.master = self.issue("master", "127.0.0.1", "localhost")
        self.slave = self.issue("slave-1", "slave-1.example")

    def issue(self, name: str, *names: str, signed_by: trustme.CA | None = None, expired: bool = False) -> TlsFiles:
        """Issue a certificate with CN=name and alternative names. Returns: its files, and the file of the trusted CA."""
        issued = (signed_by or self.ca).issue_cert(
            *(names or (name,)),
            common_name=name,
            organization_name="tests",
            organization_unit_name="HA",
            not_after=datetime(2001, 1, 1, tzinfo=UTC) if expired else None,
        )
        cert, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.touch(0o600)
        key.write_bytes(issued.private_key_pem.bytes())
        return TlsFiles(cert, key, self.ca_file)

    def bare_context(self, files: TlsFiles | None = None) -> ssl.SSLContext:
        """A client's context that trusts our master, with a certificate or without one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.ca_file)
        if files is not None:
            context.load_cert_chain(files.cert, files.key)
        return context


def options(files: TlsFiles) -> tuple[str, ...]:
    """The options of the command line for these files."""
    return ("--tls-cert", str(files.cert), "--tls-key", str(files.key), "--tls-ca", str(files.ca))
