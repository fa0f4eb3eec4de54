"""The section on inner layers: the predictions of each level of a model, in the figure of `look`."""

from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.level_input import tiles
from hedgerow.images.pictures import grey_picture, painted
from hedgerow.predict.tiling import region_outputs
from hedgerow.report.embed import embed_figure
from hedgerow.report.layer_maps import LayerRecorder, LevelMaps, plan_rows
from hedgerow.report.measure import MeasuredModel, same_stack
from hedgerow.report.naming import with_article
from hedgerow.report.sections import Comparison, Section


def inner_layers(comparison: Comparison) -> list[Section]:
    """The figure of `look` for the recorded crop: of the best network or, if there is none, of the best forest."""
    from hedgerow.report import panels  # needs matplotlib

    networks = [model for model in comparison.models if not isinstance(model.model, ForestStack)]
    model = max(networks, key=lambda network: network.scores.mean_dice) if networks else comparison.best
    crop, classes, image = comparison.crop, comparison.classes, comparison.labelled.images[comparison.crop.image]
    forests, above = (forest_layers(model, comparison), model.layers) if networks else (model.layers, ())
    side_pictures = {
        "image": grey_picture(crop.thinned(image.planes), model.model.features.blank),
        "truth": painted(comparison.labelled.values(crop.thinned(image.target)), classes.palette),
    }
    rows = plan_rows(forests, above)
    figure = panels.draw(rows, crop.classes, classes, side_pictures)
    what = (
        "probabilities of the forests next to layers of the network" if networks else "probabilities after each level"
    )
    what += ", and the convolutional level" if len(above) > len(forests) else ""
    alt = f"Class by class, the {what} of {model.name} on {image.name}"
    text = (
        f"The predictions of every level of {with_article(model.name)} on {image.name}, class by class. Brighter "
        "is higher; the first column shows the most likely class."
    )
    size = (crop.region.height, crop.region.width)
    if size != image.size:
        text += f" Only the middle of the image is drawn, {size[0]} by {size[1]} pixels."
    return [Section("layers", "Inside the model", text, (embed_figure(figure, alt),), is_wide=True)]


def forest_layers(network: MeasuredModel, comparison: Comparison) -> tuple[LevelMaps, ...]:
    """The layers of a network's forests: as measured, if they are among the models; else the forests run here."""
    for model in comparison.models:
        if isinstance(model.model, ForestStack) and same_stack(model.model, network.stack):
            return model.layers
    image, recorder = comparison.labelled.images[comparison.crop.image], LayerRecorder(comparison.crop, network.stack)
    for region in tiles(network.stack, image.size):
        recorder.add(region_outputs(network.stack, image.planes, region), region)
    return recorder.levels()
