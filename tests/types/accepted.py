"""What a user may write: both type checkers accept all of it, and see the types that are asserted. It is never run."""

from pathlib import Path
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import hedgerow as hr
from hedgerow import jobs


def from_arrays(images: list[NDArray[np.uint8]], labels: list[NDArray[np.int64]]) -> float:
    config = hr.StackConfig(n_trees=8, features=("bank", "encoder"), context=hr.ContextConfig(window=65))
    stack = hr.fit_stack(images, labels, config, unlabelled=0, groups=["anna", "anna", "ben"])
    assert_type(stack, hr.ForestStack)
    assert_type(config.n_trees, int)
    net = hr.refine(hr.to_convnet(stack), images, labels, hr.RefineConfig(n_steps=10), groups=[1, 1, 2])
    assert_type(net, hr.StackNet)
    deep = hr.deepen(net, images, labels, hr.DeepConfig(n_folds=4), groups=np.arange(3))
    assert_type(deep, hr.DeepStack)
    for forest in (hr.to_forest(net, images, "leaf_mean"), hr.distil(deep, images)):
        assert_type(forest, hr.ForestStack)
    scores = hr.evaluate(stack, images, labels)
    assert_type(scores, hr.Scores)
    return scores.mean_dice


def from_files(folder: Path) -> None:
    model = hr.fit("photos/", "painted/", "good", minutes=5, unlabelled="auto", groups="^[^_]+")
    assert_type(model, hr.ForestStack | hr.StackNet | hr.DeepStack)
    assert_type(hr.save(model, folder / "model.hedge"), int)
    again = hr.load(folder / "model.hedge")
    image = hr.read_image("photo.png")
    assert_type(again.predict(image), np.ndarray)
    hr.evaluate(again, folder / "images", [folder / "labels" / "a.png"])
    table = hr.measure(hr.read_labels("labels.png"), image, min_size=20, split="distance")
    areas = [item.area for item in table.objects]
    assert_type(areas, list[int])
    hr.show(image, model=again).save("picture.png")
    hr.write_report("report.html", {"DF": again}, "photos/", "painted/", title="Photos")


def one_image(image: NDArray[np.float32], labels: NDArray[np.bool_]) -> hr.PixelClassifier:
    assert_type(hr.class_table(labels).values, tuple[int, ...])
    images, maps = hr.synthetic.somites(n_images=2)
    hr.fit_stack(image, labels, legend=hr.Legend({1: "cell"}, {1: (255, 0, 0)}))
    return hr.PixelClassifier(n_trees=8, refine=hr.RefineConfig()).fit(images, maps)


def the_jobs() -> None:
    trained = jobs.train(jobs.TrainRequest("photos/", "painted/", "model.hedge", unlabelled=0), say=print)
    assert_type(trained.n_bytes, int)
    try:
        jobs.predict(jobs.PredictRequest("model.hedge", "photos/", "segmented/", overlay=True))
    except (hr.InputError, hr.ModelError, hr.ConfigError) as error:
        print(error)
