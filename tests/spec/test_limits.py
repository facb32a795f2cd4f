"""The numbers of the implementation that bound or time something: a limit that changes changes here too, and with a reason.

Behaviour at most of them costs seconds or gigabytes to show. The comment beside the constant, its clause or docs/ says why it
is this number. Constants of the system, which differ between machines, are left out. So are those of the layers above `net` and
of their commands: most of them are codes, lengths and fields of RocketMQ's protocol, which recorded bytes and the tests of
these layers hold.
"""

import ast
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
MIB: Final = 1 << 20
I32_MAX, I64_MAX = 2**31 - 1, 2**63 - 1
ABOVE_NET: Final = {
    *("remoting", "client", "namesrv", "broker", "app.following", "app.run_broker", "app.run_consume", "app.run_namesrv"),
    *("app.sender", "cli.broker_options", "cli.namesrv_conf", "cli.send", "store.pull"),
}
OF_THE_SYSTEM: Final = {"_UNNAMED", "IOV_MAX", "_MADV_POPULATE_WRITE"}

CONSTANTS: Final[dict[str, dict[str, float]]] = {
    "app.cleaning": {"HOUR_MS": 3_600_000},
    "app.cluster.child_of": {"PR_SET_PDEATHSIG": 1},
    "app.cluster.cluster": {"START_S": 60.0, "_ASK_S": 2.0},
    "app.cluster.control": {"_TURN_S": 0.1, "_ORDER_S": 5.0, "_ANSWER_S": 300.0, "_LARGEST_ORDER": 65_536, "_BACKLOG": 8},
    "app.cluster.directory": {"FORMAT": 1, "_LOCK_S": 0.5},
    "app.cluster.links": {"_READ_SIZE": 65_536},
    "app.cluster.plan": {"PORTS_OF_A_NODE": 20, "RESERVED_PORT": 2, "FIRST_BROKER_PORT": 10, "FILE_SIZE": 16 * MIB},
    "app.cluster.ports": {"FIRST_BASE_PORT": 20_000, "LAST_BASE_PORT": 32_000, "BASE_PORT_STEP": 100},
    "app.cluster.processes": {"POLL_S": 0.02, "STOP_S": 20.0, "_STARTED": 19},
    "app.cluster.status": {"_ANSWER_S": 1.0, "_ANSWER_MS": 1_000},
    "app.cluster.translate": {"_LENGTH_SIZE": 4},
    "app.cursor": {"_VERSION": 1},
    "app.doctor.master_check": {"_CLOCK_S": 5.0},
    "app.doctor.probe": {"_TURN_MS": 100, "_ASKED": 5, "_COMPARED_SIZE": 1 * MIB},
    "app.fresh_store": {"_CHECK_S": 2.0},
    "app.metrics": {"PUBLISH_EVERY_S": 1.0, "ALIVE_S": 15.0, "HEARD_S": 15.0},
    "app.producer": {"POLL_MS": 50, "PUTS_A_TURN": 64},
    "app.put_lines": {"_READ_SIZE": 65_536},
    "app.putter": {"_TURN_MS": 100, "_SEND_SIZE": 262_144, "_LINES_AHEAD": 4_096, "_AFTER_STOP_S": 10.0},
    "app.query": {"_REPORTED_EVERY": 4_096},
    "app.run_master": {"MASTER_READ_BUFFER_SIZE": 4_096},
    "app.slave_wait": {"FIRST_ACK_S": 10},
    "app.stdout_writer": {"FULL_SIZE": 1 * MIB, "_PIPE_CHUNK": 4_096, "_FILE_CHUNK": 1 * MIB},
    "app.tail": {"_TURN_MS": 100, "_SAVE_EVERY_S": 1.0, "_LAST_LINES_S": 1.0, "_END_S": 2.0, "_PAUSE_S": 0.2},
    "app.thread_faults": {"EXIT_BUG": 70},
    "app.topic_watch": {"_INTERVAL_S": 0.2, "_SHARE": 0.05, "_BATCH": 2_048, "_LAST_S": 10.0},
    "cli.broker_conf": {"DEFAULT_LISTEN_PORT": 10_911},
    "cli.cluster": {"_POLL_S": 0.05, "_LOWEST_PORT": 1_024},
    "cli.commands": {
        "EXIT_BAD_INPUT": 2,
        "EXIT_NO_ROOM": 75,
        "EXIT_INTERRUPTED": 130,
        "EXIT_TERMINATED": 143,
        "EXIT_BROKEN_PIPE": 141,
    },
    "cli.flush_options": {"MAX_INT": I32_MAX},
    "cli.inspect": {"_TABLE_LIMIT": 100},
    "cli.config_text": {"_SHOWN": 40},
    "cli.limit_options": {"_LEAST_RATE": 1_024},
    "cli.message_table": {"_PREVIEW_SIZE": 64},
    "cli.progress": {"_QUIET_S": 1.0, "_LOG_EVERY_S": 10.0},
    "cli.put": {"_WIDE": 110},
    "cli.query": {"_LIMIT": 64},
    "cli.table": {"_GAP": 2, "_LONGEST_NAME": 32, "_UNLIMITED": 10_000},
    "ha.feed": {"LARGEST_BODY": 4_194_292, "LARGEST_RECORD": 64 * MIB},
    "ha.file_size": {"_HEAD_SIZE": 8, "_TELLING": 3, "_FEW": 48, "_AFTER": 16},
    "ha.master": {"MAX_FRAMES": 16},
    "ha.settings": {"LOOK_MS": 1_000},
    "ha.size_search": {"MOST_QUESTIONS": 64, "_TRIED_FACTORS": 1 * MIB, "_MOST_TRIED": 100_000},
    "ha.slave": {"RECV_SIZE": 1 * MIB, "_GREATEST_OFFSET": I64_MAX, "_LARGEST_ARRAY": 2_147_483_635},
    "net.address": {"CONNECT_TIMEOUT_S": 5.0},
    "net.back_off": {"FIRST_BACK_OFF_S": 0.05, "LAST_BACK_OFF_S": 5.0, "_SLEEP_S": 0.02},
    "net.broker_info": {
        "GET_BROKER_CONFIG": 26,
        "GET_BROKER_RUNTIME_INFO": 28,
        "_TURN_S": 0.1,
        "_LARGEST_FRAME": 16 * MIB,
        "_VERSION": 399,
    },
    "net.client": {"HEARTBEATS": 2, "REFUSALS": 5, "_READS_BEHIND_ANSWER": 64, "FRAME_DEADLINE_MS": 60_000},
    "net.feed": {"_DATA_AFTER_HEARTBEAT_S": 2.0, "_TURN_MS": 100, "_RECV_SIZE": 262_144},
    "net.figures": {"FORMAT": 2, "SAMPLE_MS": 100, "_RATE_WINDOW_MS": 10_000, "_RATE_SAMPLE_MS": 1_000, "_REMEMBERED": 6_000},
    "net.file_size": {"MOST_S": 120.0},
    "net.fresh": {"_TURN_MS": 100},
    "net.limits": {"_OWN_DESCRIPTORS": 256},
    "net.link": {"MAX_TURN": 4 * MIB, "MAX_SEND": 524_480, "MAX_REPORTS_TURN": 16_384, "BULK": 65_536},
    "net.listeners": {"ACCEPTS_TURN": 16, "BACKLOG": 1_024, "NO_DESCRIPTORS_MS": 100},
    "net.local_socket": {"_LONGEST_ADDRESS": 107},
    "net.open_feed": {"SETTLE_S": 10.0, "_FRESH_MS": 60_000, "_AGAIN_S": 0.1, "_REFUSALS": 3},
    "net.pause": {"PAUSE_MS": 1_000, "GRACE_MS": 1_000, "MOST_IN_A_ROW": 8},
    "net.peer_log": {"LINES": 30, "WINDOW_MS": 10_000},
    "net.put_client": {"GREETING_S": 20.0, "_LONGEST_GREETING": 4_096},
    "net.put_socket": {
        "VERSION": 1,
        "MAX_LINE_SIZE": 6 * MIB,
        "MAX_PENDING": 4_096,
        "MAX_CLIENTS": 16,
        "BACKLOG": 128,
        "READ_TURN": 32_768,
        "LEAST_READ": 4_096,
        "MAX_OUT_SIZE": 262_144,
        "STALL_S": 30.0,
        "FINISH_S": 1.0,
        "_LOOK_S": 1.0,
        "_MOST_OF_AN_ERROR": 400,
    },
    "net.remote_status": {"_LARGEST": 16 * MIB},
    "net.relay": {"BUFFER_SIZE": 262_144, "ACCEPTS_TURN": 16, "BACKLOG": 1_024, "_FILL_S": 0.05, "_MOST_FILLERS": 8},
    "net.server": {"TICK_MS": 100, "THROTTLED_MS": 10, "HANDSHAKES_TURN": 4},
    "net.status_socket": {"_CLIENTS": 8, "_GIVE_UP_S": 5.0, "_TURN_S": 0.1, "_ANSWER_S": 10.0},
    "net.tls": {"PIECE": 16_384, "HANDSHAKE_SIZE": 32_768, "_OWED": 16_384, "_FETCHES": 2, "_BARE": 65_536, "_RATIO": 32},
    "net.tls_ends": {
        "_TURN_MS": 100,
        "HANDSHAKE_TIMEOUT_S": 5.0,
        "_MASTERS_FETCH": 8_192,
        "_SLAVES_FETCH": 262_144,
        "_SESSIONS": 64,
    },
    "net.tls_record": {"_GREATEST_MINOR": 4},
    "net.token_bucket": {"BURST_MS": 100, "_QUANTUM": 4_096},
    "net.transfer_turns": {"BULK_TURN": 1 * MIB, "SHARE": 262_144},
    "net.waker": {"_MOST": 4_096},
    "store.derived.consume_queue": {
        "_CLEARED_SIZE": 65_536,
        "_LEAST_TORN": 0x7F000000,
        "FILE_ENTRIES": 300_000,
        "FILE_SIZE": 6_000_000,
        "_PACKED_AT_ONCE": 256,
        "_LARGEST_GAP": 10,
        "_RECOVERED_FILES": 3,
    },
    "store.derived.consume_queue_table": {"_NAME_LIMIT": 255},
    "store.derived.delay": {"_INT_DIGITS": 10, "_MAX_INT": I32_MAX},
    "store.derived.dispatch": {
        "_HANDED_LIMIT": 65_536,
        "_BATCH": 4_096,
        "_GATHER_S": 0.001,
        "_IDLE_S": 0.1,
        "_RETRY_S": 1.0,
        "_SAY_AGAIN_S": 60.0,
    },
    "store.derived.index_file": {
        "HEADER_SIZE": 40,
        "SLOT_SIZE": 4,
        "ENTRY_SIZE": 20,
        "HASH_SLOT_NUM": 5_000_000,
        "INDEX_NUM": 20_000_000,
        "_MAX_INT": I32_MAX,
        "_ALLOCATED_AHEAD": 1 * MIB,
        "_PACKED_AT_ONCE": 256,
        "_CLEAR_SIZE": 1 * MIB,
    },
    "store.derived.index_geometry": {
        "_LOOKS": 4,
        "_LOOK_AGAIN_S": 0.05,
        "_LOOK_UNTIL_S": 5.0,
        "_OFFSETS_POSITION": 16,
        "_LOOKED_AT": 64,
    },
    "store.derived.index_service": {"MAX_MSGS_NUM_BATCH": 64, "_REMEMBERED_TOPICS": 4_096},
    "store.derived.java_hash": {"_LANE_SIZE": 32, "_LONG_LANE_SIZE": 64, "_LANES_AT_ONCE": 512, "_LOW_32": 4_294_967_295},
    "store.derived.lacking": {"_BATCH": 1_024},
    "store.derived.queue_entry": {"ENTRY_SIZE": 20, "FILLER_SIZE": I32_MAX},
    "store.derived.queue_file": {"OPEN_FILES": 128},
    "store.derived.topic_config": {"_PERM_READ_WRITE": 6},
    "store.derived.verify": {"_BATCH": 1_024},
    "store.housekeeping": {"INTERVAL_S": 1.0, "LEAST_PAGES": 2, "THOROUGH_INTERVAL_S": 10.0, "EXPIRY_INTERVAL_S": 10.0},
    "store.log.allocate": {"_POLL_S": 0.02, "_CHECK_SPACE_EVERY": 50, "_TOUCH_AHEAD_SIZE": 64 * MIB, "_TOUCH_SIZE": 4 * MIB},
    "store.log.checkpoint": {"CHECKPOINT_SIZE": 4_096, "SAFETY_MS": 3_000, "_OFFSET_POSITION": 40},
    "store.log.checkpoint_hint": {"CLEAN_STOP_FILES": 3},
    "store.log.flush": {"FLUSH_INTERVAL_S": 0.5, "FLUSH_LEAST_PAGES": 4, "FLUSH_THOROUGH_INTERVAL_S": 10.0, "_TRIES": 2},
    "store.log.layout": {"MAX_FILE_SIZE": I32_MAX},
    "store.log.mapped_file": {"_CHUNK_SIZE": 1 * MIB, "OS_PAGE_SIZE": 4_096},
    "store.log.reader": {"LOOKS": 25, "LOOK_AGAIN_S": 0.02, "STRIDE": 8 * MIB},
    "store.log.scan": {"_BODY_LENGTH_SIZE": 4},
    "store.log.space": {"FLOOR_SIZE": 256 * MIB},
    "store.log.uniform_run": {"RECORDS": 128, "LARGEST": 4_096, "BEFORE": 4, "AFTER": 32},
    "store.log.verify": {"_COMPARED_AT_ONCE": 1 * MIB},
    "store.query": {"FOREVER": I64_MAX, "_SECOND_MS": 1_000},
    "store.recovery_plan": {"_LOOKS": 3, "_LOOK_AGAIN_S": 0.1},
    "store.retention": {"DELETE_FILES_BATCH_MAX": 10, "DISK_MAX_USED_SPACE_RATIO": 75, "DISK_SPACE_CLEAN_FORCIBLY_RATIO": 85},
    "wire.batch": {"COMMIT_LOG_OFFSET": 2, "SIZE": 3},
    "wire.message": {
        "TRANSACTION_MASK": 12,
        "TRANSACTION_PREPARED": 4,
        "TRANSACTION_ROLLBACK": 12,
        "COMPRESSION_TYPE_MASK": 1_792,
        "_SIZE_WITHOUT_HOSTS": 72,
    },
    "wire.message_line": {"_SHOWN": 60},
    "wire.parts": {
        "USUAL_MAGIC": 3_668_123_815,
        "UNUSUAL_FLAGS": 60,
        "USUAL_SIZE": 91,
        "_TOPIC_POSITION": 89,
        "_REMEMBERED": 4_096,
        "_REMEMBERED_SIZE": 256,
    },
    "wire.record_layout": {
        "BODY_POSITION": 88,
        "PROPERTIES_LENGTH_SIZE": 2,
        "SMALLEST_RECORD": 92,
        "HOSTS_V6": 48,
        "HOSTS_SHIFT": 4,
    },
}

