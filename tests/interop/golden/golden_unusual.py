"""Make the second, small store of a release: what the first one has not, and the HA link between two brokers, byte for byte."""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from golden_cluster import BROKER_NAME, COMMON_CONF, Cluster, Ports
from golden_wire import LinkRecorder, Proxy, Transcript

PACKAGE = "org.apache.rocketmq"
TOPICS = "Unusual"
SYNC_FILES = {21: "topics.json", 43: "consumerOffset.json", 45: "delayOffset.json", 201: "subscriptionGroup.json"}
CONF: dict[str, str] = COMMON_CONF | {
    "mappedFileSizeCommitLog": str(1 << 16),
    "mappedFileSizeConsumeQueue": str(30 * 20),
    "maxHashSlotNum": "50",
    "maxIndexNum": "60",
    "haSendHeartbeatInterval": "1000",
    "transactionCheckInterval": "3600000",
}


def conf_of(name: str, ports: Ports, work: Path) -> dict[str, str]:
    """The settings of "hosts", which is the master with an address of IPv6, of "master" or of "slave"."""
    is_slave = name == "slave"
    store = work / f"store-{'slave' if is_slave else 'master'}"
    ip = "::1" if name == "hosts" else "127.0.0.1"
    return CONF | {
        "brokerIP1": ip,
        "brokerIP2": ip,
        "brokerRole": "SLAVE" if is_slave else "ASYNC_MASTER",
        "brokerId": "1" if is_slave else "0",
        "listenPort": str(ports.slave if is_slave else ports.master),
        "namesrvAddr": f"127.0.0.1:{ports.namesrv_for('slave' if is_slave else 'master')}",
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
    }


class Run:
    """A name server, a master that is started twice, a slave that comes late and is started twice, and who asks them."""

    def __init__(self, cluster: Cluster, ports: Ports, seed: int) -> None:
        self.cluster, self.ports, self.seed = cluster, ports, seed
        self.transcript = Transcript()
        base = ports.base
        shown = {who: f"127.0.0.1:{ports.master_for(who)}" for who in ("slave", "client")}
        master, ha = f"127.0.0.1:{ports.master}", f"127.0.0.1:{ports.master + 1}"
        self.link = LinkRecorder(base + 350, ports.master + 1)
        self.proxies: list[Proxy | LinkRecorder] = [self.link]
        for who in ("master", "slave", "client"):
            hide = [(master, shown[who])] if who in shown else []
            if who == "slave":
                hide.append((ha, f"127.0.0.1:{base + 350}"))
            self._proxy(who, "namesrv", ports.namesrv_for(who), ports.namesrv, hide=hide)
        for who in shown:
            for vip, kind in ((0, "plain"), (2, "vip")):
                self._proxy(who, "master", ports.master_for(who) - vip, ports.master - vip, kind=kind)
        self._proxy("script", "master", base + 450, ports.master)
        self._proxy("script", "master", base + 460, ports.master, host="::1")
        self._proxy("script", "slave", base + 470, ports.slave)
        self.namesrv, self.broker = f"127.0.0.1:{ports.namesrv_for('client')}", shown["client"]
        self.abort: dict[str, object] = {}
        self.slave_config: list[dict[str, object]] = []

    def _proxy(self, who: str, to: str, port: int, target: int, **more: Any) -> None:
        self.proxies.append(Proxy(self.transcript, who, to, port=port, target=target, **more))

    def start(self, name: str, server: str) -> None:
        self.cluster.start(name, f"{PACKAGE}.broker.BrokerStartup", conf_of(server, self.ports, self.cluster.work), 120)

    def script(self, part: str) -> None:
        script, v6, slave = (f"127.0.0.1:{self.ports.base + more}" for more in (450, 460, 470))
        args = (part, self.namesrv, script, v6, slave, BROKER_NAME, str(self.seed))
        self.cluster.run(f"unusual-{part}", "golden.Unusual", *args, timeout_s=240)

    def see_abort(self, when: str) -> None:
        for name in ("master", "slave"):
            file = self.cluster.work / f"store-{name}/abort"
            self.abort[f"{name}, {when}"] = file.stat().st_size if file.exists() else None

    def see_slave_config(self) -> None:
        """Keep the slave's tables, each with the last answer that it was given: at its next start it changes them."""
        for code, name in SYNC_FILES.items():
            answers = [
                e.response for e in self.transcript.exchanges if e.who == "slave" and e.header["code"] == code and e.response
            ]
            text = (self.cluster.work / f"store-slave/config/{name}").read_text(encoding="utf-8")
            last = base64.b64encode(answers[-1]).decode()
            self.slave_config.append({"code": code, "name": name, "text": text, "answer": last})

    def go(self) -> None:
        cluster = self.cluster
        out = cluster.work / "recorded"
        out.mkdir()
        try:
            cluster.run("defaults", "golden.Defaults", str(out / "defaults.json"), timeout_s=60)
            cluster.start("namesrv", f"{PACKAGE}.namesrv.NamesrvStartup", {"listenPort": str(self.ports.namesrv)}, 120)
            self.start("hosts", "hosts")
            self.script("hosts")
            cluster.stop("hosts")
            self.see_abort("stopped once")
            self.start("master", "master")
            self.script("fill")
            self.start("slave", "slave")
            self.await_frames(1)
            self.script("ask")
            self.await_sync()  # a slave of 5.x has no topics in its first minute
            self.script("slave")
            self.see_abort("running")
            self.see_slave_config()
            cluster.stop("slave")
            self.start("slave again", "slave")
            self.await_frames(2)
            args = (self.namesrv, self.broker, BROKER_NAME, str(out), TOPICS)
            cluster.run("record", "golden.Recorder", *args, timeout_s=300)
            for name in ("slave again", "master", "namesrv"):
                cluster.stop(name)
            self.see_abort("stopped")
        finally:
            cluster.kill_all()
            for proxy in self.proxies:
                proxy.close()

    def await_frames(self, connections: int) -> None:
        """Wait until the master has sent something on so many connections: a slave's first report comes after 5 s."""
        deadline = time.monotonic() + 120
        while len({row["connection"] for row in self.link.rows if row["from"] == "master"}) < connections:
            if time.monotonic() > deadline:
                raise RuntimeError("no frame on the HA link within 120 s")
            time.sleep(0.2)

    def await_sync(self) -> None:
        """Wait until the slave has been given the last of the four tables."""
        deadline = time.monotonic() + 180
        while not any(e.who == "slave" and e.header["code"] == 201 and e.response for e in self.transcript.exchanges):
            if time.monotonic() > deadline:
                raise RuntimeError("the slave has not asked for subscription groups within 180 s")
            time.sleep(0.5)


