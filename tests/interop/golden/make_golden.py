"""Make the golden store: run the real RocketMQ, fill it, record what it says, keep it as vectors.

    python tests/interop/golden/make_golden.py

Needs a JDK (11 or newer) and Maven with access to Maven Central; no root. README.md beside this file tells the rest.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import golden_unusual
from golden_check import COMPRESSED, SCHEDULE_TOPIC, check
from golden_cluster import BROKER_NAME, Cluster, Ports, broker_conf, refuse_busy_ports
from golden_wire import Proxy, Transcript

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
XZ = lzma.PRESET_EXTREME | 9
LIMIT = 3 << 20
TOPICS = "GoldenOrders,GoldenEvents,Golden-Wide_8"
KEPT = ("commitlog/*", "consumequeue/*/*/*", "index/*", "checkpoint", "config/*.json")


def fetch_jars(build: Path, release: str, properties: list[str], *goals: str) -> None:
    """Copy the jars of a release to `build`/lib, and do Maven's other `goals`."""
    shutil.rmtree(build / "lib", ignore_errors=True)  # or the jars of two versions would stand side by side
    given = ["-P", release, f"-Dgolden.build={build}", *(f"-D{text}" for text in properties)]
    command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), *given, *goals, "dependency:copy-dependencies"]
    subprocess.run(command, check=True, timeout=900)


def jars(lib: Path) -> dict[str, dict[str, str]]:
    """Name each RocketMQ jar of the run, as the versions are not all one (pom.xml says why)."""
    found = {}
    for jar in sorted(lib.glob("rocketmq-*.jar")):
        match = re.fullmatch(r"(rocketmq-[a-z0-9-]+?)-([0-9].*)\.jar", jar.name)
        assert match is not None, jar
        found[match[1]] = {"version": match[2], "sha256": hashlib.sha256(jar.read_bytes()).hexdigest()}
    return found


def run_rocketmq(cluster: Cluster, ports: Ports, release: str, seed: int) -> Transcript:
    """Fill a master that a slave follows, record both, and stop all of it cleanly."""
    transcript = Transcript()
    master = f"127.0.0.1:{ports.master}"
    shown = {who: f"127.0.0.1:{ports.master_for(who)}" for who in ("slave", "client")}
    proxies = []
    for who in ("master", "slave", "client"):
        hide = [(master, shown[who])] if who in shown else []
        proxies.append(Proxy(transcript, who, "namesrv", port=ports.namesrv_for(who), target=ports.namesrv, hide=hide))
    for who in shown:
        for vip in (0, 2):
            port, target = ports.master_for(who) - vip, ports.master - vip
            proxies.append(Proxy(transcript, who, "master", port=port, target=target))
    namesrv, broker = f"127.0.0.1:{ports.namesrv_for('client')}", shown["client"]
    package, out = "org.apache.rocketmq", cluster.work / "recorded"
    out.mkdir()
    try:
        cluster.start("namesrv", f"{package}.namesrv.NamesrvStartup", {"listenPort": str(ports.namesrv)}, 60)
        for name in ("master", "slave"):
            cluster.start(name, f"{package}.broker.BrokerStartup", broker_conf(name, ports, cluster.work, release), 60)
        # A slave that reports 0 is sent the last file only: it must have reported before there are two.
        cluster.await_log("master", "request offset 0", 60)
        cluster.run("produce", "golden.Produce", namesrv, broker, BROKER_NAME, str(seed), timeout_s=180)
        cluster.run("consume", "golden.Consume", namesrv, timeout_s=150)
        cluster.run("record", "golden.Recorder", namesrv, broker, BROKER_NAME, str(out), TOPICS, timeout_s=300)
        for name in ("slave", "master", "namesrv"):
            cluster.stop(name)
    finally:
        cluster.kill_all()
        for proxy in proxies:
            proxy.close()
    return transcript


def read_kept(store: Path) -> dict[str, bytes]:
    assert not (store / "abort").exists(), "the stop was not clean"
    files = {path for pattern in KEPT for path in store.glob(pattern)}
    return {path.relative_to(store).as_posix(): path.read_bytes() for path in sorted(files)}


