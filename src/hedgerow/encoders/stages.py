"""The stages of the published encoders, and the shapes of the weights in their last ones. Needs no PyTorch.

A model may hold changed weights of the last stage that it reads; what a file says they are is compared with this.
"""

from collections.abc import Sequence

from hedgerow.encoders.protocol import EncoderLayer

Shapes = dict[str, tuple[int, ...]]

# Of each stage: blocks, side of its kernels, stride of its first block, widening, channels.
LITE0 = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
         (1, 3, 1, 6, 320))  # fmt: skip
LITE0_STEM = 32  # channels before the first stage
# Of each stage: blocks, stride of its output, channels, heads, side of a window; the first has convolutions only.
MOBILESAM = ((2, 4, 64, 0, 0), (2, 8, 128, 4, 7), (6, 16, 160, 5, 14), (2, 16, 320, 10, 7))
MOBILESAM_WIDENING = 4
NECK = 256  # channels


def _lite0_layers() -> tuple[EncoderLayer, ...]:
    found, stride = [], 2  # that of the stem
    for number, (_, _, first, _, channels) in enumerate(LITE0, 1):
        stride *= first
        found.append(EncoderLayer(f"s{number}", stride, channels))
    return tuple(found)


LAYERS = {
    "lite0": _lite0_layers(),
    "mobilesam": (
        *(EncoderLayer(f"l{number}", stride, channels) for number, (_, stride, channels, _, _) in enumerate(MOBILESAM)),
        EncoderLayer("neck", MOBILESAM[-1][1], NECK),
    ),
}
"""The layers of each encoder that can be read."""


def last_weights(encoder: str, layers: Sequence[str]) -> Shapes:
    """Name -> shape of the weights of the last stage that these layers read; none if it is not known here."""
    found = [_weights_of(encoder, name) for name in layers]
    return found[-1] if found and all(found) else {}


def lite0_weights(n_stages: int) -> Shapes:
    """Name -> shape of the weights of its first stages, and of what comes before these."""
    found = _pair("stem", LITE0_STEM, 3, 3, 3)
    for stage in range(n_stages):
        found |= _lite0_stage(stage)
    return found


def _weights_of(encoder: str, layer: str) -> Shapes:
    if encoder == "lite0" and layer in [f"s{number}" for number in range(1, len(LITE0) + 1)]:
        return _lite0_stage(int(layer[1:]) - 1)
    if encoder == "mobilesam" and layer == "neck":
        return _neck()
    if encoder == "mobilesam" and layer in [f"l{number}" for number in range(len(MOBILESAM))]:
        return _mobilesam_stage(int(layer[1:]))
    return {}


def _lite0_stage(stage: int) -> Shapes:
    n_blocks, side, _, widening, channels = LITE0[stage]
    first = sum(earlier[0] for earlier in LITE0[:stage])
    given, found = LITE0[stage - 1][-1] if stage else LITE0_STEM, Shapes()
    for block in range(first, first + n_blocks):
        wide = given * widening
        if block:  # the very first one does not widen
            found |= _pair(f"{block}.expand", wide, given, 1, 1)
        found |= _pair(f"{block}.depthwise", wide, 1, side, side)
        found |= _pair(f"{block}.project", channels, wide, 1, 1)
        given = channels
    return found


def _mobilesam_stage(stage: int) -> Shapes:
    n_blocks, _, channels, heads, window = MOBILESAM[stage]
    wide, found = MOBILESAM_WIDENING * channels, Shapes()
    for block in range(n_blocks):
        place = f"{stage}.{block}"
        if not heads:
            found |= _pair(f"{place}.expand", wide, channels, 1, 1)
            found |= _pair(f"{place}.depthwise", wide, 1, 3, 3)
            found |= _pair(f"{place}.project", channels, wide, 1, 1)
            continue
        found |= _pair(f"{place}.before_attention", channels) | _pair(f"{place}.qkv", 3 * channels, channels)
        found |= {f"{place}.distances": (heads, window**2)}
        found |= _pair(f"{place}.out", channels, channels) | _pair(f"{place}.local", channels, 1, 3, 3)
        found |= _pair(f"{place}.before_up", channels) | _pair(f"{place}.up", wide, channels)
        found |= _pair(f"{place}.down", channels, wide)
    return found


def _neck() -> Shapes:
    convolutions: Shapes = {"neck.0.weight": (NECK, MOBILESAM[-1][2], 1, 1), "neck.2.weight": (NECK, NECK, 3, 3)}
    return convolutions | _pair("neck.1", NECK) | _pair("neck.3", NECK)


def _pair(name: str, *shape: int) -> Shapes:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
