"""What an agent may say, and when."""

import pytest

from mcjax_launch.features.preload.messages import Preloaded
from mcjax_launch.transport.connection import ProtocolState
from mcjax_launch.wire import frames, messages
from mcjax_launch.wire.codec import Malformed, Message
from mcjax_launch.wire.frames import Data, Raw
from mcjax_launch.wire.hook_messages import Left
from mcjax_launch.wire.rank_process import RankSettings

HELLO, BYE = messages.Greeting(messages.VERSION), messages.Bye((), ())
PREPARE = messages.Prepare(*(False, None, None, "", (), "", {}, "/", False), transfer_ports=2)
FACTS = messages.HostFacts("py", "/", transfer_ports=(1, 2))
USAGE = messages.RankUsage(3, 1.0, 1)
EXITED = messages.Exited(3, 0, (), None, 0.0, 1)


def order(rank: int) -> messages.RankOrder:
    return messages.RankOrder(rank, ("true",), {}, "/", RankSettings())


START = messages.Start(*((order(3), order(4)), {}, {}, False, "", False, 0.0, 1.0, 1.0))
Frame = Message | Data | Raw


@pytest.fixture
def dialogue() -> ProtocolState:
    """With an agent that runs ranks 3 and 4."""
    state = ProtocolState()
    state.check(HELLO)
    state.record_sent_message(PREPARE)
    state.check(FACTS)
    state.record_sent_message(START)
    return state


@pytest.mark.parametrize(
    "frame",
    [
        Data(3, frames.STDOUT, b"x"),
        Raw("debugging", 4, b"x"),
        messages.Started(4, 1),
        messages.Usage((USAGE,)),
        messages.FromHook(3, Left()),
        messages.Refused("no", 127),
        BYE,
    ],
    ids=repr,
)
def test_frames_in_order_are_accepted(dialogue: ProtocolState, frame: Frame) -> None:
    dialogue.check(frame)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (Data(7, frames.STDOUT, b"x"), "Data of rank 7, which is not there"),
        (messages.Started(0, 1), "Started of rank 0, which"),
        (messages.Usage((USAGE, USAGE.copy_with(rank=5))), "Usage of rank 5, which"),
        (messages.Stacks(-1, 1, ""), "Stacks of rank -1, which"),
        (Preloaded((1,), 0.0, ""), "Preloaded of rank 1, which"),
        (Data(3, 0, b"x"), "Data, which agents do not send"),
        (Raw("stdout", 3, b"x"), "Raw of 'stdout', which is no feature"),
        (Raw("..", 3, b"x"), "which is no feature"),
        (Data(3, 77, b"x"), "Data, which agents do not send"),
        (Raw("", 3, b"x"), "Raw of '', which is no feature"),
        (HELLO, "Greeting at the wrong time"),
        (FACTS, "HostFacts, which was not requested"),
        (messages.CoordinatorTried({}, {}), "CoordinatorTried, which was not requested"),
    ],
    ids=repr,
)
def test_frames_out_of_order_are_refused(dialogue: ProtocolState, frame: Frame, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        dialogue.check(frame)


def test_nothing_comes_before_the_greeting_or_after_the_goodbye(dialogue: ProtocolState) -> None:
    with pytest.raises(Malformed, match="NothingLeft at the wrong time"):
        ProtocolState().check(messages.NothingLeft())
    dialogue.check(BYE)
    for late in (BYE, EXITED, HELLO):
        with pytest.raises(Malformed, match="at the wrong time"):
            dialogue.check(late)
    dialogue.check(messages.Ping())
    dialogue.check(messages.InternalError("E", "Traceback"))


def test_second_end_of_a_rank_is_refused(dialogue: ProtocolState) -> None:
    dialogue.check(EXITED)
    dialogue.check(Data(3, frames.STDOUT, b"the rest"))
    with pytest.raises(Malformed, match="Exited of rank 3 again"):
        dialogue.check(EXITED)


def test_answer_without_a_question_is_refused() -> None:
    dialogue = ProtocolState()
    dialogue.check(HELLO)
    dialogue.record_sent_message(PREPARE)
    with pytest.raises(Malformed, match="0 ports for transfers"):
        dialogue.check(FACTS.copy_with(transfer_ports=()))
