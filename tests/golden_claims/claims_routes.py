"""Chapter 7: registrations, routes, and what a pull is answered."""

import json

import pull_outcomes
from link_specimens import Connection
from registry import claim
from remoting_specimens import Exchange, RemotingFrame
from store_specimens import Defaults, StoredRecord, number

from rocketmq_ha.reference import message, name_server_answers, registration, route_table
from rocketmq_ha.spec.release_table import value_of

SUCCESS, SYSTEM_ERROR, SYSTEM_BUSY, SERVICE_NOT_AVAILABLE = 0, 1, 2, 14
NOT_FOUND, RETRY_IMMEDIATELY, OFFSET_MOVED = 19, 20, 21
LOOKED_INTO_QUEUE = (SUCCESS, NOT_FOUND, RETRY_IMMEDIATELY, OFFSET_MOVED)
# No permission, topic not there, subscription not to be parsed, not there, not the latest, group not there, invalid parameter.
REFUSALS = (SYSTEM_ERROR, SYSTEM_BUSY, 16, 17, 23, 24, 25, 26, 29)
PUTS = (10, 310, 320)
# Words of the remark of a pull that was refused, and its code.
REFUSED = {
    "does not support consumer to filter message by SQL92": (1,),
    "is illegal, topic": (1, 29),
    "start flow control": (2,),
    "pulling message is forbidden": (16,),
    "not exist, apply first": (17,),
    "parse the consumer's subscription failed": (23,),
    "consumer's group info not exist": (24,),
    "consumer's subscription not latest": (25,),
    "subscription group [": (26,),
}

# --- Registration ----------------------------------------------------------------------------------------------------


@claim("HA-R-2", "brokerId MUST be 0", "greater than 0")
def a_masters_id_is_0_and_a_slaves_is_not(exchange: Exchange) -> bool | None:
    if not exchange.asks(103, to="namesrv"):
        return None
    return (int(exchange.request.fields["brokerId"]) == 0) == (exchange.row["who"] == "master")


@claim("HA-R-3", "with the same brokerName")
def master_and_slave_register_under_one_name(exchange: Exchange) -> bool | None:
    if not exchange.asks(103, to="namesrv"):
        return None
    fields, conf = exchange.request.fields, exchange.store.manifest["master_conf"]
    return bool((fields["brokerName"], fields["clusterName"]) == (conf["brokerName"], conf["brokerClusterName"]))


@claim("HA-R-12", "haListenPort", "HA-R-13", "brokerIP2:haListenPort")
def the_ha_address_is_broker_ip_2_and_a_port(exchange: Exchange) -> bool | None:
    """Which is the listen port and 1, where nobody has set haListenPort."""
    if not exchange.asks(103, to="namesrv"):
        return None
    manifest, fields = exchange.store.manifest, exchange.request.fields
    conf = manifest["slave_conf"] if exchange.row["who"] == "slave" else manifest["master_conf"]
    if fields["brokerAddr"].startswith("::1"):
        conf = manifest["hosts_conf"]
    return bool(fields["haServerAddr"] == f"{conf['brokerIP2']}:{int(conf['listenPort']) + 1}")


@claim("HA-R-15", "code 103", "brokerName, brokerAddr, clusterName, haServerAddr and brokerId")
def a_broker_registers_with_its_names_and_its_topics(exchange: Exchange) -> bool | None:
    if not exchange.asks(103, to="namesrv"):
        return None
    names = {"brokerName", "brokerAddr", "clusterName", "haServerAddr", "brokerId"}
    return names <= set(exchange.request.fields) and len(exchange.request.body) > 0


@claim("HA-R-10", "haServerAddr and masterAddr", "that of a master neither")
def a_slave_is_told_of_its_master_and_a_master_is_not(exchange: Exchange) -> bool | None:
    answer = exchange.answer
    if not exchange.asks(103, to="namesrv") or answer is None:
        return None
    conf = exchange.store.manifest["master_conf"]
    listen = int(conf["listenPort"])
    told = {"haServerAddr": f"{conf['brokerIP2']}:{listen + 1}", "masterAddr": f"{conf['brokerIP1']}:{listen}"}
    return bool(answer.fields == (told if exchange.row["who"] == "slave" else {}))


@claim("HA-R-14", "connect to the HA address, haServerAddr, of its master")
def a_slave_connects_to_the_address_that_it_was_told(connection: Connection) -> bool:
    """It knew the master's from the name server alone, in whose answer a recording port stood for it."""
    return bool(connection.from_slave)


