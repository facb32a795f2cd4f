"""A producer and consumers of librocketmq, as a process of its own, with the package of librocketmq.lock.

    send NAMESRV TOPIC COUNT RUN          in each way; a line says how a send has ended, and describes the message
    batch NAMESRV TOPIC COUNT RUN         one batch; the line says how it has ended
    delayed NAMESRV TOPIC COUNT RUN LEVEL
    pull NAMESRV TOPIC EXPRESSION         a line describes each message that a pull consumer finds
    push NAMESRV TOPIC EXPRESSION GROUP KIND
                                          the same for each message that comes, until the input ends; one that is `failing`
                                          gives back each message once

A message is described by its topic, keys, tags, length and CRC-32 of its body, and a property. What a consumer finds has at its
front how often it came before, its queue, its place in the queue, and its age in ms.
"""

import random
import sys
import threading
import time
import zlib

from rocketmq.client import Message, MessageModel, Producer, PullConsumer, PushConsumer, RecvMessage

WAIT_S = 60
TIMEOUT_MS = 60_000
KINDS = ("share", "broadcast", "ordered", "failing")
CONSUME_SUCCESS, RECONSUME_LATER = 0, 1


def main(command, *words):
    {"send": send, "batch": batch, "delayed": delayed, "pull": pull, "push": push}[command](*words)


def write(*fields):
    """One line, whole: consumers call this from several threads."""
    sys.stdout.write("\t".join(map(str, fields)) + "\n")
    sys.stdout.flush()


# --- Sending -----------------------------------------------------------------------------------------------------------------


class Sent:
    """A message to be sent, and its description."""

    def __init__(self, topic, way, run, number):
        chosen = random.Random(f"{way} {run} {number}")
        # The binding ends a body at its first zero byte; beyond 4 KiB the client compresses it.
        body = bytes(chosen.choices(range(1, 256), k=40)) * chosen.randint(1, 400 if number % 10 == 9 else 40)
        keys, tags, about = f"{way}-{run}-{number}", f"Tag{number % 3}", f"{way} \u00fc"
        self.message = Message(topic)
        self.message.set_keys(keys)
        self.message.set_tags(tags)
        self.message.set_body(body)
        self.message.set_property("way", about)
        self.fields = (topic, keys, tags, len(body), zlib.crc32(body), about)


def started(namesrv):
    producer = Producer("InteropLibrocketmq", timeout=TIMEOUT_MS)
    producer.set_namesrv_addr(namesrv)
    producer.start()
    return producer


def send(namesrv, topic, count, run):
    producer, numbers = started(namesrv), range(int(count))
    for number in numbers:
        each = Sent(topic, "sync", run, number)
        write(producer.send_sync(each.message).status.name, *each.fields)
    write_async(producer, [Sent(topic, "async", run, number) for number in numbers])
    for number in numbers:
        each = Sent(topic, "oneway", run, number)
        producer.send_oneway(each.message)
        write("SENT", *each.fields)
    for number in numbers:
        each = Sent(topic, "ordered", run, number)
        write(producer.send_orderly(each.message, number % 4).status.name, *each.fields)
    for number in numbers:
        each = Sent(topic, "onewayordered", run, number)
        producer.send_oneway_orderly(each.message, number % 4)
        write("SENT", *each.fields)
    producer.shutdown()


def write_async(producer, messages):
    ends, all_ended = {}, threading.Event()

    def ended(number, how):
        ends[number] = how
        if len(ends) == len(messages):
            all_ended.set()

    for number, each in enumerate(messages):
        producer.send_async(
            each.message,
            lambda result, number=number: ended(number, result.status.name),
            lambda error, number=number: ended(number, str(error)),
        )
    all_ended.wait(WAIT_S)
    for number, each in enumerate(messages):
        write(ends.get(number, "never ended"), *each.fields)


def batch(namesrv, topic, count, run):
    producer = started(namesrv)
    messages = [Sent(topic, "batch", run, number).message for number in range(int(count))]
    result = producer.send_batch(messages)
    write(result.status.name, result.offset)
    producer.shutdown()


def delayed(namesrv, topic, count, run, level):
    producer = started(namesrv)
    for number in range(int(count)):
        each = Sent(topic, "delayed", run, number)
        each.message.set_delay_time_level(int(level))
        write(producer.send_sync(each.message).status.name, *each.fields)
    producer.shutdown()


# --- Consuming ---------------------------------------------------------------------------------------------------------------


def describe(message):
    place = (message.reconsume_times, message.queue_id, message.queue_offset)
    age_ms = int(time.time() * 1000) - message.born_timestamp
    texts = [(text or b"").decode() for text in (message.keys, message.tags, message["way"])]
    body = message.body
    write(*place, age_ms, message.topic, texts[0], texts[1], len(body), zlib.crc32(body), texts[2])


def pull(namesrv, topic, expression):
    consumer = PullConsumer("InteropLibrocketmqPull")
    consumer.set_namesrv_addr(namesrv)
    consumer.start()
    for message in consumer.pull(topic, expression):
        describe(message)
    consumer.shutdown()


def push(namesrv, topic, expression, group, kind):
    assert kind in KINDS, kind
    model = MessageModel.BROADCASTING if kind == "broadcast" else MessageModel.CLUSTERING
    consumer = PushConsumer(group, orderly=kind == "ordered", message_model=model)
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, describe, expression)
    if kind == "failing":  # the binding has no other way to say it: what a callback raises counts as consumed
        consumer._register_callback(give_back)
    consumer.start()
    sys.stdin.read()
    consumer.shutdown()


def give_back(_consumer, handle):
    """The client gives back all that has come with a message, also what it has not shown yet."""
    message = RecvMessage(handle)
    describe(message)
    return CONSUME_SUCCESS if message.reconsume_times else RECONSUME_LATER


if __name__ == "__main__":
    main(*sys.argv[1:])
