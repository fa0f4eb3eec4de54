"""Back to forests: they learn to say what the whole model says."""

import numpy as np
import pytest

pytest.importorskip("torch")

import hedgerow as hr
from hedgerow import jobs
from hedgerow.progress import silent
from helpers.deep import pictures, small_deep
from helpers.files import write
from helpers.refusals import assert_one_sentence


@pytest.fixture(scope="module")
def deep():
    return small_deep(*pictures())


def distance(model, deep, images):
    """Mean cross-entropy of what a model says to what the deep stack says."""
    each = [-(deep.predict_proba(image) * np.log(model.predict_proba(image) + 1e-9)).sum(axis=0) for image in images]
    return float(np.mean(each))


def test_the_forests_come_closer_to_the_whole_model(deep):
    images = pictures(6, seed=9)[0]  # nobody labelled these
    small = hr.distil(deep, images)
    assert isinstance(small, hr.ForestStack)
    assert small.settings["mapped_back"] == "distilled"
    plain = hr.to_forest(deep.base, images, "leaf_mean")
    assert distance(small, deep, images) < distance(plain, deep, images)


def test_back_distils_a_deep_stack_from_files(deep, tmp_path):
    images = pictures(2)[0]
    for k, image in enumerate(images):
        write(tmp_path / "images" / f"{k}.tif", image)
    hr.save(deep, tmp_path / "deep.hedge")
    result = jobs.back(
        jobs.BackRequest(tmp_path / "deep.hedge", tmp_path / "small.hedge", tmp_path / "images"), progress=silent
    )
    again = hr.load(tmp_path / "small.hedge")
    np.testing.assert_array_equal(again.predict(images[0]), hr.distil(deep, images).predict(images[0]))
    assert result.n_bytes == (tmp_path / "small.hedge").stat().st_size
    with pytest.raises(hr.InputError) as problem:
        jobs.back(
            jobs.BackRequest(tmp_path / "deep.hedge", tmp_path / "soft.hedge", tmp_path / "images", "soft"),
            progress=silent,
        )
    assert_one_sentence(problem, "leave out --method")
    with pytest.raises(hr.InputError) as problem:
        jobs.refine(
            jobs.RefineRequest(
                tmp_path / "deep.hedge", tmp_path / "images", tmp_path / "images", tmp_path / "net.hedge"
            )
        )
    assert_one_sentence(problem, "convolutional level")


def test_what_cannot_be_distilled_is_refused(deep):
    with pytest.raises(hr.InputError) as problem:
        hr.distil(deep.base, pictures(1)[0])
    assert_one_sentence(problem, "deepen")
    with pytest.raises(hr.InputError) as problem:
        hr.distil(deep, [])
    assert_one_sentence(problem, "needs images")