def rows_of(transcript: Transcript) -> list[dict[str, object]]:
    """All that the script asked, and of the others what a first store keeps, with the port and the time."""
    rows = transcript.everything("script")
    kept = {row["request"] for row in transcript.selection() if row["who"] != "script"}
    for who in ("master", "slave", "client"):
        rows += [row for row in transcript.everything(who) if row["request"] in kept]
    return rows


def write(run: Run, vectors: Path, described: dict[str, Any], seed: int) -> None:
    """Write the vectors' files; the manifest's last part comes from the check."""
    from make_golden import XZ, counts, pack, read_kept, write_json

    work = run.cluster.work
    stores = {name: read_kept(work / f"store-{name}") for name in ("master", "slave")}
    summary = json.loads((work / "recorded/summary.json").read_text())
    messages = (work / "recorded/messages.jsonl").read_bytes()
    java = subprocess.run(["java", "-version"], check=True, capture_output=True, text=True, timeout=60).stderr
    confs = {
        f"{name}_conf": {key: value for key, value in conf_of(name, run.ports, work).items() if not key.startswith("storePath")}
        for name in ("hosts", "master", "slave")
    }
    manifest: dict[str, Any] = {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "made_by": "tests/interop/golden/make_golden.py --unusual",
        "seed": seed,
        "java": java.splitlines()[0],
        **described,
        "broker_version_told": summary["runtime"],
        **confs,
        "defaults": json.loads((work / "recorded/defaults.json").read_text()),
        "abort": run.abort,
        "log": {"commit_log_max_offset": summary["commit_log_max_offset"]},
        "counts": counts([json.loads(line) for line in messages.decode().splitlines()]),
        "queues": summary["queues"],
        "index_queries": summary["index_queries"],
        "files": files(stores["master"]),
        "slave_files": files(stores["slave"]),
    }
    vectors.mkdir(parents=True, exist_ok=True)
    (vectors / "store.tar.xz").write_bytes(pack(stores["master"]))
    (vectors / "slave.tar.xz").write_bytes(pack(stores["slave"]))
    (vectors / "messages.jsonl.xz").write_bytes(lzma.compress(messages, preset=XZ))
    for name, rows in (("link", run.link.rows), ("transcripts", rows_of(run.transcript)), ("slave_config", run.slave_config)):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        (vectors / f"{name}.jsonl.xz").write_bytes(lzma.compress(lines, preset=XZ))
    write_json(vectors / "manifest.json", manifest)


def files(store: dict[str, bytes]) -> dict[str, dict[str, object]]:
    return {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in store.items()}