@claim("HA-R-16", "registerNameServerPeriod", "30 s by default")
def a_broker_registers_every_30_s_by_default(defaults: Defaults) -> bool:
    return defaults.settings["registerNameServerPeriod"] == "30000"


@claim("HA-R-18", "code 104")
def a_broker_that_stops_takes_itself_off(exchange: Exchange) -> bool | None:
    """All were stopped cleanly."""
    if not exchange.asks(104, to="namesrv"):
        return None
    fields = exchange.request.fields
    return {"brokerName", "brokerAddr", "clusterName", "brokerId"} <= set(fields) and exchange.answer is not None


@claim("HA-R-28", "code 322")
def a_broker_asks_whether_its_topics_are_known(exchange: Exchange) -> bool | None:
    return None if not exchange.asks(322, to="namesrv") else exchange.answer is not None and "changed" in exchange.answer.fields


@claim("HA-R-19", "answer to code 105", "addresses of its group by brokerId", "HA-R-4", "different ids")
def a_route_lists_queues_and_the_groups_that_have_them(frame: RemotingFrame) -> bool | None:
    """Each group by `brokerId`, each id with an address of its own."""
    if not frame.is_answer or not frame.exchange.asks(105) or frame.header["code"] != SUCCESS:
        return None
    groups = {group["brokerName"]: group["brokerAddrs"] for group in frame.table["brokerDatas"]}
    queues = frame.table["queueDatas"]
    has_queues = all(queue["brokerName"] in groups and queue["readQueueNums"] > 0 for queue in queues)
    has_master = all("0" in addresses and len(set(addresses.values())) == len(addresses) for addresses in groups.values())
    return bool(queues) and has_queues and has_master


@claim("HA-R-32", "a field of the table that is not optional", "HA-R-35", "enableActingMaster")
def a_registration_has_the_fields_of_its_release(exchange: Exchange) -> bool | None:
    if not exchange.asks(103, to="namesrv"):
        return None
    always = {"brokerName", "clusterName", "brokerAddr", "haServerAddr", "brokerId", "compressed", "bodyCrc32"}
    return set(exchange.request.fields) == always | ({"enableActingMaster"} if exchange.store.release[0] == "5" else set())


@claim("HA-R-33", "bodyCrc32 is not 0", "not the CRC-32 of the body as it was sent without its highest bit")
def a_registration_gives_the_crc_of_its_body(exchange: Exchange) -> bool | None:
    if not exchange.asks(103, to="namesrv"):
        return None
    said = int(exchange.request.fields["bodyCrc32"])
    return said != 0 and registration.has_its_crc(exchange.request.body, said)


@claim("HA-R-34", "as JSON, and as the zlib stream below if compressed is true")
def the_body_of_a_registration_is_read(exchange: Exchange) -> bool | None:
    """Every broker has its own name among its topics, unless it registers one topic alone, which has changed (HA-R-37)."""
    if not exchange.asks(103, to="namesrv"):
        return None
    fields = exchange.request.fields
    found = registration.read_body(exchange.request.body, compressed=fields["compressed"] == "true")
    if found is None or found[0] is None:
        return False
    return fields["brokerName"] in dict(found[1]) or len(found[1]) == 1


@claim("HA-R-46", "code 322", "differs from the one that the address has registered, and have the latter as its body")
def the_answer_says_whether_the_version_differs(exchange: Exchange) -> bool | None:
    if not exchange.asks(322, to="namesrv") or exchange.answer is None:
        return None
    differs = exchange.request.table != exchange.answer.table
    return exchange.answer.fields["changed"] == str(differs).lower()


@claim("HA-R-48", "answered with TOPIC_NOT_EXIST (17)")
def a_question_for_a_topic_of_nobody_is_answered_17(frame: RemotingFrame) -> bool | None:
    """A consumer asks for the topic of its group's retries, which no broker has yet."""
    if not frame.is_answer or not frame.exchange.asks(105) or frame.header["code"] == SUCCESS:
        return None
    return frame.header["code"] == 17 and frame.exchange.request.fields["topic"].startswith("%RETRY%")