DEFAULTS: Final[dict[str, dict[str, float]]] = {
    "app.cluster.cluster": {"Cluster.start_s": 60.0, "Cluster.stop_s": 20.0},
    "app.cursor": {"Position.last_offset": -1},
    "app.doctor.probe": {"MasterProbe.connections": 1},
    "app.producer": {"messages.sync": 1.0},
    "cli.commands": {"_fail.status": 2},
    "ha.settings": {"check_batch_size.slave_read_buffer_size": 4 * MIB},
    "net.address": {"connect.timeout_s": 5.0},
    "net.broker_info": {"ask_broker.timeout_s": 5.0},
    "net.feed": {"MasterFeed.__init__.heartbeat_ms": 5_000, "MasterFeed.__init__.housekeeping_ms": 20_000},
    "net.fresh": {"FreshStart.__init__.settle_s": 10.0},
    "net.inquiry": {"Inquiry.__init__.settle_s": 10.0},
    "net.link": {"MasterLink.on_transfer.most": 4 * MIB},
    "net.open_feed": {
        "open_feed.settle_s": 10.0,
        "open_feed.heartbeat_ms": 5_000,
        "find_min.heartbeat_ms": 5_000,
        "open_old.heartbeat_ms": 5_000,
    },
    "net.put_client": {"connect.patience_s": 20.0},
    "net.remote_status": {"ask_remote.timeout_s": 10.0},
    "net.status_socket": {"ask.timeout_s": 10.0},
    "store.derived.consume_queue": {"ConsumeQueue.__init__.file_size": 6_000_000},
    "store.derived.dispatch": {"ReputMessageService.shutdown.timeout_s": 5.0},
    "store.derived.dispatch_request": {"RequestMaker._REMEMBERED": 4_096},
    "store.derived.index_file": {
        "Geometry.hash_slot_num": 5_000_000,
        "Geometry.index_num": 20_000_000,
        "IndexHeader.index_count": 1,
    },
    "store.derived.queue_file": {"QueueFiles.__init__.open_files": 128},
    "store.housekeeping": {"Housekeeping.__init__.interval_s": 1.0},
    "store.log.flush": {
        "FlushIntervals.interval_s": 0.5,
        "FlushIntervals.least_pages": 4,
        "FlushIntervals.thorough_interval_s": 10.0,
        "FlushRealTimeService.__init__.interval_s": 0.5,
        "FlushRealTimeService.__init__.least_pages": 4,
        "FlushRealTimeService.__init__.thorough_interval_s": 10.0,
    },
    "store.log.results": {"AppendResult.messages": 1},
    "store.log.space": {"Space.__init__.floor_size": 256 * MIB},
    "store.message_store": {
        "MessageStore.get.max_size": 262_144,
        "MessageStore.get.max_messages": 32,
        "MessageStore.query.end": I64_MAX,
        "MessageStore.query.max_num": 64,
        "MessageStore.wait_for_dispatch.timeout_s": 60.0,
    },
    "store.query": {"query.end": I64_MAX},
    "store.retention": {"Retention.disk_max_used_space_ratio": 75},
    "store.store_options": {
        "StoreOptions.sync_flush_timeout_ms": 5_000,
        "StoreOptions.floor_size": 256 * MIB,
        "StoreOptions.expiry_interval_s": 10.0,
    },
    "wire.message": {"Message.magic": 3_668_123_815, "encode.max_body_size": 4 * MIB, "decompress_body.max_size": 64 * MIB},
}


