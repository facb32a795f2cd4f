"""Inputs to a master's TLS port: before, during and after the handshake. They join the table of hostile_slaves."""

import contextlib
import random
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from hostile_slaves import (
    INPUTS,
    NO_LINGER,
    SECONDS,
    Input,
    Port,
    _is_closed_in_time,
    _reports,
    again_and_again,
    exactly,
    hostile,
    must_be_served,
    read_to_the_end,
    send,
)
from hostile_stand import (
    MAX_CONNECTIONS_PER_ADDRESS,
    PATIENCE_S,
    REPORT_DEADLINE_S,
    WRITE_STALL_DEADLINE_S,
    Unexpected,
)

from kit.certificates import Certificates

NAME: Final = "127.0.0.1"  # the name in the master's certificate
_NOISE: Final = random.Random(18)


def hello(certs: Certificates) -> bytes:
    """A ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = certs.bare_context(certs.slave).wrap_bio(incoming, outgoing, server_hostname=NAME)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def shaken(port: Port, receive_buffer: int = 0) -> ssl.SSLSocket:
    """A TLS connection with a valid client certificate. Raises: Unexpected."""
    try:
        context = port.certs.bare_context(port.certs.slave)
        return context.wrap_socket(port.connect_tls(receive_buffer), server_hostname=NAME)
    except OSError as error:
        raise Unexpected(f"somebody who proves who it is is not let in: {error}") from error


# --- No handshake -----------------------------------------------------------------------------------------------------


def _gets_an_alert(data: Callable[[Port], bytes], *, half_closes: bool = False) -> Input:
    """Send bytes that are no handshake. The master sends at most an alert of 7 bytes, and nothing of the log."""

    def run(port: Port) -> None:
        def once() -> None:
            with port.connect_tls() as sock:
                send(sock, data(port))
                if half_closes:
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_WR)
                found = read_to_the_end(sock, 1 << 16)
                if len(found) > 7:
                    raise Unexpected(f"{len(found)} bytes come for what is no TLS")

        again_and_again(once)

    return run


INPUTS["TLS: a report without TLS"] = _gets_an_alert(lambda _: _reports(0))
INPUTS["TLS: an HTTP probe"] = _gets_an_alert(lambda _: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
INPUTS["TLS: 64 KiB of noise"] = _gets_an_alert(lambda _: _NOISE.randbytes(1 << 16))
INPUTS["TLS: a record longer than any"] = _gets_an_alert(lambda _: b"\x16\x03\x01\xff\xff" + bytes(1 << 16))
INPUTS["TLS: half a hello, and half-closed"] = _gets_an_alert(lambda port: hello(port.certs)[:200], half_closes=True)
INPUTS["TLS: a hello of TLS 1.0 with nothing in it"] = _gets_an_alert(
    lambda _: bytes.fromhex("160301002d010000290301") + bytes(32) + bytes.fromhex("000002002f0100")
)


@hostile("TLS: half a hello, and silence")
def _(port: Port) -> None:
    with port.connect_tls() as sock:
        send(sock, hello(port.certs)[:200])
        _is_closed_in_time(sock)


@hostile("TLS: a hello byte by byte, until the deadline")
def _(port: Port) -> None:
    with port.connect_tls() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in hello(port.certs)[:15]:
            send(sock, bytes((byte,)))
            time.sleep(REPORT_DEADLINE_S / 16)
        _is_closed_in_time(sock)


@hostile("TLS: all the connections of an address, held in the handshake")
def _(port: Port) -> None:
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(port.connect_tls()) for _ in range(4 * MAX_CONNECTIONS_PER_ADDRESS)]
        port.connections = MAX_CONNECTIONS_PER_ADDRESS
        for sock in socks:
            send(sock, hello(port.certs))
        for sock in socks:
            read_to_the_end(sock, 1 << 16)


@hostile("TLS: a flood of hellos")
def _(port: Port) -> None:
    until, said = time.monotonic() + SECONDS, hello(port.certs)
    while time.monotonic() < until:
        with port.connect_tls() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            send(sock, said)


# --- A handshake that proves nothing ----------------------------------------------------------------------------------


def _is_refused(made: Callable[[Certificates], ssl.SSLContext]) -> Input:
    def run(port: Port) -> None:
        context = made(port.certs)

        def once() -> None:
            raw = port.connect_tls()
            with (
                raw,
                contextlib.suppress(ConnectionError, ssl.SSLError),
                context.wrap_socket(raw, server_hostname=NAME) as sock,
            ):
                sock.sendall(_reports(0))
                if found := sock.recv(1 << 16):
                    raise Unexpected(f"{len(found)} bytes come to somebody who has proven nothing")

        again_and_again(once)

    return run


def _of_many(certs: Certificates) -> ssl.SSLContext:
    """Send 90 KB of certificates, which the master must read before it can refuse them."""
    files = certs.issue("many", signed_by=certs.other_ca)
    one = certs.other_ca_file.read_bytes()
    size = len(ssl.PEM_cert_to_DER_cert(one.decode()))
    files.cert.write_bytes(files.cert.read_bytes() + one * (90_000 // size))
    return certs.bare_context(files)


INPUTS["TLS: no certificate"] = _is_refused(lambda certs: certs.bare_context())
INPUTS["TLS: a certificate of another CA"] = _is_refused(
    lambda certs: certs.bare_context(certs.issue("intruder", signed_by=certs.other_ca))
)
INPUTS["TLS: an expired certificate"] = _is_refused(lambda certs: certs.bare_context(certs.issue("old", expired=True)))
INPUTS["TLS: 90 KB of certificates that lead nowhere"] = _is_refused(_of_many)


# --- After a valid handshake: an authenticated but hostile client ------------------------------------------------------


@hostile("TLS: a certificate that is good, and no report")
def _(port: Port) -> None:
    with shaken(port) as sock:
        _is_closed_in_time(sock)


@hostile("TLS: a good report, and an ack of a gigabyte more than was sent")
def _(port: Port) -> None:
    def once() -> None:
        with shaken(port) as sock:
            sock.sendall(_reports(1))
            end = must_be_served(port, sock, 1)
            sock.sendall(_reports(end + (1 << 30)))
            with contextlib.suppress(ssl.SSLError):
                read_to_the_end(sock)

    again_and_again(once)


@hostile("TLS: a record that nobody has encrypted")
def _(port: Port) -> None:
    def once() -> None:
        with shaken(port) as sock:
            socket.socket.sendall(sock, b"\x17\x03\x03\x00\x20" + bytes(32))
            with contextlib.suppress(ssl.SSLError):
                read_to_the_end(sock)

    again_and_again(once)


@hostile("TLS: the head of a record, and silence")
def _(port: Port) -> None:
    with shaken(port) as sock:
        socket.socket.sendall(sock, b"\x17\x03\x03\x40\x00" + bytes(100))
        _is_closed_in_time(sock)


@hostile("TLS: reset in the middle of a frame")
def _(port: Port) -> None:
    def once() -> None:
        with shaken(port, 4096) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            sock.sendall(_reports(1))
            exactly(sock, 100)

    again_and_again(once)


def _never_reads(count: int, reports: int) -> Input:
    def run(port: Port) -> None:
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(shaken(port, 4096)) for _ in range(count)]
            port.connections = count
            for sock in socks:
                sock.setblocking(False)
            until = time.monotonic() + WRITE_STALL_DEADLINE_S + PATIENCE_S
            left = set(socks)
            while left:
                if time.monotonic() > until:
                    raise Unexpected(f"{len(left)} of {count} that read nothing are still connected")
                for sock in list(left):
                    try:
                        sock.send(_reports(1) * reports)
                    except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                        pass
                    except OSError:
                        left.remove(sock)
                time.sleep(0.001 if reports > 1 else 0.05)

    return run


INPUTS["TLS: a flood of good reports, and nothing is read"] = _never_reads(1, 2048)
INPUTS["TLS: twenty readers that read nothing"] = _never_reads(20, 1)


@hostile("TLS: a second slave, which is honest")
def _(port: Port) -> None:
    with shaken(port) as sock:
        offset = port.master.offset
        sock.sendall(_reports(offset))
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            offset = must_be_served(port, sock, offset)
            sock.sendall(_reports(offset))
