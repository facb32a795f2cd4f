"""The bodies of a name server's answers, as what their JSON stands for.

Spec: HA-R-50 "MUST answer the codes of the table as it says".
"""

from collections.abc import Iterable, Mapping
from typing import Final

from rocketmq_ha.reference.route_table import QueueData, Route, RouteTable, addrs_of, groups

Json = Mapping[str, object]
FILTER_SERVERS: Final[Json] = {}  # since 4.3.0


def _queue_data(group: str, queue: QueueData) -> Json:
    return {
        "brokerName": group,
        "readQueueNums": queue.read_queue_nums,
        "writeQueueNums": queue.write_queue_nums,
        "perm": queue.perm,
        "topicSysFlag": queue.topic_sys_flag,
    }


def _broker_data(group: str, cluster: str, addrs: Mapping[int, str]) -> Json:
    return {"brokerName": group, "cluster": cluster, "brokerAddrs": {str(key): addr for key, addr in addrs.items()}}


def topic_route(route: Route, order_topic_conf: str | None = None) -> Json:
    """Code 105. The order of the groups means nothing: here it is that of their names.

    Spec: HA-R-49 "MUST be JSON with queueDatas, brokerDatas and filterServerTable, all its keys in quotes".
    """
    body: dict[str, object] = {
        "queueDatas": [_queue_data(group, route.queue_datas[group]) for group in sorted(route.queue_datas)],
        "brokerDatas": [_broker_data(group, *route.broker_datas[group]) for group in sorted(route.broker_datas)],
        "filterServerTable": FILTER_SERVERS,
    }
    if order_topic_conf is not None:
        body["orderTopicConf"] = order_topic_conf
    return body


def cluster_info(table: RouteTable) -> Json:
    """Code 106. The order of the names means nothing."""
    clusters = {cluster for cluster, _ in table.clusters}
    return {
        "brokerAddrTable": {name: _broker_data(name, cluster, addrs) for name, (cluster, addrs) in groups(table).items()},
        "clusterAddrTable": {cluster: sorted(name for of, name in table.clusters if of == cluster) for cluster in clusters},
    }


def topic_list(topics: Iterable[str], broker_addr: str | None = None) -> Json:
    """Codes 206, 224, 304 and 311 to 313. The order of the topics means nothing."""
    body: dict[str, object] = {"topicList": sorted(topics)}
    return body if broker_addr is None else {**body, "brokerAddr": broker_addr}


def member_group(table: RouteTable, cluster: str, broker_name: str) -> Json:
    """Code 901."""
    return {"brokerMemberGroup": _broker_data(broker_name, cluster, addrs_of(table, broker_name))}