@claim("HA-R-49", "code 105", "JSON with queueDatas, brokerDatas and filterServerTable, all its keys in quotes")
def a_route_is_what_the_model_makes_of_it(frame: RemotingFrame) -> bool | None:
    """Apart from `enableActingMaster`, which 5.x adds to a group. All clients are of 4.9.4 or later."""
    if not frame.is_answer or not frame.exchange.asks(105) or frame.header["code"] != SUCCESS:
        return None
    found = json.loads(frame.body)
    for group in found["brokerDatas"]:
        group.pop("enableActingMaster", None)
    numbers = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
    route = route_table.Route(
        {queue["brokerName"]: route_table.QueueData(*(queue[name] for name in numbers)) for queue in found["queueDatas"]},
        {
            group["brokerName"]: (group["cluster"], {int(key): addr for key, addr in group["brokerAddrs"].items()})
            for group in found["brokerDatas"]
        },
    )
    return bool(name_server_answers.topic_route(route) == found)


# --- Pulls -----------------------------------------------------------------------------------------------------------


@claim("HA-R-5", "refuse puts, with SERVICE_NOT_AVAILABLE")
def a_slave_refuses_puts(exchange: Exchange) -> bool | None:
    """With the code that versions.toml has for the release."""
    if exchange.code not in PUTS or exchange.row["to"] != "slave" or exchange.answer is None:
        return None
    value = value_of("a put that a slave is sent", exchange.store.release)
    return exchange.answer.header["code"] == (SYSTEM_BUSY if value.startswith("SYSTEM_BUSY") else SERVICE_NOT_AVAILABLE)


@claim("HA-R-6", "pulls whatever slaveReadEnable says")
def a_slave_that_may_not_be_read_answers_or_refuses(exchange: Exchange) -> bool | None:
    """Where nobody has set slaveReadEnable, which is false by default: as versions.toml has it for the release."""
    if not exchange.asks(11, to="slave") or exchange.answer is None or settings_at(exchange).get("slaveReadEnable") == "true":
        return None
    code = exchange.answer.header["code"]
    value = value_of("a slave with `slaveReadEnable=false`", exchange.store.release)
    return code in LOOKED_INTO_QUEUE if value == "answers pulls" else code == SYSTEM_BUSY


@claim("HA-R-26", "0 (SUCCESS) with messages, 19 (not found), 20 (try again at once) or 21 (go on from another offset)")
def a_pull_is_answered_with_one_of_these_codes(exchange: Exchange) -> bool | None:
    """SUCCESS has messages; the three others that the queue gave have none, but say from where to go on."""
    answer = exchange.answer
    if exchange.code != 11 or answer is None:
        return None
    code = answer.header["code"]
    if code not in LOOKED_INTO_QUEUE:
        return code in REFUSALS and not answer.body
    return bool(answer.body) == (code == SUCCESS) and {"nextBeginOffset", "minOffset", "maxOffset"} <= set(answer.fields)


@claim(
    "HA-R-30",
    "another code",
    "1 (queue id out of range, SQL92 not allowed), 16 (no permission to read), 17 (no such topic)",
    "23 (cannot be parsed), 24 (unknown), 25 (newer than what the broker knows) or 26 (unknown group)",
)
def a_refused_pull_has_another_code(exchange: Exchange) -> bool | None:
    """Its answer has no messages, and no offset to go on from; the remark says why, and the code is that of the reason."""
    answer = exchange.answer
    if exchange.code != 11 or answer is None or answer.header["code"] in LOOKED_INTO_QUEUE:
        return None
    told = [codes for words, codes in REFUSED.items() if words in answer.header["remark"]]
    is_known = len(told) == 1 and answer.header["code"] in told[0]
    return is_known and not answer.body and "nextBeginOffset" not in answer.fields


@claim("HA-R-30", "1 (queue id out of range")
def a_queue_id_out_of_range_has_the_code_of_versions_toml(exchange: Exchange) -> bool | None:
    answer = exchange.answer
    if exchange.code != 11 or answer is None or "is illegal, topic" not in answer.header.get("remark", ""):
        return None
    value = value_of("a pull of a queue id that the topic has not", exchange.store.release)
    return value.endswith(f"({answer.header['code']})")


@claim("HA-R-26", "answer 0 (SUCCESS) with messages, 19 (not found), 20 (try again at once) or 21 (go on from another offset)")
def the_outcome_of_a_pull_has_its_code(exchange: Exchange) -> bool | None:
    """The remark of an answer names the outcome, and the table below the clause has its code; for a slave HA-R-31 holds."""
    answer = exchange.answer
    if not exchange.asks(11, to="master") or answer is None or answer.header["code"] not in LOOKED_INTO_QUEUE:
        return None
    is_from_0 = exchange.request.fields["queueOffset"] == "0"
    return pull_outcomes.read()[answer.header["remark"], is_from_0] == answer.header["code"]


