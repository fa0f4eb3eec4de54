"""The convolutional part of a model file: its networks, stored with the network of the stack."""

from typing import Any

import numpy as np
import torch

from hedgerow.config import ConvConfig, DeepConfig
from hedgerow.deep.convnet import ConvNet, InputScale
from hedgerow.deep.deepstack import DeepStack
from hedgerow.deep.member_kinds import MEMBER_KINDS, READING
from hedgerow.deep.record import STACK, Deepening
from hedgerow.deep.unet import NORMS, UNet
from hedgerow.errors import ModelError, refuse_unless
from hedgerow.features.protocol import are_statistics
from hedgerow.io.checks import number, table, whole
from hedgerow.network.stacknet import StackNet
from hedgerow.settings import limits_of

PREFIX = "deep."
SIZE_FIELDS = ("base", "n_down", "widest")  # of a network
MAX_NETS = limits_of(DeepConfig, "n_networks")[1]
_COUNTER = "num_batches_tracked"  # normalisation counts batches in training; a trained network does not need it


def arrays(model: DeepStack) -> dict[str, np.ndarray]:
    """Every weight by name (deep.alone.0.down.0.0.weight, ...), and the statistics of the image's channels."""
    weights = {}
    for name, nets in model.nets.items():
        for k, net in enumerate(nets):
            for weight, tensor in net.network.state_dict().items():
                if not weight.endswith(_COUNTER):
                    weights[f"{PREFIX}{name}.{k}.{weight}"] = tensor.detach().cpu().contiguous().numpy()
            weights[PREFIX + "mean"], weights[PREFIX + "std"] = net.scale.mean, net.scale.std
    return weights


def description(model: DeepStack) -> dict[str, Any]:
    """Everything that is not an array, ready for JSON."""
    all_nets = [net for nets in model.nets.values() for net in nets]
    if not all_nets:
        raise ModelError("all convolutional networks of this model have weight 0; save its base, which is equivalent.")
    first = all_nets[0]
    return {
        **{name: getattr(first.network, name) for name in SIZE_FIELDS},
        "norm": first.network.norm,
        "members": {name: len(nets) for name, nets in model.nets.items()},
        "readers": [name for name, nets in model.nets.items() if nets[0].reads],
        "weights": dict(model.weights),
        "features": list(first.features),
        "orientations": first.orientations,
        "record": model.record.to_dict(),
    }


def rebuild(base: StackNet, described: dict[str, Any], arrays: dict[str, np.ndarray]) -> DeepStack:
    """The model from a file; raises ModelError unless its networks fit the stack and their weights are finite."""
    sizes = {name: whole(described[name], *limits_of(ConvConfig, name), name) for name in SIZE_FIELDS}
    refuse_unless(sizes["base"] <= sizes["widest"], "the sizes of its networks are impossible")
    norm = described.get("norm", "batch")  # the first files do not state it
    refuse_unless(norm in NORMS, "the normalisation of its networks is unknown")
    counts = {
        name: whole(count, 1, MAX_NETS, "number of networks")
        for name, count in table(described["members"], "list of members").items()
    }
    refuse_unless(bool(counts) and set(counts) <= set(MEMBER_KINDS), "its members are unknown")
    readers = described.get("readers", [READING])  # in older files, no other member reads the stack
    refuse_unless(isinstance(readers, list) and set(map(str, readers)) <= set(MEMBER_KINDS), "its readers are unknown")
    weights = {name: number(weight, "weight") for name, weight in table(described["weights"], "weights").items()}
    fits = set(weights) | {STACK} == {*counts, STACK} and all(0 < weight <= 1 for weight in weights.values())
    refuse_unless(fits and abs(sum(weights.values()) - 1) < 1e-3, "the weights of its members are impossible")
    first, end = (whole(index, 0, base.features.n_features, "feature") for index in described["features"])
    refuse_unless(first <= end, "its features are impossible")
    mean, std = arrays.pop(PREFIX + "mean"), arrays.pop(PREFIX + "std")
    is_scale = mean.shape == std.shape == (base.features.n_inputs,) and are_statistics(mean, std)
    refuse_unless(is_scale, "the scale of its channels is impossible")
    scale = InputScale(mean, std, base.features.blank)
    orientations = whole(described["orientations"], *limits_of(ConvConfig, "orientations"), "number of orientations")
    nets = {}
    for name, count in counts.items():
        n_inputs = scale.n_outputs + end - first + (base.n_classes if name in readers else 0)
        of_member = []
        for k in range(count):
            with torch.device("meta"):  # which gives its shapes without allocating memory
                empty = MEMBER_KINDS[name].network(n_inputs, base.n_classes, **sizes, norm=norm)
            network = _filled(empty, _taken(arrays, f"{PREFIX}{name}.{k}."))
            of_member.append(ConvNet(network, scale, (first, end), name in readers, orientations))
        nets[name] = tuple(of_member)
    refuse_unless(not arrays, "it holds arrays that belong to no network")
    return DeepStack(base, nets, weights, Deepening.from_dict(table(described["record"], "record")))


def _taken(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays of one network, which are removed from the others."""
    return {name.removeprefix(prefix): arrays.pop(name) for name in list(arrays) if name.startswith(prefix)}


def _filled(network: UNet, arrays: dict[str, np.ndarray]) -> UNet:
    """A network without memory for its weights, filled with these."""
    state = network.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items() if not name.endswith(_COUNTER)}
    refuse_unless({name: array.shape for name, array in arrays.items()} == shapes, "its networks do not fit")
    is_fine = all(np.isfinite(array).all() for array in arrays.values())
    is_fine = is_fine and all((array >= 0).all() for name, array in arrays.items() if name.endswith("running_var"))
    refuse_unless(is_fine, "its networks have impossible weights")
    weights = {name: torch.from_numpy(np.array(array, np.float32)) for name, array in arrays.items()}
    counters = {name: torch.zeros((), dtype=torch.int64) for name in state if name.endswith(_COUNTER)}
    network.load_state_dict({**weights, **counters}, assign=True)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as it was trained
    return network.eval().requires_grad_(False)
