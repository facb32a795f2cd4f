"""The rows of a life in each world, written out: their states, numbers and clauses were read against the texts of the clauses.

Lock-step compares what both sides do. What a row says of a step, its numbers and its clauses, comes from the model alone, and
reports count it. The world of remoting has its life in test_remoting_world.py.

A line here is a row: actor, instance, event, states, offset, bytes, bytes that the channel allowed, bytes of an unfinished
frame, clauses. "HA-W-1 2" is HA-W-1 and HA-W-2. A record without body, properties and topic has 91 bytes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from rocketmq_ha.fuzz.world import ReferenceWorld
from rocketmq_ha.fuzz.worlds.metadata_sides import ReferenceMetadata
from rocketmq_ha.fuzz.worlds.reads_sides import ReferenceReads
from rocketmq_ha.fuzz.worlds.replicas_sides import ReferenceReplicas
from rocketmq_ha.fuzz.worlds.routes_sides import ReferenceRoutes
from rocketmq_ha.fuzz.worlds.store_sides import ReferenceStore
from rocketmq_ha.fuzz.worlds.world import START_MS, Reference
from rocketmq_ha.reference import events as link
from rocketmq_ha.reference import metadata, name_server, routes
from rocketmq_ha.reference import metadata_events as tables
from rocketmq_ha.reference import read_events as pulls
from rocketmq_ha.reference import replica_events as puts
from rocketmq_ha.reference import route_events as servers
from rocketmq_ha.reference import store_events as stores
from rocketmq_ha.reference.puts import Master
from rocketmq_ha.reference.reads_state import ReadsSetup
from rocketmq_ha.reference.route_table import Bounds, DataVersion, QueueData, Registration
from rocketmq_ha.reference.routes import BrokerSettings
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.reference.store_state import StoreSettings
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole

ALL: Final = 1 << 20
ALL_PAGES: Final = (1 << 64) - 1
Life = list[tuple[Any, list[str]]]  # events, each with its rows


def line(row: Transition) -> str:
    states = f"{row.from_state} > {row.to_state}"
    numbers = f"{row.offset} {row.nbytes} {row.fragment_len} {row.split_at}"
    told = []
    last = ""
    for clause in row.clauses:
        chapter, _, number = clause.rpartition("-")
        told.append(number if chapter == last else clause)
        last = chapter
    return " ".join((row.actor, str(row.instance), row.event, states, numbers, *told))


# In the first life 324 bytes go over the end of a file in three frames: 76 bytes of a BLANK, then 150 and 62 of the record.
LINK: Final[Life] = [
    (link.Put("T", b"x" * 20, "", 0, wait=False), ["store 0 put no_files > open 112 112 -1 0 HA-ST-2 4"]),
    (
        link.Connect(0, ALL, ALL),
        [
            "master_connection 0 accept await_report > await_report -1 0 -1 0 HA-M-1",
            "slave_client 0 connect disconnected > connected 0 8 -1 0 HA-S-1 3 HA-W-1",
        ],
    ),
    (link.DeliverReports(0, 3), ["master_connection 0 reports await_report > await_report -1 3 3 3"]),
    (
        link.DeliverReports(0, ALL),
        [
            "master_connection 0 reports await_report > await_report 0 5 5 0 HA-W-1 HA-M-2 3",
            "master_connection 0 transfer await_report > caught_up 112 124 124 0 HA-M-4 HA-W-2 HA-M-7",
        ],
    ),
    (link.DeliverFrames(0, 7), ["slave_client 0 frames connected > header_partial 0 7 7 7"]),
    (
        link.DeliverFrames(0, ALL),
        [
            "slave_client 0 frames header_partial > connected 112 117 117 0 HA-S-5 HA-ST-6 HA-S-7 HA-W-1",
            "store 1 append_data no_files > open 112 112 -1 0 HA-ST-6",
        ],
    ),
    (link.Grant(0, 20), []),
    (
        link.Put("T", b"y" * 120, "", 0, wait=True),
        [
            "store 0 put open > open 324 212 -1 0 HA-ST-2 4",
            "group_transfer 0 put no_waiters > no_waiters 0 0 -1 0 HA-G-3 6",
            "master_connection 0 transfer caught_up > body_partial 262 20 20 20 HA-W-2 HA-M-7 HA-W-5",
        ],
    ),
    (link.Grant(0, ALL), ["master_connection 0 transfer body_partial > caught_up 324 216 216 0 HA-M-6 HA-W-2 HA-M-7"]),
    (
        link.DeliverFrames(0, ALL),
        [
            "slave_client 0 frames connected > connected 324 236 236 0 HA-S-5 HA-ST-6 HA-S-7 HA-W-1",
            "store 1 append_data open > open 324 212 -1 0 HA-ST-6",
        ],
    ),
    (link.DeliverReports(0, ALL), ["master_connection 0 reports caught_up > caught_up 324 16 16 0 HA-W-1 HA-M-2"]),
    (
        link.Put("T", b"z" * 120, "", 0, wait=True),
        [
            "store 0 put_roll open > open 612 288 -1 0 HA-ST-2 4 3",
            "group_transfer 0 put no_waiters > waiting 324 0 -1 0",
            "master_connection 0 transfer caught_up > caught_up 612 324 324 0 HA-W-2 HA-M-7 HA-W-4 5",
        ],
    ),
    (
        link.Tick(5001),
        [
            "slave_client 0 tick connected > connected 324 8 -1 0 HA-T-1 HA-S-2 HA-W-1",
            "group_transfer 0 tick waiting > no_waiters 324 0 -1 0 HA-T-1 HA-G-2 6",
            "master_connection 0 transfer caught_up > caught_up 612 12 12 0 HA-T-1 HA-W-3 HA-M-8",
        ],
    ),
    (
        link.DeliverFrames(0, ALL),
        [
            "slave_client 0 frames connected > connected 612 336 336 0 HA-S-90 5 HA-ST-6 HA-S-7 HA-W-1",
            "store 1 append_data open > open 612 288 -1 0 HA-ST-6",
        ],
    ),
    (link.DeliverReports(0, ALL), ["master_connection 0 reports caught_up > caught_up 612 16 16 0 HA-W-1 HA-M-2"]),
    (link.ForgeReport(0, 9999), ["network 0 forge_report up > up -1 0 -1 0"]),
    (
        link.DeliverReports(0, ALL),
        [
            "master_connection 0 reports caught_up > closed 612 8 8 0 HA-W-1 HA-M-2 11",
            "slave_client 0 end_of_stream connected > disconnected 612 0 -1 0 HA-S-13",
        ],
    ),
    (
        link.RestartSlave(0),
        [
            "store 1 recover open > open 612 0 -1 0 HA-ST-5",
            "slave_client 0 restart disconnected > disconnected 612 0 -1 0 HA-ST-5",
        ],
    ),
    (
        link.Connect(0, ALL, ALL),
        [
            "master_connection 1 accept await_report > await_report -1 0 -1 0 HA-M-1",
            "slave_client 0 connect disconnected > connected 612 8 -1 0 HA-S-1 61 3 HA-W-1",
        ],
    ),
    (
        link.DeliverReports(0, ALL),
        [
            "master_connection 1 reports await_report > await_report 400 8 8 0 HA-W-1 HA-M-2 3",
            "master_connection 1 transfer await_report > caught_up 612 236 236 0 HA-M-5 HA-W-2 HA-M-7 HA-W-5",
        ],
    ),
    (
        link.RestartMaster(clean=True),
        [
            "store 0 recover open > open 612 0 -1 0 HA-ST-5",
            "master_connection 1 end_of_stream caught_up > closed 612 0 -1 0 HA-M-13",
            "slave_client 0 end_of_stream connected > disconnected 612 0 -1 0 HA-S-13",
        ],
    ),
]

CLASSIC_LINK: Final[Life] = [
    (link.Put("T", b"x" * 120, "", 0, wait=False), ["store 0 put no_files > open 212 212 -1 0 HA-ST-2 4"]),
    (link.Put("T", b"y" * 120, "", 0, wait=False), ["store 0 put_roll open > open 612 400 -1 0 HA-ST-2 4 3"]),
    (
        link.Connect(0, ALL, ALL),
        [
            "master_connection 0 accept await_report > await_report -1 0 -1 0 HA-M-1",
            "slave_client 0 connect disconnected > connected 0 0 -1 0 HA-S-1",
        ],
    ),
    (
        link.Put("T", b"z" * 120, "", 0, wait=True),
        [
            "store 0 put_roll open > open 1012 400 -1 0 HA-ST-2 4 3",
            "group_transfer 0 put no_waiters > wait_1 0 0 -1 0 HA-G-12 13",
        ],
    ),
    (
        link.Tick(5001),
        [
            "slave_client 0 tick connected > connected 0 8 -1 0 HA-T-1 HA-S-2 HA-W-1",
            "group_transfer 0 tick wait_1 > wait_2 0 0 -1 0 HA-T-1 HA-G-2 6 13",
        ],
    ),
    (
        link.DeliverReports(0, ALL),
        [
            "master_connection 0 reports await_report > await_report 0 8 8 0 HA-W-1 HA-M-2 3",
            "master_connection 0 transfer await_report > caught_up 1012 248 248 0 "
            "HA-M-4 HA-T-1 HA-W-3 HA-M-8 HA-W-2 HA-M-7 HA-W-5",
        ],
    ),
    (
        link.DeliverFrames(0, 50),
        [
            "slave_client 0 frames connected > body_partial 800 50 50 38 HA-S-10 6 HA-W-1",
            "store 1 append_data no_files > phantom 800 0 -1 0 HA-S-10",
        ],
    ),
    (link.Clog(0, 3), ["network 0 clog up > up -1 0 -1 0"]),
    (
        link.DeliverFrames(0, ALL),
        [
            "slave_client 0 frames body_partial > disconnected 950 198 198 0 HA-S-5 HA-ST-6 HA-S-6 HA-W-1 HA-S-8 13",
            "store 1 append_data phantom > open 950 150 -1 0 HA-ST-6",
            "master_connection 0 end_of_stream caught_up > closed 1012 0 -1 0 HA-M-13",
        ],
    ),
    (
        link.RestartSlave(0),
        [
            "store 1 recover open > phantom 800 -150 -1 0 HA-ST-5",
            "slave_client 0 restart disconnected > disconnected 800 0 -1 0 HA-ST-5",
        ],
    ),
    (
        link.RestartMaster(clean=True),
        ["store 0 recover open > open 1012 0 -1 0 HA-ST-5", "group_transfer 0 shutdown wait_2 > wait_2 0 0 -1 0"],
    ),
]

REPLICAS: Final[Life] = [
    (
        puts.Accept(1),
        [
            "replica_connection 0 accept await_report > await_report -1 0 -1 0 HA-M-1",
            "replicas 0 accept none > uncounted 0 0 -1 0 HA-G-5",
        ],
    ),
    (puts.Accept(2, 7), ["replica_connection 1 accept await_report > await_report -1 0 -1 0 HA-M-1"]),
    (
        puts.Put(20),
        [
            "group_commit 0 put idle > flushing 0 0 -1 0",
            "group_transfer 0 put no_waiters > no_waiters 0 0 -1 0 HA-G-3 6",
            "put 0 put appended > disk_no_slave 112 0 -1 0 HA-G-9 10 42",
        ],
    ),
    (puts.Report(0, 5), ["replica_connection 0 report await_report > asked 0 0 -1 0 HA-W-1 HA-M-2 3"]),
    (puts.Report(1, 5), ["replica_connection 1 report await_report > asked 0 0 -1 0 HA-W-1 HA-M-2 3"]),
    (puts.Transfer(0), ["replica_connection 0 transfer asked > started 112 0 -1 0 HA-M-4 HA-W-2 HA-M-7"]),
    (puts.Transfer(1), ["replica_connection 1 transfer asked > started 112 0 -1 0 HA-M-4 HA-W-2 HA-M-7"]),
    (
        puts.Report(0, 0),
        [
            "replica_connection 0 report started > acknowledges 112 0 -1 0 HA-W-1 HA-M-2",
            "replicas 0 report uncounted > too_few 0 0 -1 0 HA-G-5 30 17",
        ],
    ),
    (
        puts.Put(30),
        [
            "group_commit 0 put flushing > flushing_queued 0 0 -1 0",
            "group_transfer 0 put no_waiters > no_waiters 0 0 -1 0 HA-G-3 32 6",
            "put 1 put appended > disk_no_slave 234 0 -1 0 HA-G-9 10 42",
        ],
    ),
    (
        puts.Report(1, 1),
        [
            "replica_connection 1 report started > acknowledges 112 0 -1 0 HA-W-1 HA-M-2",
            "replicas 0 report too_few > enough 112 0 -1 0 HA-G-5 30 17",
        ],
    ),
    (
        puts.Flush(),
        [
            "group_commit 0 flush flushing_queued > idle 234 0 -1 0 HA-ST-27 28",
            "put 0 flush disk_no_slave > slave_not_available 112 0 -1 0 HA-G-44 6 41",
            "put 1 flush disk_no_slave > slave_not_available 234 0 -1 0 HA-G-44 6 41",
        ],
    ),
    (
        puts.Put(40, by_broker=True),
        [
            "group_commit 0 put idle > flushing 234 0 -1 0",
            "group_transfer 0 put no_waiters > waiting 112 0 -1 0",
            "put 2 put appended > both 366 0 -1 0 HA-G-9 10 42",
        ],
    ),
    (puts.Transfer(0), ["replica_connection 0 transfer acknowledges > acknowledges 366 0 -1 0 HA-W-2 HA-M-7"]),
    (puts.Transfer(1), ["replica_connection 1 transfer acknowledges > acknowledges 366 0 -1 0 HA-W-2 HA-M-7"]),
    (puts.Report(0, 0), ["replica_connection 0 report acknowledges > acknowledges 366 0 -1 0 HA-W-1 HA-M-2"]),
    (
        puts.Report(1, 0),
        [
            "replica_connection 1 report acknowledges > acknowledges 366 0 -1 0 HA-W-1 HA-M-2",
            "replicas 0 report enough > enough 366 0 -1 0 HA-G-5 30 17",
            "group_transfer 0 ack waiting > no_waiters 366 0 -1 0 HA-G-1 6",
            "put 2 ack both > disk 366 0 -1 0",
        ],
    ),
    (
        puts.Flush(2),
        [
            "group_commit 0 flush flushing > idle 234 0 -1 0 HA-ST-27 28",
            "put 2 flush disk > flush_disk_timeout 366 0 -1 0 HA-G-44 6 41",
        ],
    ),
    (
        puts.Put(10, "WAIT\x01false\x02"),
        ["put 3 put appended > put_ok 479 0 -1 0 HA-G-9 10 20 8 40 6 41"],
    ),
    (
        puts.Report(0, 0, 5, honest=False),
        [
            "replica_connection 0 report acknowledges > closed 366 0 -1 0 HA-W-1 HA-M-2 11",
            "replicas 0 report enough > too_few 0 0 -1 0 HA-G-5",
        ],
    ),
    (
        puts.Close(0),
        [
            "replica_connection 1 end_of_stream acknowledges > closed 366 0 -1 0 HA-M-13",
            "replicas 0 end_of_stream too_few > none 0 0 -1 0 HA-G-5",
        ],
    ),
    (
        puts.Put(10),
        [
            "group_commit 0 put idle > flushing 234 0 -1 0",
            "group_transfer 0 put no_waiters > no_waiters 0 0 -1 0 HA-G-3 6",
            "put 4 put appended > disk_no_slave 581 0 -1 0 HA-G-9 10 42",
        ],
    ),
    (
        puts.Restart(clean=True),
        [
            "group_commit 0 shutdown flushing > idle 581 0 -1 0",
            "put 4 shutdown disk_no_slave > slave_not_available 581 0 -1 0 HA-G-45 6 41",
        ],
    ),
]

CLASSIC_REPLICAS: Final[Life] = [
    (
        puts.Put(20),
        [
            "group_transfer 0 put no_waiters > no_waiters 0 0 -1 0 HA-G-3 6",
            "put 0 put appended > slave_not_available 112 0 -1 0 HA-G-9 10 6 41",
        ],
    ),
    (
        puts.Accept(1),
        [
            "replica_connection 0 accept await_report > await_report -1 0 -1 0 HA-M-1",
            "replicas 0 accept none > enough 0 0 -1 0 HA-G-4",
        ],
    ),
    (
        puts.Put(30),
        [
            "group_transfer 0 put no_waiters > wait_1 0 0 -1 0 HA-G-12 13",
            "put 1 put appended > slave 234 0 -1 0 HA-G-9 10",
        ],
    ),
    (puts.Tick(1001), ["group_transfer 0 tick wait_1 > wait_2 0 0 -1 0 HA-G-13"]),
    (
        puts.Tick(600),
        [
            "group_transfer 0 tick wait_2 > wait_2 0 0 -1 0 HA-T-1 HA-G-2 6",
            "put 1 tick slave > flush_slave_timeout 234 0 -1 0 HA-G-6 41",
        ],
    ),
    (puts.Report(0, 5), ["replica_connection 0 report await_report > asked 0 0 -1 0 HA-W-1 HA-M-2 3"]),
    (puts.Transfer(0), ["replica_connection 0 transfer asked > started 234 0 -1 0 HA-M-4 HA-W-2 HA-M-7"]),
    (
        puts.Report(0, 0),
        [
            "replica_connection 0 report started > acknowledges 234 0 -1 0 HA-W-1 HA-M-2",
            "replicas 0 report enough > enough 234 0 -1 0 HA-G-4 17",
            "group_transfer 0 ack wait_2 > no_waiters 234 0 -1 0 HA-G-1",
        ],
    ),
    (
        puts.Restart(clean=False),
        ["replica_connection 0 kill acknowledges > closed 234 0 -1 0", "replicas 0 kill enough > none 0 0 -1 0"],
    ),
]

READS: Final[Life] = [
    (pulls.SetTopic(), []),
    (pulls.SetGroup(), []),
    (pulls.SetConsumers(), []),
    (
        pulls.Pull(0, 0, "min", sys_flag=0),
        ["pull 0 pull arrived > no_message_in_queue 0 0 -1 0 HA-P-2 7 14 HA-R-26 20 22"],
    ),
    (
        pulls.Dispatch(
            (
                pulls.Message(0, 20, "a"),
                pulls.Message(0, 20, "b"),
                pulls.Message(1, 30, "a"),
            )
        ),
        [],
    ),
    (
        pulls.Pull(0, 0, "min"),
        ["pull 1 pull arrived > found 0 0 -1 0 HA-P-2 7 14 HA-R-26 20 22 HA-P-5 8 HA-ST-37 HA-P-4"],
    ),
    (
        pulls.Pull(0, 0, "max", sys_flag=6),
        ["hold 0 park empty > holding -1 0 -1 0", "pull 2 pull arrived > parked 2 0 -1 0 HA-P-2 16 HA-R-29"],
    ),
    (pulls.Pull(1, 1, "max", sys_flag=6, subscription="b"), ["pull 3 pull arrived > parked 1 0 -1 0 HA-P-2 16 HA-R-29"]),
    (
        pulls.Pull(0, 0, "max", 1),
        ["pull 4 pull arrived > offset_overflow_badly 3 0 -1 0 HA-P-2 7 14 HA-R-26 20 22"],
    ),
    (
        pulls.Dispatch((pulls.Message(0, 20, "a"),)),
        ["pull 2 dispatch parked > found 2 0 -1 0 HA-P-17 19 7 14 HA-R-26 20 22 HA-P-5 8 HA-ST-37 HA-P-4"],
    ),
    (
        pulls.Pull(2, 0, "min", max_msg_nums=1, lite=True),
        ["pull 5 pull arrived > found 0 0 -1 0 HA-P-1 2 7 14 HA-R-26 20 22 HA-P-5 8 HA-ST-37 HA-P-4 9"],
    ),
    (pulls.Dispatch((pulls.Message(1, 20, "c"),)), []),
    (
        pulls.Tick(15000),
        [
            "hold 0 tick holding > empty -1 0 -1 0",
            "pull 3 tick parked > no_matched_message 1 0 -1 0 HA-P-18 19 7 14 HA-R-26 20 22 HA-P-5 8 HA-ST-37 HA-P-4",
        ],
    ),
    (
        pulls.Pull(2, 0, "max", sys_flag=7, commit_offset=2),
        ["hold 0 park empty > holding -1 0 -1 0", "pull 6 pull arrived > parked 3 0 -1 0 HA-P-2 15 16 HA-R-29"],
    ),
    (
        pulls.CloseChannel(2),
        ["pull 6 close parked > dropped 3 0 -1 0 HA-P-20", "hold 0 close holding > empty -1 0 -1 0 HA-P-20"],
    ),
    (pulls.SetTopic(perm=2), []),
    (pulls.Pull(0, 0, "min"), ["pull 7 pull arrived > no_permission 0 0 -1 0 HA-P-2 3 HA-R-30"]),
    (pulls.SetTopic(), []),
    (
        pulls.Pull(0, 1, "max", sys_flag=6),
        ["hold 0 park empty > holding -1 0 -1 0", "pull 8 pull arrived > parked 2 0 -1 0 HA-P-2 16 HA-R-29"],
    ),
    (
        pulls.Restart(),
        ["pull 8 shutdown parked > dropped 2 0 -1 0 HA-P-20", "hold 0 shutdown holding > empty -1 0 -1 0 HA-P-20"],
    ),
]

QUEUES: Final = (("T", QueueData(8, 8, 6)), ("U", QueueData(4, 4, 4)))
REGISTRATION: Final = Registration("c", "b", 0, "h:9", "h:90", DataVersion(1, 5), QUEUES)
# A slave of "h:9", whose broker permission is to read alone.
SLAVE: Final = BrokerSettings("c", "b", 1, "h:2", permission=4)

ROUTES: Final[Life] = [
    (
        servers.Register(0, 0, REGISTRATION),
        [
            "broker_entry 766886329 register unlisted > master -1 0 -1 0 HA-R-32 33 34 3 10 38 35 36",
            "topic_entry 1468359873 register absent > writable -1 0 -1 0 HA-R-32 33 34 3 10 38 35 36",
            "topic_entry 1466192346 register absent > unwritable -1 0 -1 0 HA-R-32 33 34 3 10 38 35 36",
            "name_server 0 register empty > listing -1 367 -1 0 HA-R-32 33 34 3 10 38 35 36",
        ],
    ),
    (
        servers.Register(0, 0, replace(REGISTRATION, topics=(("T", QueueData(2, 2, 2)),))),
        ["broker_entry 766886329 register master > master -1 0 -1 0 HA-R-32 33 34 3 10 38 35 36 37"],
    ),
    (servers.StartBroker(0), ["registering 0 start off > asked -1 0 -1 0 HA-R-15 16 13 HA-SE-40"]),
    (servers.UpdateTopic(0, "V", 4, 6), ["registering 0 change asked > asked_again -1 0 -1 0 HA-BT-13"]),
    (
        servers.Deliver(0, 0),
        ["broker_entry 1717349757 register unlisted > slave -1 0 -1 0 HA-R-32 33 34 3 10 38 35 37"],
    ),
    (servers.Answer(0, 0), ["registering 0 answer asked_again > asked -1 0 -1 0 HA-R-14 HA-SE-41 HA-R-15 13 HA-SE-40"]),
    (servers.QueryVersion(0, 0, "h:9", DataVersion(2, 5)), ["broker_entry 766886329 query master > master -1 0 -1 0 HA-R-46"]),
    (servers.SignOfLife(0, 0, "h:9"), ["broker_entry 766886329 heartbeat master > master -1 0 -1 0 HA-R-50"]),
    (servers.Ask(0, 105, "T"), ["name_server 0 route listing > listing -1 0 -1 0 HA-R-19 49"]),
    (servers.Ask(0, 105, "none"), ["name_server 0 no_route listing > listing -1 0 -1 0 HA-R-48"]),
    (servers.Ask(0, 105), ["name_server 0 refused listing > listing -1 0 -1 0 HA-RM-13"]),
    (servers.Change(0, 216, "T", "c"), ["topic_entry 1468359873 delete writable > absent -1 0 -1 0 HA-R-51"]),
    (servers.PutText(0, "n", "k", "v"), ["text_entry 2140473520 put absent > held -1 0 -1 0 HA-R-52 53"]),
    (servers.DeleteText(0, "n", "k"), ["text_entry 2140473520 delete held > absent -1 0 -1 0 HA-R-52 53"]),
    (servers.DeleteText(0, "n", "k"), ["text_entry 2140473520 delete absent > absent -1 0 -1 0 HA-R-52"]),
    (servers.Disk(0, is_full=True), []),
    (servers.PutText(0, "n", "k", "v"), ["text_entry 2140473520 put_refused absent > absent -1 0 -1 0 HA-R-53 HA-RM-13"]),
    (
        servers.Register(0, 1, replace(REGISTRATION, broker_addr="h:8")),
        [
            "broker_entry 372660722 register unlisted > master -1 0 -1 0 HA-R-32 33 34 3 10 38 35 36",
            "broker_entry 766886329 other_register master > unlisted -1 0 -1 0 HA-R-32 33 34 3 10 38 35 36",
            "topic_entry 1468359873 register absent > writable -1 0 -1 0 HA-R-32 33 34 3 10 38 35 36",
        ],
    ),
    (servers.Close(0, 0), ["name_server 0 close listing > listing -1 0 -1 0 HA-R-41"]),
    (
        servers.Close(0, 1),
        [
            "name_server 0 close listing > listing -1 0 -1 0 HA-R-41 17",
            "broker_entry 1717349757 close slave > masterless -1 0 -1 0 HA-R-41 17",
            "broker_entry 372660722 close master > unlisted -1 0 -1 0 HA-R-41 17",
        ],
    ),
    (
        servers.Tick(125000),
        [
            "registering 0 tick asked > asked_again -1 0 -1 0 HA-R-16",
            "name_server 0 tick listing > empty -1 0 -1 0 HA-R-17 42 44",
            "broker_entry 1717349757 tick masterless > unlisted -1 0 -1 0 HA-R-17 42 44",
            "topic_entry 1468359873 tick writable > absent -1 0 -1 0 HA-R-17 42 44",
            "topic_entry 1466192346 tick unwritable > absent -1 0 -1 0 HA-R-17 42 44",
            "registering 0 failure asked_again > asked -1 0 -1 0 HA-R-58 HA-SE-41 HA-R-15 13 HA-SE-40",
        ],
    ),
    (servers.StopBroker(0, "clean"), ["registering 0 leave asked > leaving -1 0 -1 0 HA-R-18"]),
    (
        servers.RestartServer(0),
        ["registering 0 failure leaving > leaving -1 0 -1 0", "name_server 0 restart empty > empty -1 0 -1 0 HA-R-47 53"],
    ),
]

WITHOUT_MASTER: Final[Life] = [
    (servers.StartBroker(0), ["registering 0 start off > asked -1 0 -1 0 HA-R-15 16 13 HA-SE-40"]),
    (
        servers.Deliver(0, 0),
        [
            "broker_entry 1717349757 register unlisted > masterless -1 0 -1 0 HA-R-32 33 34 3 10 38 35",
            "name_server 0 register empty > listing -1 1330 -1 0 HA-R-32 33 34 3 10 38 35",
        ],
    ),
    (servers.Answer(0, 0), ["registering 0 answer asked > idle -1 0 -1 0"]),
]

STORE: Final[Life] = [
    (stores.Open(), ["store_life 0 recover_normally stopped > empty 0 0 -1 0 HA-ST-1 5 21 9 23 28"]),
    (
        stores.Put("T", b"x" * 20, "KEYS\x01k\x02", 0),
        ["store_life 0 put empty > dirty 119 119 -1 0 HA-ST-2 4 12 15 31 8 25"],
    ),
    (
        stores.Put("T", b"y" * 300, "", 0),
        ["store_life 0 put dirty > dirty 511 392 -1 0 HA-ST-2 4 12 15 31 25"],
    ),
    (
        stores.Dispatch(),
        [
            "store_life 0 dispatch dirty > dirty 511 0 -1 0 HA-ST-35",
            "consume_queue 540104639 append none > unsynced -1 0 -1 0 HA-ST-29 31",
            "index 0 append none > unsynced -1 0 -1 0 HA-ST-39 40 41 42",
        ],
    ),
    (stores.Dispatch(), ["store_life 0 dispatch dirty > dirty 511 0 -1 0"]),
    (stores.Flush(0), ["store_life 0 flush dirty > flushed 511 0 -1 0 HA-ST-28 60"]),
    (
        stores.FlushDerived(),
        [
            "store_life 0 flush_derived flushed > settled 511 0 -1 0 HA-ST-24",
            "consume_queue 540104639 flush_derived unsynced > synced -1 0 -1 0 HA-ST-24",
            "index 0 flush_derived unsynced > synced -1 0 -1 0 HA-ST-24",
        ],
    ),
    (
        stores.PutBatch("T", (b"a" * 50, b"b" * 60), "", 1),
        ["store_life 0 put_batch settled > dirty 805 294 -1 0 HA-ST-2 4 12 15 31 25"],
    ),
    (
        stores.Put("T", b"z" * 400, "", 0, 4),
        ["store_life 0 put_roll dirty > dirty 1516 711 -1 0 HA-ST-2 4 12 15 8 3 25"],
    ),
    (stores.Put("T", b"q" * 2000, "", 0), ["store_life 0 put_refused dirty > dirty 1516 0 -1 0 HA-ST-3"]),
    (
        stores.Dispatch(),
        [
            "store_life 0 dispatch dirty > dirty 1516 0 -1 0 HA-ST-35",
            "consume_queue 1463183145 append none > unsynced -1 0 -1 0 HA-ST-29 31",
        ],
    ),
    (
        stores.Kill(),
        [
            "store_life 0 kill dirty > crashed 1516 0 -1 0 HA-ST-23",
            "consume_queue 540104639 kill synced > left -1 0 -1 0",
            "consume_queue 1463183145 kill unsynced > left_unsynced -1 0 -1 0",
            "index 0 kill synced > left -1 0 -1 0",
        ],
    ),
    (
        stores.Open(),
        [
            "store_life 0 recover_abnormally crashed > dirty 1516 0 -1 0 HA-ST-1 5 21 19 24 46 82 45 73 9 23 28",
            "consume_queue 540104639 kept left > synced -1 0 -1 0 HA-ST-38 73 82",
            "consume_queue 1463183145 kept left_unsynced > unsynced -1 0 -1 0 HA-ST-38 73 82",
            "index 0 kept left > unsynced -1 0 -1 0 HA-ST-45 73",
        ],
    ),
    (
        stores.PowerCut(ALL_PAGES, 9, 0),
        [
            "store_life 0 power_cut dirty > crashed 2048 532 -1 0 HA-ST-28",
            "consume_queue 540104639 power_cut synced > left -1 0 -1 0",
            "consume_queue 1463183145 power_cut unsynced > left -1 0 -1 0",
            "index 0 power_cut unsynced > left -1 0 -1 0",
        ],
    ),
    (
        stores.Open(),
        [
            "store_life 0 recover_abnormally crashed > dirty 1516 0 -1 0 HA-ST-1 5 21 19 24 46 82 45 73 9 23 28",
            "consume_queue 540104639 kept left > synced -1 0 -1 0 HA-ST-38 73 82",
            "consume_queue 1463183145 kept left > synced -1 0 -1 0 HA-ST-38 73 82",
            "index 0 kept left > unsynced -1 0 -1 0 HA-ST-45 73",
        ],
    ),
    (stores.Flush(0), ["store_life 0 flush dirty > settled 1516 0 -1 0 HA-ST-28 60"]),
    (
        stores.FlushDerived(),
        [
            "store_life 0 flush_derived settled > settled 1516 0 -1 0 HA-ST-24",
            "index 0 flush_derived unsynced > synced -1 0 -1 0 HA-ST-24",
        ],
    ),
    (
        stores.Close(),
        [
            "store_life 0 close settled > stopped 1516 0 -1 0 HA-ST-22 23 24",
            "consume_queue 540104639 close synced > left -1 0 -1 0",
            "consume_queue 1463183145 close synced > left -1 0 -1 0",
            "index 0 close synced > left -1 0 -1 0",
        ],
    ),
    (
        stores.Open(),
        [
            "store_life 0 recover_normally stopped > dirty 1516 0 -1 0 HA-ST-1 5 21 18 38 35 9 23 28",
            "consume_queue 540104639 kept left > synced -1 0 -1 0 HA-ST-38",
            "consume_queue 1463183145 kept left > synced -1 0 -1 0 HA-ST-38",
            "index 0 kept left > synced -1 0 -1 0",
        ],
    ),
    (stores.DiskFull(is_full=True), []),
    (stores.Put("T", b"x" * 900, "", 0), ["store_life 0 put_refused dirty > dirty 1516 0 -1 0 HA-ST-67"]),
    (stores.WatchSpace(), ["store_life 0 watch_space dirty > dirty 1516 0 -1 0 HA-ST-67"]),
    (stores.DiskFull(is_full=False), []),
    (stores.WatchSpace(), ["store_life 0 watch_space dirty > dirty 1516 0 -1 0 HA-ST-67"]),
    (stores.Tick(100000), []),
    (
        stores.Clean(4, 10, -1),
        [
            "store_life 0 expire dirty > dirty 1516 0 -1 0 HA-ST-62 69 13 63 71",
            "consume_queue 540104639 expire synced > expired -1 0 -1 0 HA-ST-71",
            "consume_queue 1463183145 expire synced > expired -1 0 -1 0 HA-ST-71",
        ],
    ),
    (stores.Clean(4, 10, -1), ["store_life 0 keep dirty > dirty 1516 0 -1 0 HA-ST-62 69"]),
    (
        stores.Kill(),
        [
            "store_life 0 kill dirty > crashed 1516 0 -1 0 HA-ST-23",
            "consume_queue 540104639 kill expired > left -1 0 -1 0",
            "consume_queue 1463183145 kill expired > left -1 0 -1 0",
            "index 0 kill synced > left -1 0 -1 0",
        ],
    ),
    (stores.Shorten(0, 500), ["store_life 0 shorten crashed > crashed 1516 0 -1 0"]),
    (stores.Open(), ["store_life 0 refuse crashed > refused 1516 0 -1 0 HA-ST-21"]),
]

METADATA: Final[Life] = [
    (tables.PutTopic(0, "t", 4), ["table_file 0 put none > saved -1 0 -1 0 HA-BT-2 3 17"]),
    (tables.PutMessage(0, "t", 0), []),
    (tables.Commit(0, "t", "g", 0, 1), []),
    (tables.DeliverDelayed(0, 1), []),
    (
        tables.Follow(0),
        [
            "synchronizing 0 follow idle > changes -1 0 -1 0 HA-MD-5 27 28",
            "slave_table 0 follow alone > new -1 0 -1 0 HA-MD-5 27 28",
            "slave_table 1 follow alone > new -1 0 -1 0 HA-MD-5 27 28",
            "slave_table 2 follow alone > new -1 0 -1 0 HA-MD-5 27 28",
            "slave_table 3 follow alone > new -1 0 -1 0 HA-MD-5 27 28",
        ],
    ),
    (tables.Reach(), []),
    (
        tables.Arrive(),
        [
            "synchronizing 0 answer changes > idle -1 0 -1 0 HA-MD-34 32 36",
            "slave_table 0 answer new > in_step -1 0 -1 0 HA-MD-34 32 36",
            "slave_table 1 answer new > in_step -1 0 -1 0 HA-MD-34 32 36",
            "slave_table 2 answer new > in_step -1 0 -1 0 HA-MD-34 32 36",
            "slave_table 3 answer new > in_step -1 0 -1 0 HA-MD-34 32 36",
            "consumer_offset 674839627 answer absent > told -1 0 -1 0 HA-MD-34 32 36",
            "delay_progress 0 answer none > waiting -1 0 -1 0 HA-MD-34 32 36",
            "table_file 90 answer none > saved -1 0 -1 0 HA-MD-34 32 36",
        ],
    ),
    (tables.PutMessage(-1, "t", 0), ["delay_progress 0 grow waiting > usable -1 0 -1 0 HA-MD-36"]),
    (
        tables.DeleteTopic(0, "t"),
        [
            "slave_table 0 delete in_step > behind -1 0 -1 0 HA-BT-15 80",
            "slave_table 1 delete in_step > behind -1 0 -1 0 HA-BT-15 80",
            "table_file 0 delete saved > saved -1 0 -1 0 HA-BT-15 80",
            "table_file 2 delete none > saved -1 0 -1 0 HA-BT-15 80",
        ],
    ),
    (tables.Tick(500), ["synchronizing 0 tick idle > changes -1 0 -1 0 HA-MD-27 28"]),
    (tables.Reach(), []),
    (tables.BreakConnection(0), ["synchronizing 0 broken changes > idle -1 0 -1 0 HA-MD-3"]),
    (tables.Disk(-1, is_full=True), []),
    (tables.Tick(10000), ["synchronizing 0 tick idle > changes -1 0 -1 0 HA-MD-27 28 HA-BT-33"]),
    (tables.Tick(3000), ["synchronizing 0 failed changes > changes -1 0 -1 0 HA-MD-7 3 27 28"]),
    (tables.Reach(), []),
    (
        tables.Arrive(),
        [
            "synchronizing 0 answer changes > idle -1 0 -1 0 HA-MD-34 32 36 HA-BT-6",
            "slave_table 0 answer behind > in_step -1 0 -1 0 HA-MD-34 32 36 HA-BT-6",
            "slave_table 1 answer behind > in_step -1 0 -1 0 HA-MD-34 32 36 HA-BT-6",
            "slave_table 2 answer in_step > in_step -1 0 -1 0 HA-MD-34 32 36 HA-BT-6",
            "slave_table 3 answer in_step > in_step -1 0 -1 0 HA-MD-34 32 36 HA-BT-6",
            "delay_progress 0 answer usable > usable -1 0 -1 0 HA-MD-34 32 36 HA-BT-6",
            "table_file 90 answer saved > unsaved -1 0 -1 0 HA-MD-34 32 36 HA-BT-6",
            "table_file 92 answer none > unsaved -1 0 -1 0 HA-MD-34 32 36 HA-BT-6",
        ],
    ),
    (tables.Disk(-1, is_full=False), []),
    (
        tables.Tick(5000),
        [
            "synchronizing 0 tick idle > changes -1 0 -1 0 HA-MD-27 28 HA-BT-6 33",
            "table_file 90 tick unsaved > saved -1 0 -1 0 HA-MD-27 28 HA-BT-6 33",
            "table_file 92 tick unsaved > saved -1 0 -1 0 HA-MD-27 28 HA-BT-6 33",
        ],
    ),
    (
        tables.Follow(-2),
        [
            "synchronizing 0 follow changes > idle -1 0 -1 0 HA-MD-5 4",
            "slave_table 0 follow in_step > alone -1 0 -1 0 HA-MD-5 4",
            "slave_table 1 follow in_step > alone -1 0 -1 0 HA-MD-5 4",
            "slave_table 2 follow in_step > alone -1 0 -1 0 HA-MD-5 4",
            "slave_table 3 follow in_step > alone -1 0 -1 0 HA-MD-5 4",
        ],
    ),
    (
        tables.RestartMaster(0, saves=True),
        [
            "synchronizing 0 life idle > idle -1 0 -1 0 HA-BT-10 20 33 HA-MD-31",
            "table_file 0 life saved > saved -1 0 -1 0 HA-BT-10 20 33 HA-MD-31",
            "table_file 1 life none > none -1 0 -1 0 HA-BT-10 20 33 HA-MD-31",
            "table_file 2 life saved > saved -1 0 -1 0 HA-BT-10 20 33 HA-MD-31",
        ],
    ),
    (
        tables.RestartSlave(saves=False),
        [
            "synchronizing 0 restart idle > idle -1 0 -1 0 HA-MD-5",
            "consumer_offset 674839627 restart told > lone -1 0 -1 0 HA-MD-5",
            "delay_progress 0 restart usable > none -1 0 -1 0 HA-MD-5",
            "table_file 90 restart saved > saved -1 0 -1 0 HA-MD-5",
            "table_file 91 restart none > none -1 0 -1 0 HA-MD-5",
            "table_file 92 restart saved > saved -1 0 -1 0 HA-MD-5",
        ],
    ),
]


LINK_SETTINGS: Final = Settings(400, ha_transfer_batch_size=150, sync_flush_timeout_ms=1_000)
OF_TWO: Final = Settings(1_000, replicas=2, sync_flush_timeout_ms=1_000)
SYNC: Final = Master(BrokerRole.SYNC_MASTER, True, OF_TWO, HARDENED)
CLASSIC_ASYNC_FLUSH: Final = Master(BrokerRole.SYNC_MASTER, False, Settings(1_000, sync_flush_timeout_ms=1_500), CLASSIC)
NAME_SERVER: Final = routes.Settings(name_server.Settings(Bounds(8, 20)), 1, (SLAVE,))
LIVES: Final[dict[str, tuple[Callable[[], Reference], Life]]] = {
    "link": (lambda: ReferenceWorld(1, LINK_SETTINGS, HARDENED, START_MS), LINK),
    "link, classic": (lambda: ReferenceWorld(1, LINK_SETTINGS, CLASSIC, START_MS), CLASSIC_LINK),
    "replicas": (lambda: ReferenceReplicas(SYNC, START_MS), REPLICAS),
    "replicas, classic": (lambda: ReferenceReplicas(CLASSIC_ASYNC_FLUSH, START_MS), CLASSIC_REPLICAS),
    "reads": (lambda: ReferenceReads(ReadsSetup(), START_MS), READS),
    "routes": (lambda: ReferenceRoutes(NAME_SERVER, HARDENED, START_MS), ROUTES),
    "routes, no master": (lambda: ReferenceRoutes(NAME_SERVER, HARDENED, START_MS), WITHOUT_MASTER),
    "store": (lambda: ReferenceStore(StoreSettings(1_024, file_reserved_ms=50_000), HARDENED, START_MS), STORE),
    "metadata": (lambda: ReferenceMetadata(metadata.Settings((True,)), HARDENED, START_MS), METADATA),
}


@pytest.mark.parametrize("name", LIVES)
def test_the_rows_of_a_life(name: str) -> None:
    make, life = LIVES[name]
    reference = make()
    for number, (event, rows) in enumerate(life):
        assert list(map(line, reference.apply(event))) == rows, f"event {number}: {event}"
