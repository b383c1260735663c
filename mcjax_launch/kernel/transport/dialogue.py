"""What an agent may say, and when: checked before anything acts on it; pure."""

from collections.abc import Iterable, Iterator

from mcjax_launch import features
from mcjax_launch.kernel.wire import frames, messages
from mcjax_launch.kernel.wire.codec import Malformed, Message
from mcjax_launch.kernel.wire.frames import Data, Raw
from mcjax_launch.kernel.wire.messages import Credit, Exited, HostFacts, Question, ToLauncher
from mcjax_launch.ranks import these_ranks

# At any time: an agent that has a bug says so.
_ALWAYS = (messages.Ping, messages.InternalError)
_OUTPUT = (frames.STDOUT, frames.STDERR)


class Dialogue:
    """What has been asked of an agent and which ranks are its own, so what it may say now."""

    def __init__(self) -> None:
        self._decoder = frames.Decoder(messages.ToLauncher, frames.LONGEST_FROM_AGENT)
        self._greeted = self._said_bye = False
        self._asked: list[Question] = []
        self._ranks: frozenset[int] = frozenset()
        self._exited: set[int] = set()

    def sent(self, message: Message) -> None:
        """The launcher sends a message."""
        if isinstance(message, messages.Start):
            self._ranks = frozenset(order.process_id for order in message.ranks)
        elif isinstance(message, messages.StartAgain):
            self._exited.discard(message.rank.process_id)
        elif isinstance(message, Question):
            self._asked.append(message)

    def received(self, data: bytes | memoryview) -> Iterator[Message | Data | Raw]:
        """The frames that `data` completes.

        Raises:
            Malformed: one is none, or the agent may not send it now.

        """
        for frame in self._decoder.feed(data):
            self.check(frame)
            yield frame

    def check(self, frame: Message | Data | Raw) -> None:
        """Whether the agent may say this now.

        Raises:
            Malformed: it may not, or not of these ranks.

        """
        name = type(frame).__name__
        if isinstance(frame, _ALWAYS):
            return
        if self._said_bye or self._greeted == isinstance(frame, messages.Greeting):
            raise Malformed(f"{name} at the wrong time")
        if isinstance(frame, Data) and frame.stream not in _OUTPUT:
            raise Malformed(f"{name}, which agents do not send")
        if isinstance(frame, (Raw, Credit)) and not features.exists(frame.feature):
            raise Malformed(f"{name} of {frame.feature!r}, which is no feature")
        self._greeted = True
        self._said_bye = isinstance(frame, messages.Bye)
        if others := set(_ranks_of(frame)) - self._ranks:
            raise Malformed(f"{name} of {these_ranks(sorted(others)[:1])}, which is not there")
        if isinstance(frame, Exited):
            if frame.rank in self._exited:
                raise Malformed(f"{name} of rank {frame.rank} again")
            self._exited.add(frame.rank)
        if isinstance(frame, ToLauncher) and frame.answers is not None:
            self._check_answer(frame, frame.answers)

    def _check_answer(self, frame: ToLauncher, question: type[Question]) -> None:
        name = type(frame).__name__
        asked = next((asked for asked in self._asked if isinstance(asked, question)), None)
        if asked is None:
            raise Malformed(f"{name}, which nobody has asked for")
        self._asked.remove(asked)
        if isinstance(frame, HostFacts) and isinstance(asked, messages.Prepare):
            _check_facts(frame, asked)


def _check_facts(facts: HostFacts, asked: messages.Prepare) -> None:
    ports = len(facts.transfer_ports)
    if ports != asked.transfer_ports:
        raise Malformed(f"HostFacts with {ports} ports for transfers")


def _ranks_of(frame: Message | Data | Raw) -> Iterable[int]:
    """The ranks of which a frame says something."""
    match frame:
        case Data():
            return (frame.rank,)
        case ToLauncher():
            return frame.about
    return ()
