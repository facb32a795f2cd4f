"""From a frame to its handler, and from the handler to the answer. No sockets and no clock."""

import logging
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Final

from rocketmq_ha.impl.errors import RocketmqHaError
from rocketmq_ha.impl.net.peer_log import PeerLog
from rocketmq_ha.impl.remoting.channel import Channel
from rocketmq_ha.impl.remoting.codes import ResponseCode, request_name
from rocketmq_ha.impl.remoting.command import RemotingCommand, decode, response_to
from rocketmq_ha.spec.constants import REMOTING_HEADER_MAX

# What a handler returns is the answer; None if it answers later by `channel.answer`, or never, as to a oneway request.
Handler = Callable[[Channel, RemotingCommand, int], RemotingCommand | None]
UNSUPPORTED: Final = "unsupported"  # in the count of requests: a peer may make up any number of codes
_REMARK: Final = 400  # characters of an error in a remark

log = logging.getLogger(__name__)


class Dispatcher:
    """The table of handlers, and what has been counted."""

    def __init__(self, header_max: int = REMOTING_HEADER_MAX) -> None:
        """header_max: bytes of the longest header that is read."""
        self._header_max = header_max
        self.handlers: dict[int, Handler] = {}
        self.requests: Counter[int | str] = Counter()  # by code
        self.served = 0  # frames, one that cannot be read included
        self.failures = 0  # handlers that have met a bug of ours

    def dispatch(self, channel: Channel, peers: PeerLog, now_ms: int, most: int) -> None:
        """Serve the frames of a channel, as far as it may take them, and `most` of them; `served` counts them.

        Raises: FrameInvalid, when the frames before it are served.
        Spec: HA-RM-18 "MUST close no connection because a request on it failed".
        """
        frames = channel.frames
        end = self.served + most
        while self.served < end and frames and channel.is_open and channel.may_take:
            self.served += 1
            self._on_command(channel, decode(frames.popleft(), self._header_max), peers, now_ms)
        if not frames and channel.error is not None:
            raise channel.error

    def _on_command(self, channel: Channel, command: RemotingCommand, peers: PeerLog, now_ms: int) -> None:
        if command.is_response:
            if not channel.on_answer(command):
                text = "%s: an answer that nobody waits for: code %d, opaque %d"
                peers.write(now_ms, logging.DEBUG, text, channel.peer, command.code, command.opaque, peer=channel.peer)
            return
        channel.on_request(command)
        handler = self.handlers.get(command.code)
        self.requests[UNSUPPORTED if handler is None else command.code] += 1
        if handler is None:
            # HA-RM-10 "MUST be answered REQUEST_CODE_NOT_SUPPORTED (3)"
            remark = f"request code {command.code} is not supported"
            channel.answer(response_to(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
        try:
            answer = handler(channel, command, now_ms)
        except (RocketmqHaError, OSError) as error:
            if not isinstance(error, RocketmqHaError):
                name = request_name(command.code)
                peers.write(now_ms, logging.ERROR, "%s: request %s: %s", channel.peer, name, error, peer=channel.peer)
            answer = _failed(command, str(error))
        except AssertionError:
            raise  # what the process relies on does not hold: it has to end
        except Exception as error:
            # A bug of ours that a peer has found is no reason to end: it could be asked for again and again.
            self.failures += 1
            text, trace = "%s: request %s: a bug of this program: %s", traceback.format_exc()
            peers.write(now_ms, logging.ERROR, text, channel.peer, request_name(command.code), trace, peer=channel.peer)
            answer = _failed(command, f"internal error: {type(error).__name__}")
        if answer is not None:
            channel.answer(answer)


def _failed(request: RemotingCommand, why: str) -> RemotingCommand:
    """HA-RM-13 "MUST be answered SYSTEM_ERROR (1), with a remark of one line"."""
    return response_to(request, ResponseCode.SYSTEM_ERROR, " ".join(why.split())[:_REMARK])
