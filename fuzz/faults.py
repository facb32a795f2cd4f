"""Planted faults: source edits of a copy of the implementation, unknown to the harness.

A check that has never failed proves nothing. Each edit is a realistic mistake, and the lock-step must find it from random
schedules alone, in seconds. A new process imports the faulty copy in place of the installed package, so the harness is
unchanged.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import rocketmq_ha.impl
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.impl.cli.commands import did_you_mean


@dataclass(frozen=True, slots=True)
class Fault:
    """One edit: replace the only occurrence of `old` in `file` by `new`."""

    name: str
    file: str
    old: str
    new: str
    description: str
    world: str = "link"  # whose schedules find it


RUN_SECONDS: Final = 3600.0  # of a command on a faulty copy

FAULTS: Final = (
    Fault(
        "report-rounds-up",
        "ha/slave.py",
        "        return REPORT.pack(max_offset)\n",
        "        return REPORT.pack(-(-max_offset // 8) * 8)\n",
        "the slave acknowledges bytes that it does not have, up to the next multiple of 8",
    ),
    Fault(
        "failed-append-counts",
        "ha/slave.py",
        "                if self._profile.checks_appends:\n",
        "                if self._profile.checks_appends and offset == 0:\n",
        "a slave acknowledges what its disk did not take, unless its log is empty (HA-S-38)",
    ),
    Fault(
        "first-report-of-a-read",
        "ha/master.py",
        "REPORT.unpack_from(self._read_buffer, pos - REPORT.size)",
        "REPORT.unpack_from(self._read_buffer, self.process_position)",
        "of several reports in one read the first is used, not the last (HA-M-2)",
    ),
    Fault(
        "untouched-frame-rebuilt",
        "ha/master.py",
        "            if nbytes < HEADER.size + size:\n",
        "            if nbytes == 0:\n                self.next_transfer_from_where = offset\n                break\n"
        "            if nbytes < HEADER.size + size:\n",
        "a frame that blocked before its first byte is built anew, larger, after the next put (HA-M-7)",
    ),
    Fault(
        "heartbeat-on-time",
        "ha/master.py",
        "if now_ms - self.last_write_timestamp > settings.ha_send_heartbeat_interval_ms:",
        "if now_ms - self.last_write_timestamp >= settings.ha_send_heartbeat_interval_ms:",
        "the heartbeat is sent when the interval has been reached, not when it has passed (HA-T-1)",
    ),
    Fault(
        "offset-checked-with-body",
        "ha/slave.py",
        "                if max_offset not in (0, offset):\n",
        "                if max_offset not in (0, offset) and self._end - self._start >= HEADER.size + body_size:\n",
        "a frame at the wrong offset is refused only once its body is there (HA-S-4)",
    ),
    Fault(
        "ack-too-early",
        "ha/group_transfer.py",
        "requests[0].next_offset <= push2_slave_max_offset",
        "requests[0].next_offset <= push2_slave_max_offset + 16",
        "a put ends with PUT_OK up to 16 bytes before the slave has all of it (HA-G-1)",
    ),
    Fault(
        "unparsed-kept",
        "ha/slave.py",
        "        self.close_reason = reason\n        self._start = self._end = 0\n",
        "        self.close_reason = reason\n",
        "half a frame of the old connection is glued to the first of the new one (HA-S-13)",
    ),
    Fault(
        "acks-outlive-their-slave",
        "ha/service.py",
        "        elif self.profile.forgets_lost_slaves:\n            self.push2_slave_max_offset = max(",
        "        elif False:\n            self.push2_slave_max_offset = max(",
        "the acknowledgements of a slave that is gone still count (HA-G-5, quirk 2)",
    ),
    Fault(
        "one-replica-is-enough",
        "ha/group_transfer.py",
        "sorted(acks, reverse=True)[replicas - 1]",
        "sorted(acks, reverse=True)[0]",
        "a put that needs two replicas ends when one has it, if only the other counts (HA-G-30)",
    ),
    Fault(
        "one-slave-is-two",
        "ha/service.py",
        'replica or peer.rpartition(":")[0])',
        'replica or f"{now_ms} {len(self.connections)}")',
        "a slave's new connection counts beside its old one, as another slave's would (HA-G-31, quirk 34)",
    ),
    Fault(
        "a-start-is-an-ack",
        "ha/master.py",
        "not -1 < self.start_offset < self.slave_ack_offset",
        "not -1 < self.start_offset <= self.slave_ack_offset",
        "a slave acknowledges what it was never sent, by asking for what comes behind it (HA-G-5, quirk 1)",
    ),
    Fault(
        "body-resumes-one-late",
        "ha/master.py",
        "            return [body[taken - HEADER.size :]]\n",
        "            return [body[taken - HEADER.size + (taken > HEADER.size + 1) :]]\n",
        "a body that was cut behind its second byte or later goes on one byte too far (HA-M-6)",
    ),
    Fault(
        "history-from-zero",
        "ha/master.py",
        "            start = self._log.max_offset - self._log.max_offset % self._settings.mapped_file_size\n",
        "            start = self._log.min_offset\n",
        "an empty slave gets the whole log, which is what users ask for and not the protocol (HA-M-4)",
    ),
    Fault(
        "last-byte-of-a-file",
        "store/log/commit_log.py",
        "min(position + limit, file.wrote_position)",
        "min(position + limit, file.wrote_position, self.file_size - 1)",
        "the last byte of a full file is never sent (HA-M-7)",
    ),
    Fault(
        "any-blank-is-ours",
        "ha/file_size.py",
        "            if end == self._file_size:\n",
        "            if end <= self._file_size:\n",
        "a slave with longer files than its master's takes the first BLANK for the end of its own file (HA-S-90)",
    ),
    Fault(
        "half-a-head",
        "ha/file_size.py",
        "            self._head = bytes(buffer[at:stop])\n",
        "            self._head = bytes(buffer[at : stop - 1])\n",
        "of a head that comes in two frames a byte is forgotten, and the slave's walk goes astray (HA-S-90)",
    ),
    Fault(
        "notification-lost",
        "ha/five_waits.py",
        "            self.service.has_notified = True\n",
        "            pass\n",
        "a report that comes while no put waits does not end the next wait (HA-G-14)",
    ),
    Fault(
        "covered-puts-wait-on",
        "store/log/flush.py",
        "        covered = [request for request in requests if request.next_offset <= flushed_offset]\n",
        "        covered: list[GroupCommitRequest] = []\n",
        "a put that the last flush has covered waits for the next one, and may be told that the disk was late (HA-G-44)",
        "replicas",
    ),
    Fault(
        "disk-late-at-its-time",
        "ha/puts.py",
        "(now_ms if expired_ms is None else expired_ms) <= put.deadline_ms",
        "(now_ms if expired_ms is None else expired_ms) < put.deadline_ms",
        "the wait for the disk ends when its time is reached, not when it has passed (HA-T-1)",
        "replicas",
    ),
    Fault(
        "disk-before-slave",
        "store/log/results.py",
        "    return disk if slave is PutMessageStatus.PUT_OK else slave\n",
        "    return slave if disk is PutMessageStatus.PUT_OK else disk\n",
        "a put that neither the disk nor a slave has in time ends with the outcome of the disk (HA-G-41)",
        "replicas",
    ),
    Fault(
        "slaves-asked-late",
        "ha/puts.py",
        "        self._asks_at_once = service.profile.waits_at_once\n",
        "        self._asks_at_once = False\n",
        "hardened looks for slaves only when the disk is done, and a put takes twice as long (HA-G-42)",
        "replicas",
    ),
    Fault(
        "flush-failure-is-told",
        "ha/puts.py",
        "            elif not self._checks_flush:\n",
        "            elif not self._checks_flush and put.slave.status is not None:\n",
        "classic tells a put that waits for both that its flush has failed (HA-G-46)",
        "replicas",
    ),
    Fault(
        "level-replica-is-passed-over",
        "ha/service.py",
        "        if before <= self.push2_slave_max_offset < acked_offset:\n",
        "        if before < self.push2_slave_max_offset < acked_offset:\n",
        "a replica that stood exactly at push2_slave_max_offset moves it no more (HA-G-30)",
        "replicas",
    ),
    Fault(
        "last-connection-speaks",
        "ha/service.py",
        "acked[other.replica] = max(acked_offset, acked.get(other.replica, 0))",
        "acked[other.replica] = acked_offset",
        "after a close, a replica with two connections counts by the last of them, not by the greater (HA-G-31)",
        "replicas",
    ),
    Fault(
        "one-replica-more",
        "ha/service.py",
        "            return len(self._acked) >= self.replicas\n",
        "            return len(self._acked) > self.replicas\n",
        "a put that needs two replicas does not wait when exactly two count (HA-G-32)",
        "replicas",
    ),
    Fault(
        "lost-slave-is-found",
        "ha/service.py",
        "        if conn is self._slave:\n",
        "        if conn is self._slave and self.replicas > 1:\n",
        "a put waits for a slave that is gone, since somebody has remembered it (HA-G-3, HA-G-5)",
        "replicas",
    ),
    Fault(
        "six-waits",
        "ha/five_waits.py",
        "and self.waits < GROUP_TRANSFER_WAITS:",
        "and self.waits <= GROUP_TRANSFER_WAITS:",
        "classic's service waits six times for a request (HA-G-13)",
        "replicas",
    ),
    Fault(
        "shutdown-finds-all-late",
        "ha/puts.py",
        "        self.on_turn(now_ms)\n        while self._flushing:",
        "        while self._flushing:",
        "a master that shuts down flushes for the puts that wait, and tells them that the disk was late (HA-G-45)",
        "replicas",
    ),
    Fault(
        "held-pull-wakes-at-once",
        "broker/pull_hold.py",
        "        self.looked_up_to = max(self.pull_from_this_offset, self.seen_up_to)\n",
        "        self.looked_up_to = self.pull_from_this_offset\n",
        "a slave without its master holds a pull from before its queue, and wakes it for messages that were there (HA-R-57)",
        "reads",
    ),
    Fault(
        "other-tags-end-no-hold",
        "broker/pull_hold.py",
        "pull.pull_from_this_offset < max_offset or now_ms >= pull.deadline_ms",
        "pull.looked_up_to < max_offset or now_ms >= pull.deadline_ms",
        "the look every 5 s does not count messages of other tags (HA-P-18)",
        "reads",
    ),
    Fault(
        "hold-ends-late",
        "broker/pull_hold.py",
        "or now_ms >= pull.deadline_ms]",
        "or now_ms > pull.deadline_ms]",
        "a pull whose time is over exactly at a look is held for 5 s more (HA-P-18)",
        "reads",
    ),
    Fault(
        "tags-of-the-gone-count",
        "broker/pull_hold.py",
        "            self._tag_count -= pull.tag_count\n",
        "            self._tag_count -= pull.tag_count if pull.channel in self._of_channel else 0\n",
        "the tags of a connection's last parked pull count after it was answered (HA-P-22)",
        "reads",
    ),
    Fault(
        "first-answer-ends-all-waiting",
        "broker/pull_hold.py",
        "            if pull.key not in self._table:\n",
        "            if pull.key not in self._table or self.count < 3:\n",
        "the first pull of a queue that is answered ends the waiting of the others: they hear of no message (HA-P-17)",
        "reads",
    ),
    Fault(
        "slave-sends-back",
        "broker/pull.py",
        "        if not self._settings.corrects_offsets and status not in _LOOKED:\n",
        "        if not self._settings.corrects_offsets:\n",
        "a slave sends every consumer back to where it came from (HA-R-31)",
        "reads",
    ),
    Fault(
        "slave-with-master-holds",
        "broker/pull.py",
        "            return not (self._settings.corrects_offsets or self._is_connected_to_master())\n",
        "            return not self._settings.corrects_offsets\n",
        "a slave holds a pull that its master, which is there, could answer (HA-R-31, HA-R-57)",
        "reads",
    ),
    Fault(
        "held-by-the-heartbeat",
        "broker/pull.py",
        "        checked = self._check(pull, codes_of_request)\n",
        "        checked = self._check(pull._replace(sys_flag=0), codes_of_request)\n",
        "a pull that was parked is answered by the subscription of the heartbeat, not by its own (HA-P-19)",
        "reads",
    ),
    Fault(
        "what-did-not-fit-is-skipped",
        "store/pull.py",
        "                looked -= 1\n",
        "                looked -= count == most_on_disk\n",
        "an entry that did not fit into the batch counts as looked at (HA-P-8)",
        "reads",
    ),
    Fault(
        "on-disk-at-the-bound",
        "store/pull.py",
        "            if offset >= in_memory_from:\n",
        "            if offset > in_memory_from:\n",
        "a message that is exactly as far back as the memory bound counts as on disk (HA-P-10)",
        "reads",
    ),
    Fault(
        "late-close-takes-the-new",
        "namesrv/route_info_manager.py",
        "        addrs.discard(addr)\n",
        "        addrs.discard(addr if len(addrs) > 1 else None)\n",
        "a broker that has come by a new connection is taken off when its old one closes (HA-R-41)",
        "routes",
    ),
    Fault(
        "taken-off-early",
        "namesrv/route_info_manager.py",
        "if now_ms - live.last_update_ms > live.timeout_ms]",
        "if now_ms - live.last_update_ms >= live.timeout_ms]",
        "a broker is off the routes when its time has been reached, not when it has passed (HA-R-17)",
        "routes",
    ),
    Fault(
        "version-of-another-id",
        "namesrv/route_info_manager.py",
        "            or (before.broker_name, before.broker_id, before.data_version) != (name, broker_id, version)\n",
        "            or before.data_version != version\n",
        "the topics of a broker that has another id by now do not count, as its version is known (HA-R-36)",
        "routes",
    ),
    Fault(
        "least-of-equals",
        "namesrv/route_info_manager.py",
        "min(others, default=broker_id) < broker_id",
        "min(others, default=broker_id + 1) <= broker_id",
        "a slave that takes the place of another with its id brings no topics (HA-R-35)",
        "routes",
    ),
    Fault(
        "old-master-stays-elsewhere",
        "namesrv/route_info_manager.py",
        "                if before is not None:\n                    self._remove_broker",
        "                if before is not None and before.broker_name == name:\n                    self._remove_broker",
        "a master of an older term stays listed in the group that it was in before (HA-R-39)",
        "routes",
    ),
    Fault(
        "writable-ones-count",
        "namesrv/route_info_manager.py",
        "                count += 1\n",
        "                count += old.perm & kept | added != old.perm\n",
        "a wipe counts the topics that it changes, and not those of the group (HA-R-51)",
        "routes",
    ),
    Fault(
        "texts-before-the-disk",
        "namesrv/kv_config.py",
        "        _replace(self._path, data)\n        self._table = table\n",
        "        self._table = table\n        _replace(self._path, data)\n",
        "a text that the disk has refused is answered all the same until the next start (HA-R-53)",
        "routes",
    ),
    Fault(
        "impatient-after-a-pause",
        "namesrv/name_server.py",
        "may_expire = self._pauses.may_expire(now_ms)",
        "may_expire = True",
        "a name server that was paused takes the brokers off whose signs of life it has not read yet (HA-T-21)",
        "routes",
    ),
    Fault(
        "change-forgotten-while-asked",
        "broker/registration.py",
        "        self._has_due |= server.is_due\n",
        "        server.is_due &= isinstance(answer, RequestFailed)\n        self._has_due |= server.is_due\n",
        "a topic that was made while a registration had no answer is on no route until the next period (HA-SE-41)",
        "routes",
    ),
    Fault(
        "last-told-changes-untold",
        "broker/change_log.py",
        "        if live.get(name, 0) > self._told:\n",
        "        if name in live and live[name] >= self._told:\n",
        "a change of the entry that a slave was told last is never told (HA-MD-28)",
        "metadata",
    ),
    Fault(
        "stays-in-the-copy",
        "broker/slave_tables.py",
        "                gone |= self._names_of_master(name) - seen\n",
        '                gone |= self._names_of_master(name) - seen if name == "offsets" else set()\n',
        "a slave keeps the entries that a table told from its begin does not have (HA-MD-28)",
        "metadata",
    ),
    Fault(
        "numbers-of-any-life",
        "broker/metadata_changes.py",
        "if question.life == self.life else",
        "if question.life else",
        "a master takes the numbers of its former life for its own (HA-MD-28)",
        "metadata",
    ),
    Fault(
        "of-the-master-before",
        "broker/slave_tables.py",
        'entries.\n        """\n        self._begin_life("")\n',
        'entries.\n        """\n',
        "a slave keeps the numbers of a master that tells changes while it takes whole tables of another (HA-MD-30)",
        "metadata",
    ),
    Fault(
        "late-answer-counts",
        "broker/slave_synchronize.py",
        "            self._number += 1\n            self._next_ms",
        "            self._next_ms",
        "an answer of the master that a slave followed before is taken (HA-MD-31)",
        "metadata",
    ),
    Fault(
        "greater-stays",
        "broker/master_offsets.py",
        "elif before is None or now >= before:",
        "else:",
        "an offset stays on the slave after it was reset on the master (HA-MD-32)",
        "metadata",
    ),
    Fault(
        "commit-beyond-the-queue",
        "broker/metadata_changes.py",
        "told < offset <= self._queues.max_offset_in_queue(topic, queue_id):",
        "told < offset:",
        "a master takes an offset of its slave's consumer that its own queue has not reached (HA-MD-33)",
        "metadata",
    ),
    Fault(
        "latest-progress-waits",
        "broker/slave_delays.py",
        "        if self._waiting is None:\n            self._waiting",
        "        if True:\n            self._waiting",
        "a slave under steady load never gets to use its master's delay progress (HA-MD-36)",
        "metadata",
    ),
    Fault(
        "removed-offsets-untold",
        "broker/consumer_offsets.py",
        "            self._has_changed = True\n            self.changes.removed(key)\n",
        "            self._has_changed = True\n",
        "the offsets of a group that was deleted stay on the slave (HA-MD-28)",
        "metadata",
    ),
    Fault(
        "flushed-without-a-sync",
        "store/log/mapped_file.py",
        "                _sync_data(fd)\n                self._check_found(os.fstat(fd))\n",
        "                self._check_found(os.fstat(fd))\n",
        "bytes of the log count as flushed though nothing has brought them to the disk (HA-ST-28)",
        "store",
    ),
    Fault(
        "name-of-a-new-file-is-not-synced",
        "store/log/mapped_file_queue.py",
        "        self._unsynced_levels = max(1, self._unsynced_levels)\n",
        "",
        "a power cut takes a file with all that was flushed into it (HA-ST-28)",
        "store",
    ),
    Fault(
        "checkpoint-of-a-part",
        "store/housekeeping.py",
        "        if flushed_offset >= end:\n",
        "        if flushed_offset > 0:\n",
        "the checkpoint's first time moves when a part of the log is on the disk (HA-ST-24)",
        "store",
    ),
    Fault(
        "queues-are-not-flushed",
        "store/housekeeping.py",
        "        self.queues.flush(least_pages)\n",
        "",
        "the checkpoint's second time moves though no queue is on the disk (HA-ST-24)",
        "store",
    ),
    Fault(
        "every-stop-is-clean",
        "store/message_store.py",
        "            if self.dispatcher.reput_from_offset >= self.log.max_offset:\n",
        "            if True:\n",
        "`abort` goes though the last messages are in no queue (HA-ST-23)",
        "store",
    ),
    Fault(
        "two-files-before-the-end",
        "store/log/checkpoint_hint.py",
        "CLEAN_STOP_FILES: Final = 3",
        "CLEAN_STOP_FILES: Final = 2",
        "recovery after a clean stop begins one file too late (HA-ST-18)",
        "store",
    ),
    Fault(
        "later-of-both-times",
        "store/log/checkpoint.py",
        "max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY_MS)",
        "max(0, max(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY_MS)",
        "recovery begins where the log was on the disk and its queues were not (HA-ST-19)",
        "store",
    ),
    Fault(
        "tail-stays",
        "store/log/opening.py",
        "clear=clear_tail and bool(found.cut_size)",
        "clear=False",
        "what recovery cuts off stays in the file (HA-ST-7)",
        "store",
    ),
    Fault(
        "zeros-are-not-synced",
        "store/log/mapped_file_queue.py",
        "                if clear and last.clear(last.wrote_position) and sync:\n                    last.sync()\n",
        "                if clear:\n                    last.clear(last.wrote_position)\n",
        "what recovery cut off comes back after the next power cut (HA-ST-7)",
        "store",
    ),
    Fault(
        "only-the-last-file-stays",
        "store/log/commit_log.py",
        "        return files[-2].base\n",
        "        return last.base\n",
        "the file with the last whole record is deleted, while the last file has none (HA-ST-62)",
        "store",
    ),
    Fault(
        "what-a-file-frees-is-not-counted",
        "store/retention.py",
        "        disk = Disk(max(0, disk.used_size - file_size), disk.available_size + file_size)\n",
        "",
        "a disk that is too full costs ten files, where one was enough (HA-ST-64)",
        "store",
    ),
    Fault(
        "time-steps-back",
        "store/log/log_writer.py",
        "                else:\n                    time_ms = self._last_stored_ms\n",
        "",
        "a put gets an earlier time than the put before it, and the checkpoint seems to vouch for it (HA-ST-24)",
        "store",
    ),
    Fault(
        "a-record-fills-the-file",
        "store/log/log_writer.py",
        "or size + END_FILE_MIN_BLANK_SIZE > file.size - file.wrote_position:",
        "or size > file.size - file.wrote_position:",
        "a record takes the room that a BLANK needs (HA-ST-3)",
        "store",
    ),
    Fault(
        "refused-for-ever",
        "store/message_store.py",
        "        self.log.refuse(None if full is None else lambda:",
        "        full is None or self.log.refuse(lambda:",
        "puts are refused after the disk has room again (HA-ST-67)",
        "store",
    ),
    Fault(
        "oneway-takes-room",
        "remoting/channel.py",
        "        if not request.is_oneway:\n            self.pending[",
        "        if True:\n            self.pending[",
        "a oneway request counts as one without an answer for ever (HA-RM-23)",
        "remoting",
    ),
    Fault(
        "same-opaque-once",
        "remoting/channel.py",
        "        if count == 1:\n            del",
        "        if True:\n            del",
        "of two requests with one opaque only the first answer is sent (HA-RM-12)",
        "remoting",
    ),
    Fault(
        "room-lost-with-a-client",
        "remoting/channel.py",
        "        self._totals.pending -= self._pending\n",
        "",
        "the requests of a connection that has ended take room for ever (HA-RM-23)",
        "remoting",
    ),
    Fault(
        "unfinished-for-ever",
        "remoting/channel.py",
        "        self._totals.unfinished -= self._reader.buffered\n",
        "",
        "the unfinished frame of a connection that has ended counts for ever (HA-RM-26)",
        "remoting",
    ),
    Fault(
        "stalled-since-the-first-look",
        "remoting/channel.py",
        "        self.active_ms, self._stalled_ms = now_ms, None\n",
        "        self.active_ms = now_ms\n",
        "a client that takes its answers slowly is closed as one that takes none (HA-RM-24)",
        "remoting",
    ),
    Fault(
        "age-of-the-frame-before",
        "remoting/channel.py",
        "        if frames or not before:\n",
        "        if not before:\n",
        "a frame that has begun behind another is as old as that one (HA-RM-25)",
        "remoting",
    ),
    Fault(
        "broken-before-its-frames",
        "remoting/dispatch.py",
        "        if not frames and channel.error is not None:\n",
        "        if channel.error is not None:\n",
        "a connection is closed for what follows frames that wait, and these are not served (HA-RM-18)",
        "remoting",
    ),
    Fault(
        "late-a-millisecond-later",
        "remoting/waiting_answers.py",
        "if now_ms >= deadline_ms]",
        "if now_ms > deadline_ms]",
        "a request of ours is given up after its deadline, and not at it (HA-RM-16)",
        "remoting",
    ),
    Fault(
        "answers-in-json",
        "remoting/command.py",
        "        body=body,\n        serialize_type=request.serialize_type,\n        buffers=buffers,",
        "        body=body,\n        buffers=buffers,",
        "an answer is written as JSON, whatever its request was written in (HA-RM-8)",
        "remoting",
    ),
    Fault(
        "digits-of-any-script",
        "remoting/fields.py",
        " and value.isdecimal() and value.isascii():",
        " and value.isdecimal():",
        "a number in digits of another script than ours is read (HA-RM-14)",
        "remoting",
    ),
)


