"""The layers of a viewer: images, paint, and predictions. It needs no window."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from napari.layers import Image, Labels, Layer

import hedgerow as hr
from napari_hedgerow.engine import Picture, Predicted
from napari_hedgerow.planes import ImageData, painted_plane, within

MARK = "hedgerow"  # in the metadata of a prediction's layer: its kind and the id of its image


@dataclass(frozen=True)
class Place:
    """The plane of an image layer that a prediction belongs to."""

    layer: Image
    data: ImageData
    position: int


class Scene:
    """The layers of a viewer, or of a viewer model without a window."""

    def __init__(self, viewer: Any) -> None:
        self.viewer = viewer

    def images(self) -> list[Image]:
        """The image layers that are not predictions."""
        return [layer for layer in self.viewer.layers if isinstance(layer, Image) and MARK not in layer.metadata]

    def paints(self) -> list[Labels]:
        """The labels layers that are not predictions."""
        return [layer for layer in self.viewer.layers if isinstance(layer, Labels) and MARK not in layer.metadata]

    def picture(self, image: Image, has_channels: bool) -> Picture:
        """The current plane of an image layer."""
        self._refuse_volumes()
        data = data_of(image, has_channels)
        position = self.position(image)
        return Picture(data.plane(position), image.name, Place(image, data, position))

    def painted(self, paint: Labels, picture: Picture) -> np.ndarray:
        """A copy of the labels (H,W) painted on a picture."""
        return painted_plane(full_size(paint), self.position(paint), picture.key.data.size, paint.name)

    def position(self, layer: Layer) -> int:
        """The number of the plane of a stack that the sliders show."""
        if layer.ndim < 3:
            return 0
        return within(
            round(float(layer.world_to_data(self.viewer.dims.point)[-3])), full_size(layer).shape[-3 - is_rgb(layer)]
        )

    def add_paint(self, image: Image, has_channels: bool) -> Labels:
        """Add an empty labels layer over an image, ready to paint on."""
        data = data_of(image, has_channels)
        blank = np.zeros(data.label_shape, np.uint8)
        paint = Labels(blank, name=f"{image.name} paint", **placed_as(image, blank.ndim))
        self.viewer.add_layer(paint)
        paint.brush_size = max(3, round(min(data.size) / 60))
        paint.mode = "paint"
        self.viewer.layers.selection.active = paint
        return paint

    def show(self, prediction: Predicted) -> None:
        """Show a prediction in its layers, which are created the first time; does nothing if its image is gone."""
        place: Place = prediction.picture.key
        if place.layer not in self.viewer.layers:
            return
        self._show_labels(place, prediction.labels)
        if prediction.proba is not None:
            self._show_proba(place, prediction.proba, prediction.classes)

    def _show_labels(self, place: Place, labels: np.ndarray) -> None:
        layer, shape = self._shown(place.layer, "segmentation"), place.data.label_shape
        whole = np.zeros(shape, labels.dtype)
        if layer is not None and layer.data.shape == shape:
            whole = np.asarray(layer.data, np.promote_types(layer.data.dtype, labels.dtype))
        if len(shape) == 2:
            whole = labels
        else:
            whole[place.position] = labels
        if layer is None:
            new = Labels(
                whole, opacity=0.45, **self._as_new(place.layer, "segmentation"), **placed_as(place.layer, len(shape))
            )
            self._insert(new, above=place.layer)
        else:
            layer.data = whole

    def _show_proba(self, place: Place, proba: np.ndarray, classes: tuple[int, ...]) -> None:
        """Show probabilities (C,H,W) with a slider for the classes; those of a stack at the position of their plane."""
        layer, matrix = self._shown(place.layer, "probabilities"), affine_of(place.layer)
        if place.data.n_planes is not None:
            proba = proba[:, np.newaxis]
            matrix[:-1, -1] += place.position * matrix[:-1, 0]
        else:
            matrix = matrix[-3:, -3:]  # without the axis of channels
        affine = np.eye(len(matrix) + 1)
        affine[1:, 1:] = matrix
        if layer is None:
            new = Image(
                proba, contrast_limits=(0, 1), colormap="viridis", visible=False, affine=affine,
                **self._as_new(place.layer, "probabilities"),
            )  # fmt: skip
            self._insert(new, above=place.layer)
        else:
            layer.data, layer.affine = proba, affine
        self._shown(place.layer, "probabilities").metadata["classes"] = classes

    def _as_new(self, image: Image, kind: str) -> dict[str, Any]:
        return {"name": f"{image.name} {kind}", "metadata": {MARK: (kind, image.unique_id)}}

    def _shown(self, image: Image, kind: str) -> Any:
        """The layer with this kind of prediction for an image, or None."""
        mark = (kind, image.unique_id)
        return next((layer for layer in self.viewer.layers if layer.metadata.get(MARK) == mark), None)

    def _insert(self, layer: Layer, above: Layer) -> None:
        """Add a layer under the paint, without changing the active layer or the sliders."""
        active, point = self.viewer.layers.selection.active, self.viewer.dims.point
        self.viewer.layers.insert(self.viewer.layers.index(above) + 1, layer)
        self.viewer.layers.selection.active = active
        if self.viewer.dims.ndim > len(point):  # there is a new slider for the classes; the others keep their positions
            self.viewer.dims.point = (*self.viewer.dims.point[: -len(point)], *point)

    def _refuse_volumes(self) -> None:
        dims = self.viewer.dims
        if dims.ndisplay != 2:
            raise hr.InputError("the view shows a volume, expected one plane; switch it to 2-D.")
        if tuple(dims.displayed) != (dims.ndim - 2, dims.ndim - 1):
            raise hr.InputError(
                "the view shows a stack from its side, expected its planes; restore the order of its axes."
            )


def data_of(image: Image, has_channels: bool) -> ImageData:
    """The data of an image layer at full resolution; `has_channels` is ignored if it cannot have channels."""
    array = full_size(image)
    return ImageData(array, is_rgb(image), has_channels and may_have_channels(image), image.name)


def may_have_channels(image: Image) -> bool:
    """Whether the first axis of an image layer may be channels."""
    return image.ndim == 3 and not image.rgb


def full_size(layer: Any) -> Any:
    """The data of a layer at its highest resolution."""
    return layer.data[0] if getattr(layer, "multiscale", False) else layer.data


def is_rgb(layer: Any) -> bool:
    return bool(getattr(layer, "rgb", False))


def placed_as(image: Image, n_axes: int) -> dict[str, Any]:
    """Arguments that place a layer with `n_axes` axes over an image layer."""
    return {"affine": affine_of(image)[-n_axes - 1 :, -n_axes - 1 :]}


def affine_of(layer: Layer) -> np.ndarray:
    """(d+1,d+1): the matrix from pixels of a layer to world coordinates."""
    d = layer.ndim
    origin = np.asarray(layer.data_to_world((0,) * d))
    matrix = np.eye(d + 1)
    matrix[:d, d] = origin
    for axis in range(d):
        matrix[:d, axis] = np.asarray(layer.data_to_world(np.eye(d)[axis])) - origin
    return matrix