def pack(files: dict[str, bytes]) -> bytes:
    """Tar and compress with nothing of this machine in it: the same files give the same archive."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(files[name]), 0o644
            tar.addfile(member, io.BytesIO(files[name]))
    return lzma.compress(raw.getvalue(), preset=XZ)


def counts(rows: list[dict[str, Any]]) -> dict[str, object]:
    delayed = [row for row in rows if row["topic"] == SCHEDULE_TOPIC]
    return {
        "by_topic": dict(sorted(Counter(row["topic"] for row in rows).items())),
        "compressed": sum(bool(row["sys_flag"] & COMPRESSED) for row in rows),
        "by_sys_flag": {str(k): v for k, v in sorted(Counter(row["sys_flag"] for row in rows).items())},
        "delayed_by_level": {str(k): v for k, v in sorted(Counter(row["queue_id"] + 1 for row in delayed).items())},
        "by_kind_property": dict(Counter(row["properties"].get("kind", "single") for row in rows)),
        "reconsumed": sum(row["reconsume_times"] > 0 for row in rows),
        "by_via": dict(Counter(row["via"] for row in rows)),
    }


def slave_log(work: Path, end: int) -> dict[str, object]:
    """Compare the logs of master and slave as bytes, BLANKs included, up to the end that the master told."""
    logs = [
        b"".join(path.read_bytes() for path in sorted((work / f"store-{name}/commitlog").iterdir()))
        for name in ("master", "slave")
    ]
    return {"equal_to_commit_log_max_offset": len(logs[1]) >= end and logs[0][:end] == logs[1][:end]}


def shown_conf(name: str, ports: Ports, work: Path, release: str) -> dict[str, str]:
    conf = broker_conf(name, ports, work, release)
    return {key: value for key, value in conf.items() if not key.startswith("storePath")}


def write_vectors(cluster: Cluster, ports: Ports, release: str, transcript: Transcript, vectors: Path, seed: int) -> None:
    work = cluster.work
    files = read_kept(work / "store-master")
    summary = json.loads((work / "recorded/summary.json").read_text())
    messages = (work / "recorded/messages.jsonl").read_bytes()
    end = summary["commit_log_max_offset"]
    java = subprocess.run(["java", "-version"], check=True, capture_output=True, text=True, timeout=60).stderr
    manifest: dict[str, Any] = {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "made_by": "tests/interop/golden/make_golden.py",
        "seed": seed,
        "java": java.splitlines()[0],
        "jars": jars(work.parent / "maven/lib"),
        "broker_version_told": summary["runtime"],
        "master_conf": shown_conf("master", ports, work, release),
        "slave_conf": shown_conf("slave", ports, work, release),
        "log": {"commit_log_max_offset": end},
        "counts": counts([json.loads(line) for line in messages.decode().splitlines()]),
        "slave_log": slave_log(work, end),
        "queues": summary["queues"],
        "index_queries": summary["index_queries"],
        "files": {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()},
    }
    vectors.mkdir(parents=True, exist_ok=True)
    (vectors / "store.tar.xz").write_bytes(pack(files))
    (vectors / "messages.jsonl.xz").write_bytes(lzma.compress(messages, preset=XZ))
    write_json(vectors / "manifest.json", manifest)
    count(vectors)
    write_json(vectors / "transcripts.json", transcript.selection())


def count(vectors: Path) -> None:
    """Put into the manifest what the check counts; main() checks what was written in the end."""
    manifest = json.loads((vectors / "manifest.json").read_text())
    manifest["log"] |= check(vectors)
    write_json(vectors / "manifest.json", manifest)


def write_json(path: Path, value: object) -> None:
    """One line an inner row, so that a diff shows rows."""
    if isinstance(value, list):
        text = "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in value) + "\n]\n"
    else:
        assert isinstance(value, dict)
        text = "{\n" + ",\n".join(f"{json.dumps(key)}: {_inner(part)}" for key, part in value.items()) + "\n}\n"
    path.write_text(text, encoding="utf-8")


def _inner(part: object) -> str:
    dump = json.JSONEncoder(ensure_ascii=False).encode
    if isinstance(part, dict):
        return "{\n" + ",\n".join(f"  {dump(key)}: {dump(value)}" for key, value in part.items()) + "\n}"
    if isinstance(part, list):
        return "[\n" + ",\n".join(f"  {dump(row)}" for row in part) + "\n]"
    return dump(part)


def refuse_traces(vectors: Path) -> None:
    """The vectors must not tell of the machine that made them, and must stay small."""
    files = [path for path in vectors.iterdir() if path.is_file()]
    for path in files:
        data = path.read_bytes()
        for trace in (str(ROOT), str(Path.home())):
            assert trace.encode() not in data, f"{path.name} names {trace}"
    size = sum(path.stat().st_size for path in files)
    assert size <= LIMIT, f"{size} bytes of vectors; at most {LIMIT} are kept"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--release", choices=("4.9.8", "5.3.3", "5.4.0"), default="4.9.8")
    parser.add_argument("--build", type=Path, help="emptied of earlier runs (build/golden-RELEASE)")
    parser.add_argument("--vectors", type=Path, help="where to (spec/vectors/rocketmq-RELEASE)")
    parser.add_argument("--port-base", type=int, default=21000, help="ports up to base + 500 are used, on loopback")
    parser.add_argument("--seed", type=int, default=498)
    parser.add_argument("-D", dest="properties", action="append", default=[], help="a Maven property, name=value")
    parser.add_argument("--unusual", action="store_true", help="the small store of rare records instead, to .../unusual")
    args = parser.parse_args()

    started = time.monotonic()
    kind = "-unusual" if args.unusual else ""
    build: Path = (args.build or ROOT / f"build/golden-{args.release}{kind}").resolve()
    vectors: Path = args.vectors or ROOT / f"spec/vectors/rocketmq-{args.release}{kind.replace('-', '/')}"
    ports = Ports(args.port_base)
    refuse_busy_ports(ports)
    maven = build / "maven"
    fetch_jars(maven, args.release, args.properties, "compile")
    classpath = f"{maven / 'classes'}:{maven / 'lib'}/*"
    work = build / "run"
    shutil.rmtree(work, ignore_errors=True)
    cluster = Cluster(work, classpath, has_ipv6=args.unusual)
    cluster.prepare()
    if args.unusual:
        run = golden_unusual.Run(cluster, ports, args.seed)
        run.go()
        golden_unusual.write(run, vectors, {"jars": jars(maven / "lib")}, args.seed)
        count(vectors)
    else:
        transcript = run_rocketmq(cluster, ports, args.release, args.seed)
        write_vectors(cluster, ports, args.release, transcript, vectors, args.seed)
    found = check(vectors)
    refuse_traces(vectors)
    took = time.monotonic() - started
    sys.stdout.write(f"the log tiles; {found['messages']} messages; CRCs equal; {took:.0f} s; {found}\n")


if __name__ == "__main__":
    main()
