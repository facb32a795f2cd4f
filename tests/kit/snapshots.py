"""Status snapshots in which no two figures are equal, so that a figure at the wrong place shows."""

from typing import Any

Snapshot = dict[str, Any]

_SHARED: Snapshot = {
    "format": 2,
    "version": "9.8.7",
    "profile": "hardened",
    "pid": 4_321,
    "uptime_s": 93_784.5,  # 1 d 2 h 3 min 4.5 s
    "min_offset": 1_001,
    "max_offset": 7_890_123,
    "flushed_offset": 7_888_888,
    "file_size": 1_536,
    "growth_per_second": 2_560.0,
    "appended_bytes": 11_111,
    "syncs": 12,
    "sync_seconds": 0.75,
    "free_disk_bytes": 99_999,
    "deleted_files": 1_234,
    "deleted_bytes": 3_145_728,
    "disk_full": None,
}


def master_connection(number: int, **more: object) -> Snapshot:
    """A connection of a slave; the figures of different numbers differ."""
    figures = {
        "peer": f"10.0.0.{number}:5{number}",
        "replica": f"10.0.0.{number}",
        "certificate": f"CN=r{number}",
        "kind": "slave",
        "state": "streaming",
        "connected_ms": 61_000 + number,
        "silent_ms": 2_100 + number,
        "request_offset": 1_200 + number,
        "reported_offset": 1_300 + number,
        "sent_offset": 1_400_000 + number,
        "ack_offset": 1_500_000 + number,
        "lag_bytes": 160 + number,
        "lag_ms": 170 + number,
        "acks_per_second": 180.0 + number,
    }
    return figures | more


def master_snapshot(**more: object) -> Snapshot:
    """The status of a SYNC_MASTER without connections."""
    figures: Snapshot = _SHARED | {
        "role": "master",
        "broker_role": "SYNC_MASTER",
        "listen": "127.0.0.1:10912",
        "tls_listen": "[::1]:10922",
        "slaves": 21,
        "replicas_needed": 22,
        "replicas_counted": 23,
        "push2_slave_max_offset": 7_000_024,
        "waiting_puts": 25,
        "refused_connections": 1_026,
        "accepted_connections": 27,
        "accepting": True,
        "sent_bytes": 28,
        "received_bytes": 29,
        "puts": {"PUT_OK": 31, "FLUSH_DISK_TIMEOUT": 32, "FLUSH_SLAVE_TIMEOUT": 33, "SLAVE_NOT_AVAILABLE": 34},
        "connections": [],
    }
    return figures | more


def slave_snapshot(**more: object) -> Snapshot:
    """The status of a connected slave."""
    figures: Snapshot = _SHARED | {
        "role": "slave",
        "broker_role": "SLAVE",
        "master": "10.0.0.9:10912",
        "certificate": None,
        "state": "connected",
        "connected_ms": 41_000,
        "silent_ms": 4_200,
        "reported_offset": 7_000_043,
        "comparing": False,
        "unparsed_bytes": 44,
        "last_close_reason": None,
        "connects": 45,
        "reconnects": 46,
        "sent_bytes": 47,
        "received_bytes": 48,
        "failed_connects": 49,
    }
    return figures | more
