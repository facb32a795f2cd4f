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


def broker_snapshot(**more: object) -> Snapshot:
    """The status of a master broker with two name servers, and without slaves. more: see `followed` for a slave."""
    clients = {
        "listen": ["127.0.0.1:10911", "127.0.0.1:10909"],
        "connections": 61,
        "producers": 62,
        "consumers": 63,
        "consumer_groups": 64,
        "accepted_connections": 65,
        "refused_connections": 0,
        "requests": {"10": 1_066, "11": 67, "unsupported": 68},
        "requests_per_second": 1_069.04,
        "invalid_frames": 70,
        "failures": 71,
        "pending": 72,
        "parked_pulls": 73,
        "waiting_puts": 74,
        "sent_bytes": 75,
        "received_bytes": 76,
    }
    name_servers = [
        {"address": "10.0.0.5:9876", "registered_ms": 3_100, "error": None},
        {"address": "10.0.0.6:9876", "registered_ms": None, "error": "cannot connect: Connection refused"},
    ]
    figures: Snapshot = {
        "tls_listen": None,
        "refused_connections": 0,
        "broker_name": "broker-a",
        "broker_id": 0,
        "cluster": "cluster-x",
        "topics": 81,
        "groups": 82,
        "clients": clients,
        "name_servers": name_servers,
        "following": None,
    }
    return master_snapshot() | figures | more


def followed(**more: object) -> Snapshot:
    """The master of a slave broker."""
    figures: Snapshot = {
        "master": "10.0.0.9:10912",
        "certificate": None,
        "state": "connected",
        "connected_ms": 41_000,
        "silent_ms": 4_200,
        "last_close_reason": None,
        "lag_bytes": 1_536,
        "lag_told_ms": 2_500,
        "tables_of": "10.0.0.9:10911",
        "tables_ms": 8_600,
        "tables_lag_ms": 8_900,
        "tables_by": "changes",
        "tables_error": None,
    }
    return figures | more
