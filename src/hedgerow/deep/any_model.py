"""A model of any kind, and its parts. PyTorch is loaded only for models that need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hedgerow.forest.arrays import ForestStack

if TYPE_CHECKING:
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.network.stacknet import StackNet

AnyModel: TypeAlias = "ForestStack | StackNet | DeepStack"


def parts_of(model: AnyModel) -> tuple[ForestStack, StackNet | None, DeepStack | None]:
    """The forests of the model, its network, and the model itself if it has a convolutional level."""
    if isinstance(model, ForestStack):
        return model, None, None
    from hedgerow.network.stacknet import StackNet  # needs PyTorch

    if isinstance(model, StackNet):
        return model.stack, model, None
    return model.base.stack, model.base, model