def find(name: str) -> Fault:
    for fault in FAULTS:
        if fault.name == name:
            return fault
    names = [fault.name for fault in FAULTS]
    near = did_you_mean(name, names)
    raise FuzzError(f"fault {name!r}: there is none of that name.{near or ' Expected one of ' + ', '.join(names)}")


def plant(fault: Fault, directory: Path) -> Path:
    """Copy the implementation and plant the fault.

    Returns: the directory to put first on the import path of the process.
    """
    source = Path(rocketmq_ha.impl.__file__).parent
    root = directory / fault.name
    shutil.rmtree(root, ignore_errors=True)
    copy = root / "rocketmq_ha" / "impl"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / fault.file
    text = file.read_text(encoding="utf-8")
    assert text.count(fault.old) == 1, f"{fault.name}: its text stands {text.count(fault.old)} times in {fault.file}"
    file.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    return root


def run_with(fault: Fault, directory: Path, arguments: Sequence[str]) -> int:
    """Run `python -m rocketmq_ha.fuzz` with `arguments` on a faulty copy. Returns: its exit status."""
    root = plant(fault, directory)
    paths = [str(root.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "rocketmq_ha.fuzz", *arguments]
    try:
        return subprocess.run(command, env=environment, timeout=RUN_SECONDS, check=False).returncode
    except subprocess.TimeoutExpired as error:
        raise FuzzError(f"{fault.name}: {' '.join(arguments)} has not ended within {RUN_SECONDS:g} s") from error
