"""Features from the inner layers of a pretrained network, reduced to their principal components."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self, cast

import numpy as np
from threadpoolctl import threadpool_limits

from hedgerow.config import EncoderConfig, StackConfig
from hedgerow.encoders.catalogue import can_have, find, find_trained, last_shapes
from hedgerow.encoders.protocol import MAX_STRIDE, Encoder, EncoderLayer, TorchEncoder, chosen_layers
from hedgerow.errors import refuse_unless
from hedgerow.features.encoder_pictures import doubled, groups_of, halved, shades, to_pictures
from hedgerow.features.joined import Joined
from hedgerow.features.layer_cache import Layers, cached, key_of
from hedgerow.features.patches import SCALES, Patch, at_pixels, farthest, network_input, own_part, patches, summed
from hedgerow.features.protocol import Arrays, FeatureSet, check_features, slices_of, unfitted
from hedgerow.files import fingerprint
from hedgerow.images.regions import Region
from hedgerow.settings import limits_of
from hedgerow.threads import map_threads

FIT_PIXELS = 2**14  # of all training images together, from which principal components are computed
FRACTION_BITS = 12  # of principal directions: an error below 1/10,000, and no trace of the order of sums
MAX_LAYERS, MAX_LAYER_CHANNELS, MAX_LAYER_NAME = 64, 2**16, 1000
MAX_CHANGED = 1e6  # a float32 still holds it times ReLU6's 6, a thousand channels, and the largest projection
CHANGED = "changed."  # prefix of the names of changed weights in a file


@dataclass(frozen=True)
class EncoderSource:
    """The layers of a network that are read, and how an image is shown to the network.

    encoder, checksum: the name of the network, and the checksum of its weights
    layers:            the finest first
    scale:             the factor by which an image is enlarged for the network
    channels:          how channels make up pictures, see `encoder_pictures.groups_of`
    """

    encoder: str
    checksum: str
    layers: tuple[EncoderLayer, ...]
    scale: float
    channels: str

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(layer.stride for layer in self.layers)

    @property
    def steps(self) -> int:
        """Pixels of the image per value of the finest layer, along each side."""
        return max(int(self.strides[0] / self.scale), 1)

    def patches(self, size: tuple[int, ...], needed: Region | None = None) -> Iterator[Patch]:
        """The patches of an image of this size (H,W) that contain needed pixels; by default, all."""
        return patches((size[0], size[1]), self.encoder, self.scale, needed or Region.whole(size))


@dataclass(frozen=True)
class EncoderFeatures(FeatureSet):
    """Principal components of a pretrained network's layers.

    Enlarging and projecting can be exchanged: each layer is projected at its own stride, and the sum is enlarged to the
    requested pixels. So nothing of the size of the image has more than F planes.

    low, high:  (C,) float32 values of the image's channels that are shown as black and as white
    projection: (F, channels of all layers) float32; for each layer, the channels of its pictures one after another
    changed:    float32 weights, by name, that replace the network's own in the last stage that is read; or none
    """

    kind: ClassVar[str] = "encoder"

    n_inputs: int
    source: EncoderSource
    low: np.ndarray
    high: np.ndarray
    projection: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    changed: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def from_images(cls, images: Sequence[np.ndarray], config: StackConfig) -> Self:
        images, wanted = slices_of(images), config.encoder
        encoder = find(wanted.name, wanted.layers)
        layers = chosen_layers(encoder, wanted.layers)
        source = EncoderSource(
            encoder.name, encoder.checksum, layers, wanted.scale or encoder.usual_scale, wanted.channels
        )
        n_inputs = len(images[0])
        mean, std = unfitted(0).values()
        with_shades = cls(n_inputs, source, *shades(images), np.zeros((0, 0), np.float32), mean, std)
        rows = with_shades._sample(images)
        projection = principal_components(rows, wanted.n_components)
        mean, std = unfitted(len(projection)).values()
        return replace(with_shades, projection=projection, mean=mean, std=std)

    @property
    def title(self) -> str:
        return f"{self.kind}:{self.source.encoder}"

    @property
    def names(self) -> tuple[str, ...]:
        """Each component with the layer that contributes most to it."""
        n_pictures = len(groups_of(self.n_inputs, self.source.channels))
        ends = np.cumsum([layer.n_channels * n_pictures for layer in self.source.layers])
        energy = self.projection.astype(np.float64) ** 2
        shares = np.stack([part.sum(axis=1) for part in np.split(energy, ends[:-1], axis=1)])
        return tuple(
            f"encoder {number} ({self.source.layers[most].name})"
            for number, most in enumerate(shares.argmax(axis=0), 1)
        )

    @property
    def n_features(self) -> int:
        return len(self.projection)

    @property
    def halo(self) -> int:
        """A pixel depends on its patch, and on the next patch if that is near."""
        return farthest(self.source.encoder, self.source.scale) + 2 * self.source.steps

    def check_here(self) -> None:
        self.network()

    def raw_in(self, image: np.ndarray, region: Region) -> np.ndarray:
        height, width = image.shape[1:]
        steps = self.source.steps
        needed = region.grown(2 * steps, Region.whole((height, width)))
        # The values of the finest layer that cover the needed pixels.
        top, left = needed.top // steps, needed.left // steps
        bottom, right = -(-needed.bottom // steps), -(-needed.right // steps)
        planes = np.empty((self.n_features, bottom - top, right - left), np.float32)

        def fill(patch: Patch) -> None:
            patch_planes = self._patch_planes(image, patch)
            at = Region(
                patch.core.top // steps - top, -(-patch.core.bottom // steps) - top,
                patch.core.left // steps - left, -(-patch.core.right // steps) - left,
            )  # fmt: skip
            there = at.clipped(Region.whole(planes.shape[1:]))
            there.of(planes)[...] = there.within(at).of(patch_planes)

        list(map_threads(fill, self.source.patches((height, width), needed)))
        return at_pixels(planes, steps, (top * steps, left * steps), region)

    def _patch_planes(self, image: np.ndarray, patch: Patch) -> np.ndarray:
        """Components (F,h,w) of a patch's core at the finest stride."""
        seen = np.ascontiguousarray(patch.seen.of(image))
        key = key_of(seen, self._key, patch.core.within(patch.seen), self.projection.tobytes())
        return cached(key, lambda: [self._projected(seen, patch)])[0]

    def _projected(self, seen: np.ndarray, patch: Patch) -> np.ndarray:
        layers = self._layers(seen)
        ends = np.cumsum([len(layer) for layer in layers])
        parts = np.split(self.projection, ends[:-1], axis=1)
        planes = [
            (part @ layer.reshape(len(layer), -1)).reshape(-1, *layer.shape[1:])
            for part, layer in zip(parts, layers, strict=True)
        ]
        strides = self.source.strides
        total = summed(planes, strides, doubled)
        return np.ascontiguousarray(own_part(total, patch, strides[0] / self.source.scale, halved))

    def _layers(self, seen: np.ndarray) -> Layers:
        """The layers (c,h,w) of a part (C,H,W) of an image; each holds the channels of all pictures in turn."""
        return cached(key_of(seen, self._key), lambda: self._computed(seen), on_disk=True)

    def _computed(self, seen: np.ndarray) -> Layers:
        source, encoder = self.source, self.network()
        names = [layer.name for layer in source.layers]
        by_picture = []
        for picture in to_pictures(seen, self.low, self.high, source.channels):
            by_picture.append(encoder.run(network_input(picture, source.scale, encoder.multiple), names))
        return [np.concatenate(parts) for parts in zip(*by_picture, strict=True)]

    def network(self) -> Encoder:
        """The network with the weights of these features."""
        source = self.source
        encoder = find_trained(source.encoder, source.layers, source.checksum)
        if not self.changed:
            return encoder
        from torch import from_numpy

        changed = {name: from_numpy(array) for name, array in self.changed.items()}
        return cast(TorchEncoder, encoder).with_weights(changed)

    @cached_property
    def _key(self) -> tuple[object, ...]:
        own = (1, self.source, self.low.tolist(), self.high.tolist())
        return (*own, fingerprint(*(self.changed[name] for name in sorted(self.changed)))) if self.changed else own

    def _sample(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """(n, channels of all layers): the values of the layers at a lattice of pixels of training images (C,H,W)."""
        step = max(int(np.sqrt(sum(image[0].size for image in images) / FIT_PIXELS)), 1)

        def rows(work: tuple[np.ndarray, Patch]) -> np.ndarray:
            image, patch = work
            layers = self._layers(np.ascontiguousarray(patch.seen.of(image)))
            inner = patch.core.within(patch.seen)
            parts = []
            for layer, stride in zip(layers, self.source.strides, strict=True):
                row = _places(inner.top, inner.bottom, step, self.source.scale / stride)
                column = _places(inner.left, inner.right, step, self.source.scale / stride)
                parts.append(layer[:, row[:, None], column].reshape(len(layer), -1))
            return np.concatenate(parts).T

        work = [(image, patch) for image in images for patch in self.source.patches(image.shape[1:])]
        return np.concatenate(list(map_threads(rows, work)))

    def settings(self) -> dict[str, Any]:
        source = self.source
        layers = [[layer.name, layer.stride, layer.n_channels] for layer in source.layers]
        return {**super().settings(), **vars(source), "layers": layers}

    def arrays(self) -> Arrays:
        own = {"low": self.low, "high": self.high, "projection": self.projection}
        return {**super().arrays(), **own, **{CHANGED + name: array for name, array in self.changed.items()}}

    @classmethod
    def from_file(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        own = {name: settings[name] for name in ("encoder", "checksum", "scale", "channels")}
        described = settings["layers"]
        check_features(
            isinstance(described, list)
            and 1 <= len(described) <= MAX_LAYERS
            and all(isinstance(layer, list) and len(layer) == 3 for layer in described)
        )
        source = EncoderSource(**own, layers=tuple(EncoderLayer(*layer) for layer in described))
        plain = {name: array for name, array in arrays.items() if not name.startswith(CHANGED)}
        changed = {name.removeprefix(CHANGED): array for name, array in arrays.items() if name.startswith(CHANGED)}
        return cls(settings["n_inputs"], source, **plain, changed=changed)

    def validate(self) -> None:
        source, strides = self.source, [2**power for power in range(MAX_STRIDE.bit_length())]
        texts = (source.encoder, source.checksum, source.channels, *(layer.name for layer in source.layers))
        check_features(
            all(isinstance(text, str) and 1 <= len(text) <= MAX_LAYER_NAME for text in texts)
            and type(source.scale) in (int, float)
            and source.scale in SCALES
            and source.channels in ("auto", "each")
            and all(type(n) is int for layer in source.layers for n in (layer.stride, layer.n_channels))
            and all(layer.stride in strides and 1 <= layer.n_channels <= MAX_LAYER_CHANNELS for layer in source.layers)
            and list(source.strides) == sorted(source.strides)
        )
        refuse_unless(can_have(source.encoder, source.layers), "it reads layers that its encoder does not have")
        check_features(type(self.n_inputs) is int and 1 <= self.n_inputs <= self.low.size)
        n_pictures = len(groups_of(self.n_inputs, source.channels))
        n_read = n_pictures * sum(layer.n_channels for layer in source.layers)
        check_features(
            self.low.shape == self.high.shape == (self.n_inputs,)
            and bool(np.isfinite(self.low).all() and np.isfinite(self.high).all() and (self.high > self.low).all())
            and self.projection.ndim == 2
            and self.projection.shape[1] == n_read
            and 1 <= len(self.projection) <= limits_of(EncoderConfig, "n_components")[1]
            and bool((np.abs(self.projection) <= 1e9).all())
        )
        self._validate_changed()
        super().validate()

    def _validate_changed(self) -> None:
        """There may be no changed weights, or all those of the last stage that is read; no feature may overflow."""
        expected = last_shapes(self.source.encoder, [layer.name for layer in self.source.layers])
        arrays = self.changed.values()
        fits = {name: array.shape for name, array in self.changed.items()} == expected and all(
            array.dtype == np.float32 and bool((np.abs(array) <= MAX_CHANGED).all()) for array in arrays
        )
        refuse_unless(fits or not self.changed, "its changed weights are not those of its encoder's last layers")


def _places(first: int, last: int, step: int, per_pixel: float) -> np.ndarray:
    """The places in a layer of the pixels first, first + step, ... before last."""
    return ((np.arange(first, last, step) + 0.5) * per_pixel).astype(int)


def principal_components(rows: np.ndarray, n_components: int) -> np.ndarray:
    """(F,C) float32 directions in which rows (n,C) vary most once each channel is divided by its deviation.

    There are n_components of them, or fewer if there are fewer rows or channels. Applied to a row that is not centred,
    they give its components plus a constant.
    """
    wide = rows.astype(np.float64)
    wide -= wide.mean(axis=0)
    deviation = np.sqrt((wide**2).mean(axis=0))
    scale = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0.0)
    wide *= scale
    with threadpool_limits(1, user_api="blas"):  # threads of OpenBLAS spin while they wait, at the cost of others
        covariance = wide.T @ wide / len(wide)
        values, vectors = np.linalg.eigh(covariance)
    n_components = min(n_components, len(wide), int((values > 1e-9 * values[-1]).sum()) or 1)
    directions = vectors[:, ::-1][:, :n_components].T
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    directions = directions * np.where(largest < 0, -1.0, 1.0)  # of two opposite directions, always the same one
    return _rounded(directions * scale).astype(np.float32)


def _rounded(values: np.ndarray) -> np.ndarray:
    """Values rounded to FRACTION_BITS bits, so that a library that sums in another order gives the same ones."""
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.round(fraction * 2**FRACTION_BITS) / 2**FRACTION_BITS, exponent)


def encoder_of(features: FeatureSet) -> EncoderFeatures | None:
    """The features that come from a pretrained network; they are of one kind at most."""
    members = features.members if isinstance(features, Joined) else (features,)
    return next((member for member in members if isinstance(member, EncoderFeatures)), None)


def changed_of(features: FeatureSet) -> Mapping[str, np.ndarray]:
    """The changed weights of the features' encoder, by name."""
    encoder = encoder_of(features)
    return {} if encoder is None else encoder.changed


def with_changed(features: FeatureSet, changed: Mapping[str, np.ndarray]) -> FeatureSet:
    """The same features with these weights in their encoder, which they must have."""
    if isinstance(features, Joined):
        members = (
            with_changed(member, changed) if isinstance(member, EncoderFeatures) else member
            for member in features.members
        )
        return replace(features, members=tuple(members))
    assert isinstance(features, EncoderFeatures)
    return replace(features, changed=dict(changed))