@claim("HA-R-31", "answers 20 where a master answers 21, and does not correct the offset")
def a_slave_answers_20_for_21(exchange: Exchange) -> bool | None:
    """Unless offsetCheckInSlave is on, and where it looked into the queue: the remark says how its offset was wrong."""
    answer = exchange.answer
    if not exchange.asks(11, to="slave") or answer is None or settings_at(exchange).get("offsetCheckInSlave") == "true":
        return None
    if answer.header.get("remark") not in ("OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY"):
        return None
    asked = exchange.request.fields["queueOffset"]
    return answer.header["code"] == 20 and answer.fields["nextBeginOffset"] == asked


@claim("HA-R-20", "MUST suggest the brokerId to pull from next")
def an_answer_suggests_a_broker(exchange: Exchange) -> bool | None:
    """Where the queue was looked into; a refusal suggests none."""
    answer = exchange.answer
    if not exchange.asks(11, to="master") or answer is None or answer.header["code"] not in LOOKED_INTO_QUEUE:
        return None
    return answer.fields.get("suggestWhichBrokerId", "").isdecimal()


@claim("HA-R-21", "max offset of the commit log less the offset of the last message")
def the_lag_is_from_the_last_message_pulled(exchange: Exchange) -> bool | None:
    """With a bound of 0 every message that is not the end of the log lags; with 40 % of a machine's memory none of so few."""
    settings = settings_at(exchange)
    if not is_suggestion(exchange) or settings.get("slaveReadEnable") != "true":
        return None
    assert exchange.answer is not None
    if exchange.answer.header["code"] != SUCCESS:
        return None
    return exchange.answer.fields["suggestWhichBrokerId"] == ("1" if settings["accessMessageInMemoryMaxRatio"] == "0" else "0")


@claim("HA-R-21", "accessMessageInMemoryMaxRatio, 40 by default")
def the_memory_bound_is_40_percent_by_default(defaults: Defaults) -> bool:
    return defaults.settings["accessMessageInMemoryMaxRatio"] == "40"


@claim("HA-R-22", "MUST NOT be suggested unless slaveReadEnable is set")
def a_slave_is_suggested_where_it_may_be_read(exchange: Exchange) -> bool | None:
    if not is_suggestion(exchange) or settings_at(exchange).get("slaveReadEnable") == "true":
        return None
    assert exchange.answer is not None
    return exchange.answer.fields["suggestWhichBrokerId"] == "0"


@claim("HA-R-22", "slaveReadEnable is set")
def a_slave_may_not_be_read_by_default(defaults: Defaults) -> bool:
    return defaults.settings["slaveReadEnable"] == "false"


@claim("HA-R-24", "NOT suggest more than one slave of its group: by default the one of id 1")
def no_slave_but_that_of_id_1_is_suggested(exchange: Exchange) -> bool | None:
    if not is_suggestion(exchange):
        return None
    assert exchange.answer is not None
    return exchange.answer.fields["suggestWhichBrokerId"] in ("0", "1")


@claim("HA-ST-37", "says where to read, to the commit log, which has the message")
def messages_come_from_the_log_by_way_of_the_queue(exchange: Exchange) -> bool | None:
    """Each as it stands in the log, where an entry of the queue says; in the queue's order, from the offset asked for on."""
    answer = exchange.answer
    if exchange.code != 11 or answer is None or answer.header["code"] != SUCCESS:
        return None
    fields = exchange.request.fields
    at, numbers = 0, [int(fields["queueOffset"]) - 1]
    while at < len(answer.body):
        size = number(answer.body, at, 4)
        offset = number(answer.body, at + 28, 8)
        here: StoredRecord | None = exchange.store.records.get(offset)
        entry = exchange.store.queued.get(offset)
        if here is None or entry is None or message.decode(answer.body, at) is None:
            return False
        if here.raw != answer.body[at : at + size] or (entry.topic, str(entry.queue_id)) != (
            fields["topic"],
            fields["queueId"],
        ):
            return False
        numbers.append(entry.number)
        at += size
    return numbers == sorted(set(numbers)) and numbers[-1] < int(answer.fields["nextBeginOffset"])


def is_suggestion(exchange: Exchange) -> bool:
    is_pull = exchange.asks(11, to="master") and exchange.answer is not None
    return is_pull and exchange.answer is not None and "suggestWhichBrokerId" in exchange.answer.fields


def settings_at(exchange: Exchange) -> dict[str, str]:
    """What this broker was told while it ran, before this request."""
    found: dict[str, str] = {}
    for told in exchange.told:
        found |= dict(line.split("=", 1) for line in told.request.body.decode().splitlines() if line)
    return found
