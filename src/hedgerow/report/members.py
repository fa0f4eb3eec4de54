"""What each level and each member of a deep stack is worth on the images of the page, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hedgerow.deep.parts import parts_of
from hedgerow.deep.record import held_words
from hedgerow.forest.arrays import ForestStack
from hedgerow.images.metrics import Scores
from hedgerow.report.measure import Measured
from hedgerow.report.results import Table
from hedgerow.report.same import same_stack
from hedgerow.report.words import counted

if TYPE_CHECKING:
    from hedgerow.deep.members import Member

COLUMNS = ("level or member", "mean Dice", "mean IoU", "pixel accuracy", "weight", "held-out Dice")
Cells = tuple[str | float | int | None, ...]


def members_table(one: Measured, measured: Sequence[Measured]) -> Table:
    """Of a deep stack: its forests, if they are among the models, its network, its members, and all together."""
    from hedgerow.deep.members import TOGETHER, members  # needs PyTorch

    deep = parts_of(one.model)[2]
    assert deep is not None
    known, record = members(deep), deep.record
    together = _row("all together", one.scores, 1.0, record.scores.get(TOGETHER))
    note = (
        f"{_networks_words(known)} The weight is how much a member counts; the network's own vote is that of its last "
        f"level. Held-out Dice is from when the model was made, on {held_words(record.held, record.n_held)}, each "
        "predicted by networks that did not see it."
    )
    return Table(one.name, COLUMNS, (*_forest_rows(one, measured), *_own_rows(one, known), together), note)


def _forest_rows(one: Measured, measured: Sequence[Measured]) -> list[Cells]:
    for other in measured:
        if isinstance(other.model, ForestStack) and same_stack(other.model, one.stack):
            return [_row(f"forest, level {number}", scores) for number, scores in enumerate(other.per_level, 1)]
    return []


def _own_rows(one: Measured, known: Sequence[Member]) -> Iterator[Cells]:
    """The levels of the network, the last of which is the first member, then the convolutional members."""
    stack, *convolutional = known
    *before, last = one.per_level[:-1]
    for number, scores in enumerate(before, 1):
        yield _row(f"network, level {number}", scores)
    yield _row(f"network, level {len(before) + 1}", last, stack.weight, stack.dice)
    for member in convolutional:
        if member.name in one.members:
            yield _row(member.name, one.members[member.name], member.weight, member.dice)


def _networks_words(known: Sequence[Member]) -> str:
    """What the convolutional members are, in sentences."""
    networks = [member for member in known if member.n_networks]
    return " ".join(
        f"{member.name.capitalize()}: {counted(member.n_networks, 'U-Net')} on {member.reads}." for member in networks
    )


def _row(name: str, scores: Scores, weight: float = 0.0, held_out: float | None = None) -> Cells:
    """A weight of 0 is shown as a dash."""
    return name, scores.mean_dice, scores.mean_iou, scores.accuracy, weight or None, held_out
