"""A connection of a client for handlers that are called without a socket: it keeps what it is told to send."""

from rocketmq_ha.impl.remoting.command import RemotingCommand


class Channel:
    """answers: what came by `answer`, later than the call of the handler. sent: by `send`."""

    def __init__(self, peer: str = "127.0.0.1:4711") -> None:
        self.peer = peer
        self.is_open = True
        self.answers: list[RemotingCommand] = []
        self.sent: list[RemotingCommand] = []

    def answer(self, response: RemotingCommand) -> None:
        self.answers.append(response)

    def send(self, command: RemotingCommand) -> None:
        self.sent.append(command)