def modules() -> Iterator[tuple[str, ast.Module, ModuleType]]:
    """Each module of the implementation: its name without `impl.`, its syntax, itself."""
    for file in sorted((ROOT / "impl").rglob("*.py")):
        if file.stem not in ("__init__", "__main__"):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            if {name.split(".")[1], name.removeprefix("impl.")} & ABOVE_NET:
                continue
            tree = ast.parse(file.read_text(encoding="utf-8"))
            yield name.removeprefix("impl."), tree, importlib.import_module(f"rocketmq_ha.{name}")


def is_number(value: object) -> bool:
    return type(value) in (int, float)


def constants() -> dict[str, float]:
    """module:NAME -> its value, of every constant that is a number."""
    found = {}
    for name, tree, module in modules():
        for node in tree.body:
            target = (
                node.target if isinstance(node, ast.AnnAssign) else node.targets[0] if isinstance(node, ast.Assign) else None
            )
            if isinstance(target, ast.Name) and target.id.isupper() and target.id not in OF_THE_SYSTEM:
                value = getattr(module, target.id)
                if is_number(value):
                    found[f"{name}:{target.id}"] = value
    return found


def defaults() -> dict[str, float]:
    """module:function.parameter or module:Class.field -> its default, of every one that is a number but 0."""
    found = {}
    for name, tree, module in modules():
        for owner, field, default in defaults_of(tree, ""):
            try:
                value = eval(ast.unparse(default), vars(module))
            except NameError:  # a name of the class, or of the function around
                continue
            if is_number(value) and value:
                found[f"{name}:{owner}.{field}"] = value
    return found


def defaults_of(tree: ast.AST, inside: str) -> Iterator[tuple[str, str, ast.expr]]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef(name=name, args=args):
                positional = [*args.posonlyargs, *args.args]
                pairs = [
                    *zip(positional[::-1], args.defaults[::-1], strict=False),
                    *zip(args.kwonlyargs, args.kw_defaults, strict=True),
                ]
                for parameter, default in pairs:
                    if default is not None:
                        yield f"{inside}{name}", parameter.arg, default
                yield from defaults_of(node, f"{inside}{name}.")
            case ast.ClassDef(name=name, body=body):
                for field in body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value is not None:
                        yield f"{inside}{name}", field.target.id, field.value
                yield from defaults_of(node, f"{inside}{name}.")


@pytest.mark.parametrize(("find", "table"), [(constants, CONSTANTS), (defaults, DEFAULTS)], ids=("constants", "defaults"))
def test_each_number_is_that_of_the_table(find: Callable[[], dict[str, float]], table: dict[str, dict[str, float]]) -> None:
    expected = {f"{module}:{name}": value for module, values in table.items() for name, value in values.items()}
    assert find() == expected
