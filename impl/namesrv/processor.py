"""The requests that a name server answers: one method for each code, and the table of all of them.

A handler raises RequestInvalid for a request that cannot be served; the server answers it.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final

import msgspec

from rocketmq_ha.impl.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfigManager
from rocketmq_ha.impl.namesrv.registration import read_registration, short
from rocketmq_ha.impl.namesrv.route_data import BrokerData, DataVersion, QueueData, to_json
from rocketmq_ha.impl.namesrv.route_info_manager import FLAG_UNIT, FLAG_UNIT_SUB, RouteInfoManager
from rocketmq_ha.impl.remoting import body_json, fields
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to

_SHOWN: Final = 200  # characters of a name in a remark
Handler = Callable[[Hashable, RemotingCommand, int], RemotingCommand]


class _TopicRoute(msgspec.Struct, rename="camel"):
    """The body of code 217."""

    queue_datas: list[QueueData] | None = None


class DefaultRequestProcessor:
    """The handlers of a name server: `handler(channel, request, now_ms)` returns the answer. No I/O but that of `kv_config`.

    Args:  settings: the name server's configuration, by RocketMQ's names (code 319), but for orderMessageEnable.
           order_message_enable: whether a route gives the queues of an ordered topic (HA-R-49).
    """

    def __init__(
        self,
        routes: RouteInfoManager,
        kv_config: KVConfigManager,
        settings: Mapping[str, str],
        *,
        order_message_enable: bool = False,
    ) -> None:
        self._routes, self._kv_config, self._settings = routes, kv_config, settings
        self._order_message_enable = order_message_enable

    def set_order_message_enable(self, order_message_enable: bool) -> None:
        """Change the setting, for the requests from now on."""
        self._order_message_enable = order_message_enable

    def handlers(self) -> dict[int, Handler]:
        """Return the table from code to handler.

        Spec: HA-R-50 "MUST answer the codes of the table as it says"; HA-R-51 "MUST carry out the codes of the table as it
        says".
        """
        of_brokers: dict[int, Handler] = {
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self.query_broker_topic_config,
            RequestCode.BROKER_HEARTBEAT: self.broker_heartbeat,
        }
        others: dict[int, Callable[[RemotingCommand], RemotingCommand]] = {
            RequestCode.PUT_KV_CONFIG: self.put_kv_config,
            RequestCode.GET_KV_CONFIG: self.get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_list_by_namespace,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route_info_by_topic,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_broker_cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.get_broker_member_group,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topic_list,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topic_list,
            RequestCode.GET_UNIT_TOPIC_LIST: self.get_unit_topic_list,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_has_unit_sub_topic_list,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_has_unit_sub_ununit_topic_list,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm_of_broker,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm_of_broker,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic_in_namesrv,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
        }
        return {**of_brokers, **{code: _of_request(answer) for code, answer in others.items()}}

    # --- Texts -------------------------------------------------------------------------------------------------------

    def put_kv_config(self, request: RemotingCommand) -> RemotingCommand:
        namespace, key = short(fields.text(request, "namespace"), "namespace"), short(fields.text(request, "key"), "key")
        return self._change(request, lambda: self._kv_config.put_kv_config(namespace, key, fields.text(request, "value")))

    def get_kv_config(self, request: RemotingCommand) -> RemotingCommand:
        namespace, key = fields.text(request, "namespace"), fields.text(request, "key")
        value = self._kv_config.get_kv_config(namespace, key)
        if value is None:
            return response_to(
                request, ResponseCode.QUERY_NOT_FOUND, f"the namespace {shown(namespace)} has no key {shown(key)}"
            )
        return response_to(request, ext_fields={"value": value})

    def delete_kv_config(self, request: RemotingCommand) -> RemotingCommand:
        namespace, key = fields.text(request, "namespace"), fields.text(request, "key")
        return self._change(request, lambda: self._kv_config.delete_kv_config(namespace, key))

    def _change(self, request: RemotingCommand, change: Callable[[], None]) -> RemotingCommand:
        """HA-R-53 "a change that cannot be written MUST be refused with SYSTEM_ERROR, and take no effect"."""
        try:
            change()
        except OSError as error:
            return response_to(request, ResponseCode.SYSTEM_ERROR, f"{error.filename}: {error.strerror}: nothing was changed")
        return response_to(request)

    def get_kv_list_by_namespace(self, request: RemotingCommand) -> RemotingCommand:
        namespace = fields.text(request, "namespace")
        table = self._kv_config.get_kv_list_by_namespace(namespace)
        if table is None:
            return response_to(
                request, ResponseCode.QUERY_NOT_FOUND, f"nothing was ever kept in the namespace {shown(namespace)}"
            )
        return response_to(request, body=to_json({"table": table}))

    # --- Registrations -----------------------------------------------------------------------------------------------

    def register_broker(self, channel: Hashable, request: RemotingCommand, now_ms: int) -> RemotingCommand:
        """HA-R-45 "SHOULD have the table of the namespace ORDER_TOPIC_CONFIG (HA-R-52) as its body"; HA-R-10."""
        result = self._routes.register_broker(read_registration(request, self._routes.limits.queue_datas), channel, now_ms)
        table = self._kv_config.get_kv_list_by_namespace(ORDER_TOPIC_CONFIG)
        addresses = {"haServerAddr": result.ha_server_addr, "masterAddr": result.master_addr}
        return response_to(
            request,
            ext_fields={name: address for name, address in addresses.items() if address is not None},
            body=b"" if table is None else to_json({"table": table}),
        )

    def unregister_broker(self, _channel: Hashable, request: RemotingCommand, now_ms: int) -> RemotingCommand:
        fields.text(request, "clusterName")
        fields.i64(request, "brokerId")
        self._routes.unregister_broker(fields.text(request, "brokerName"), fields.text(request, "brokerAddr"), now_ms)
        return response_to(request)

    def query_broker_topic_config(self, _channel: Hashable, request: RemotingCommand, now_ms: int) -> RemotingCommand:
        """HA-R-46 "and have the latter as its body"."""
        data_version: DataVersion = body_json.read_as(request.body, DataVersion)
        changed, known = self._routes.query_broker_topic_config(fields.text(request, "brokerAddr"), data_version, now_ms)
        body = b"" if known is None else to_json(known)
        return response_to(request, ext_fields={"changed": "true" if changed else "false"}, body=body)

    def broker_heartbeat(self, _channel: Hashable, request: RemotingCommand, now_ms: int) -> RemotingCommand:
        self._routes.update_broker_info_update_timestamp(fields.text(request, "brokerAddr"), now_ms)
        return response_to(request)

    # --- Questions ---------------------------------------------------------------------------------------------------

    def get_route_info_by_topic(self, request: RemotingCommand) -> RemotingCommand:
        """HA-R-49 "MUST be JSON with queueDatas, brokerDatas and filterServerTable"."""
        topic = fields.text(request, "topic")
        route = self._routes.pickup_topic_route_data(topic)
        if route is None:
            return response_to(request, ResponseCode.TOPIC_NOT_EXIST, f"no broker has the topic {shown(topic)}")
        if self._order_message_enable:
            order_topic_conf = self._kv_config.get_kv_config(ORDER_TOPIC_CONFIG, topic)
            route = msgspec.structs.replace(route, order_topic_conf=order_topic_conf)
        return response_to(request, body=to_json(route))

    def get_broker_cluster_info(self, request: RemotingCommand) -> RemotingCommand:
        clusters = {cluster: sorted(names) for cluster, names in self._routes.cluster_addr_table.items()}
        body = to_json({"brokerAddrTable": self._routes.broker_addr_table, "clusterAddrTable": clusters})
        return response_to(request, body=body)

    def get_broker_member_group(self, request: RemotingCommand) -> RemotingCommand:
        name, cluster = fields.text(request, "brokerName"), fields.text(request, "clusterName")
        group = self._routes.broker_addr_table.get(name)
        member_group = BrokerData(cluster, name, group.broker_addrs if group else {})
        return response_to(request, body=to_json({"brokerMemberGroup": member_group}))

    def get_all_topic_list(self, request: RemotingCommand) -> RemotingCommand:
        return _topic_list(request, self._routes.get_all_topic_list())

    def get_topics_by_cluster(self, request: RemotingCommand) -> RemotingCommand:
        return _topic_list(request, self._routes.get_topics_by_cluster(fields.text(request, "cluster")))

    def get_system_topic_list(self, request: RemotingCommand) -> RemotingCommand:
        live = self._routes.broker_live_table
        return _topic_list(request, self._routes.get_system_topic_list(), min(live) if live else None)

    def get_unit_topic_list(self, request: RemotingCommand) -> RemotingCommand:
        return _topic_list(request, self._routes.get_unit_topics(FLAG_UNIT))

    def get_has_unit_sub_topic_list(self, request: RemotingCommand) -> RemotingCommand:
        return _topic_list(request, self._routes.get_unit_topics(FLAG_UNIT_SUB))

    def get_has_unit_sub_ununit_topic_list(self, request: RemotingCommand) -> RemotingCommand:
        return _topic_list(request, self._routes.get_unit_topics(FLAG_UNIT_SUB, unwanted=FLAG_UNIT))

    # --- Changes -----------------------------------------------------------------------------------------------------

    def wipe_write_perm_of_broker(self, request: RemotingCommand) -> RemotingCommand:
        count = self._routes.wipe_write_perm_of_broker(fields.text(request, "brokerName"))
        return response_to(request, ext_fields={"wipeTopicCount": str(count)})

    def add_write_perm_of_broker(self, request: RemotingCommand) -> RemotingCommand:
        count = self._routes.add_write_perm_of_broker(fields.text(request, "brokerName"))
        return response_to(request, ext_fields={"addTopicCount": str(count)})

    def delete_topic_in_namesrv(self, request: RemotingCommand) -> RemotingCommand:
        self._routes.delete_topic(fields.text(request, "topic"), fields.optional_text(request, "clusterName") or None)
        return response_to(request)

    def register_topic(self, request: RemotingCommand) -> RemotingCommand:
        topic = short(fields.text(request, "topic"), "topic")
        route: _TopicRoute = body_json.read_as(request.body, _TopicRoute)
        self._routes.register_topic(topic, route.queue_datas or ())
        return response_to(request)

    def update_config(self, request: RemotingCommand) -> RemotingCommand:
        """HA-R-54 "MUST refuse code 318, which changes its configuration, with NO_PERMISSION (16)"."""
        return response_to(request, ResponseCode.NO_PERMISSION, "the configuration is not changed by the network")

    def get_config(self, request: RemotingCommand) -> RemotingCommand:
        """HA-R-55 "MUST be the configuration as text, a line key=value for each setting"."""
        settings = {**self._settings, "orderMessageEnable": str(self._order_message_enable).lower()}
        lines = (f"{key}={value}\n" for key, value in settings.items())
        return response_to(request, body="".join(lines).encode("utf-8"))


def shown(name: str) -> str:
    """A name for a remark: in one line, and not longer than a line."""
    return " ".join(name[:_SHOWN].split())


def _of_request(answer: Callable[[RemotingCommand], RemotingCommand]) -> Handler:
    """A handler whose answer depends neither on the connection nor on the time."""
    return lambda _channel, request, _now_ms: answer(request)


def _topic_list(request: RemotingCommand, topics: Iterable[str], broker_addr: str | None = None) -> RemotingCommand:
    """The answer with RocketMQ's TopicList; without an address it has no field for one."""
    answer: dict[str, object] = {"topicList": sorted(topics)}
    if broker_addr is not None:
        answer["brokerAddr"] = broker_addr
    return response_to(request, body=to_json(answer))
