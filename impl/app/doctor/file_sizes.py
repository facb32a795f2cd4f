"""The comparison of the master's file size with that of the slave's store. Spec: HA-S-96 to HA-S-98."""

from rocketmq_ha.impl.app.doctor.findings import Findings
from rocketmq_ha.impl.app.doctor.known_quirks import parse_version
from rocketmq_ha.impl.app.doctor.probe import MasterProbe, StoreProbe
from rocketmq_ha.impl.net.broker_info import BrokerInfo
from rocketmq_ha.spec.constants import FILE_SIZE_SETTING, FILE_SIZE_SETTING_UNTIL_4_5_1

_CHECK = "file size"


def told_file_size(info: BrokerInfo) -> int | None:
    """Return the size of a broker's commit-log files, from the settings that it reports. None if they do not name it.

    A broker reports every line of its broker.conf, also those that it ignores. If both names of the setting are there, the one
    counts that its release reads.
    """
    version = parse_version(info.runtime.get("brokerVersionDesc", ""))
    names = [FILE_SIZE_SETTING, FILE_SIZE_SETTING_UNTIL_4_5_1]
    if version is not None and version < (4, 5, 2):
        names.reverse()
    told = next((info.config[name] for name in names if name in info.config), "")
    return int(told) if told.isascii() and told.isdigit() else None


def compare_file_sizes(master: MasterProbe | None, store: StoreProbe, info: BrokerInfo | None, findings: Findings) -> None:
    """Report both sizes, and what to do if they differ; or the reason why the master's is unknown.

    Args:  master: None if it could not be observed. Its broker may still have reported the size.
    """
    seen = master.file_size if master is not None else None
    told = told_file_size(info) if info is not None else None
    if told is not None and seen not in (None, told):
        text = f"the broker says files of {told:,} bytes, and the HA port shows files of {seen:,}"
        findings.finding(_CHECK, text, "is --broker the remoting address of this master?")
    theirs = told if seen is None else seen
    if theirs is not None:
        _tell(theirs, store, findings)
    elif master is None:
        return
    elif master.is_longer:
        text = f"the master has files of more than {store.file_size:,} bytes, the store has files of {store.file_size:,}"
        advice = f"{_resync(store)}; then start the slave without --file-size (a broker: with the master's {FILE_SIZE_SETTING})"
        findings.finding(_CHECK, text, advice)
    elif store.has_files and master.last_file % store.file_size:
        text = f"the master's last file begins at {master.last_file:,}; the store has files of {store.file_size:,} bytes"
        findings.finding(
            _CHECK, text, f"{_resync(store)}; then start the slave with --file-size as the master's {FILE_SIZE_SETTING}"
        )
    else:
        why = master.file_size_unseen or "it is in its first file, and --broker can ask it"
        findings.note(_CHECK, f"how large the master's files are is not seen: {why}")


def _tell(theirs: int, store: StoreProbe, findings: Findings) -> None:
    if not store.has_files:
        text = f"the master has files of {theirs:,} bytes"
        findings.note(_CHECK, f"{text}; a slave of ours learns that, a broker is told {FILE_SIZE_SETTING}={theirs}")
    elif theirs == store.file_size:
        findings.ok(_CHECK, f"both have files of {theirs:,} bytes")
    else:
        text = f"the master has files of {theirs:,} bytes, the store has files of {store.file_size:,}"
        advice = f"{_resync(store)}; then start the slave with --file-size {theirs}, or ours without it"
        if len(store.reader.files) == 1 and store.end - store.min_offset <= theirs < store.file_size:
            advice = f"a slave of ours without --file-size takes the master's size at the end of this file; else {advice}"
        findings.finding(_CHECK, text, f"{advice} (a broker: {FILE_SIZE_SETTING}={theirs})")


def _resync(store: StoreProbe) -> str:
    return f"stop the slave, `rocketmq-ha resync {store.reader.store_dir}`"
