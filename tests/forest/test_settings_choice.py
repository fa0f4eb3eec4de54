"""Settings that suit the images: what rules say, and what held-out subjects prefer."""

from dataclasses import replace

import numpy as np
import pytest

import hedgerow as hr
from conftest import draw
from hedgerow.errors import ConfigError
from hedgerow.forest import default_settings, settings_choice
from hedgerow.forest.default_settings import labelled_fraction, settings_for
from hedgerow.forest.judges import Judge, held_out_judges
from hedgerow.forest.settings_choice import Option, Search, suited_settings
from hedgerow.images.given import labelled_set
from hedgerow.images.instances import OBJECT_LEGEND
from hedgerow.threads import threads

SIZE = (120, 140)


def drawn(n=4, size=SIZE, change=lambda k, image: image):
    pairs = [draw(seed, size=size) for seed in range(n)]
    return labelled_set([change(k, image) for k, (image, _) in enumerate(pairs)], [labels for _, labels in pairs])


def exposed(k, image):
    """Every image with a brightness and a contrast of its own."""
    return (image.astype(np.float32) * 4.0**k + 300 * (-1) ** k * k).astype(np.float32)


@pytest.fixture(autouse=True)
def _bank_alone(monkeypatch):
    monkeypatch.setattr(default_settings, "default_encoder_is_installed", lambda: False)


def test_off_keeps_the_plain_defaults():
    for labelled in (drawn(1), drawn(2, (40, 50)), drawn(5, change=exposed)):
        messages = []
        assert suited_settings(labelled, "off", messages.append) == hr.StackConfig()
        assert messages == []
    with pytest.raises(ConfigError, match="must be auto or off"):
        suited_settings_of_fit("none")


def suited_settings_of_fit(tune):
    image, labels = draw(0, size=(40, 60))
    return hr.fit_stack([image], [labels], tune=tune)


@pytest.mark.parametrize(("n", "size", "window"), [(1, SIZE, 33), (1, (36, 50), 19), (3, (36, 50), 19)])
def test_small_images_and_single_ones_have_a_smaller_window(monkeypatch, n, size, window):
    monkeypatch.setattr(settings_choice, "held_out_judges", lambda *_: [])
    messages = []
    chosen = suited_settings(drawn(n, size), "auto", messages.append)
    copies = chosen.augment.copies
    assert copies == (0 if size == SIZE else 2)
    plain = replace(chosen, augment=hr.StackConfig().augment)
    assert plain == replace(hr.StackConfig(), context=hr.ContextConfig(window=window))
    assert ("copies" in messages[0]) == (copies > 0)
    assert len(messages) == 1
    assert f"{window} pixels" in messages[0]
    assert "--tune off" in messages[0]


def test_with_several_large_images_rules_change_nothing(monkeypatch):
    monkeypatch.setattr(settings_choice, "held_out_judges", lambda *_: [])
    assert suited_settings(drawn(2)) == hr.StackConfig()
    many = np.arange(SIZE[0] * SIZE[1]).reshape(SIZE) % 13
    assert suited_settings(labelled_set([draw(0, size=SIZE)[0]], [many])).context.window == 129


def test_stacks_that_learn_objects_scale_each_image_and_look_near(monkeypatch):
    monkeypatch.setattr(settings_choice, "held_out_judges", lambda *_: [])
    pairs = [draw(seed, size=SIZE) for seed in range(3)]
    named = labelled_set([image for image, _ in pairs], [labels // 77 for _, labels in pairs], legend=OBJECT_LEGEND)
    messages = []
    chosen = suited_settings(named, "auto", messages.append)
    assert chosen == hr.StackConfig(normalise=True, context=hr.ContextConfig(window=33))
    assert "objects are learned" in messages[0]
    given = {"normalise": False, "context": hr.ContextConfig(window=65)}
    assert suited_settings(named, "auto", changes=given) == hr.StackConfig(**given)
    assert suited_settings(named, "off") == hr.StackConfig()


def test_copies_are_made_only_if_there_is_time(monkeypatch):
    monkeypatch.setattr(settings_choice, "held_out_judges", lambda *_: [])
    for n, n_copies in ((1, 2), (150, 1)):
        assert suited_settings(drawn(n, (36, 50))).augment.copies == n_copies
    monkeypatch.setattr(settings_choice, "MOST_TIMES", 1.0)
    assert suited_settings(drawn(150, (36, 50))) == hr.StackConfig(context=hr.ContextConfig(window=19))
    given = hr.AugmentConfig(copies=5)
    assert suited_settings(drawn(1, (36, 50)), changes={"augment": given}).augment == given


def test_slices_of_one_subject_are_too_small_for_the_pretrained_network(monkeypatch):
    monkeypatch.setattr(default_settings, "default_encoder_is_installed", lambda: True)
    tiny, messages = drawn(1, (36, 50)), []
    assert suited_settings(tiny, "auto", messages.append).features == "bank"
    assert "filter bank alone" in messages[0]
    assert len(messages) == 1, "nothing says that the network is read"
    assert suited_settings(tiny, changes={"features": "encoder"}).features == "encoder"
    assert suited_settings(drawn(1)).features == ("bank", "encoder")


def test_what_a_caller_sets_is_not_chosen(monkeypatch):
    context = hr.ContextConfig(window=65)
    chosen = suited_settings(drawn(1, (36, 50)), changes={"context": context, "n_trees": 3})
    assert (chosen.context, chosen.n_trees) == (context, 3)
    tried = []
    monkeypatch.setattr(Judge, "dice", lambda self, config, n_levels, progress: tried.append(config) or 0.5)
    suited_settings(drawn(5, (36, 50)), changes={"balance": False, "normalise": False, "context": context})
    assert tried == []


def test_held_out_images_prefer_those_that_are_normalised():
    messages = []
    labelled = drawn(6, (60, 70), exposed)
    chosen = suited_settings(labelled, "auto", messages.append)
    assert chosen.normalise
    assert "own intensities" in messages[-1]
    assert "held-out images" in messages[-1]
    with threads(3):
        assert suited_settings(labelled) == chosen
    with threads(1):
        assert suited_settings(labelled) == chosen


def test_the_choice_says_that_it_begins_and_reports_every_tree():
    """It may take a minute on a busy machine."""
    messages, reports = [], []
    suited_settings(drawn(6, (60, 70), exposed), "auto", messages.append, progress=lambda *what: reports.append(what))
    assert messages[0] == "choosing settings by small stacks on held-out images"
    assert {text for text, _, _ in reports} == {"choosing settings"}
    done, (total,) = [done for _, done, _ in reports], {total for _, _, total in reports}
    assert done == sorted(done)
    assert len(set(done)) > 20
    assert 0 < done[-1] <= total


def test_one_image_or_group_is_not_divided():
    one = drawn(1)
    of_one_subject = replace(drawn(4), images=[replace(image, subject="a") for image in drawn(4)])
    for labelled in (one, of_one_subject):
        assert held_out_judges(labelled, hr.StackConfig()) == []


def test_judges_hold_out_whole_subjects_with_known_classes():
    images = [replace(image, subject=f"{k // 2}") for k, image in enumerate(drawn(8))]
    rare = replace(images[7], target=np.where(images[7].target == 2, 1, images[7].target).astype(np.uint8))
    judges = held_out_judges(replace(drawn(1), images=[*images[:7], rare]), hr.StackConfig())
    assert len(judges) == 2
    for judge in judges:
        of_trained, of_scored = ({image.subject for image in part} for part in (judge.trained, judge.scored))
        assert not of_trained & of_scored
        assert of_trained | of_scored == {"0", "1", "2", "3"}
        assert len(of_scored) == 1
    own = [replace(image, target=np.full_like(image.target, k)) for k, image in enumerate(drawn(2))]
    assert held_out_judges(replace(drawn(1), images=own), hr.StackConfig()) == []


class Table:
    """A judge that knows the scores: (balanced, window) -> Dice after one level and after two."""

    def __init__(self, scores):
        self.scores, self.asked = scores, []

    def cost(self, config, n_levels):
        return n_levels

    def dice(self, config, n_levels, progress):
        self.asked.append((config.balance, config.context.window, n_levels))
        return self.scores[config.balance, config.context.window][n_levels - 1]


BALANCED = Option("balance", "balanced", lambda config: replace(config, balance=True))
NEAR = Option("context", "near", lambda config: replace(config, context=replace(config.context, window=33)))


@pytest.mark.parametrize(
    ("scores", "seconds", "words"),
    [
        # Balancing raises the first level and ruins the second.
        ({(0, 129): (0.3, 0.5), (1, 129): (0.5, 0.4), (0, 33): (0.2, 0.9)}, 99, []),
        ({(0, 129): (0.3, 0.5), (1, 129): (0.4, 0.6), (0, 33): (0.2, 0.9)}, 99, ["balanced"]),
        # A gain below the margin is noise.
        ({(0, 129): (0.3, 0.5), (1, 129): (0.4, 0.505), (0, 33): (0.2, 0.9)}, 99, []),
        # No time for the second round.
        ({(0, 129): (0.3, 0.5), (1, 129): (0.4, 0.6), (0, 33): (0.2, 0.9)}, 4, []),
        ({(0, 129): (0.3, 0.5), (1, 129): (0.4, 0.6), (0, 33): (0.2, 0.9)}, 0.5, []),
    ],
)
def test_a_candidate_must_gain_at_both_rounds(scores, seconds, words):
    judge = Table(scores)
    chosen, found, before, after = Search([judge], seconds).best(hr.StackConfig(), [BALANCED, NEAR])
    assert found == words
    assert chosen == (BALANCED.change(hr.StackConfig()) if words else hr.StackConfig())
    assert after >= before
    assert sum(asked[-1] for asked in judge.asked) <= seconds


def test_strokes_may_be_so_dense_that_full_settings_are_better(monkeypatch):
    image, labels = draw(0, size=(60, 80))
    paint = np.full_like(labels, 255)
    paint[3::12] = labels[3::12]
    labelled = labelled_set([image], [paint])
    assert labelled_fraction(labelled) < default_settings.SPARSE_FRACTION
    strokes = settings_for(labelled_fraction(labelled))
    (judge,) = held_out_judges(labelled, strokes)
    held, trained = judge.scored.images[0].target != 255, judge.trained.images[0].target != 255
    assert held.any()
    assert trained.any()
    assert not (held & trained).any()
    np.testing.assert_array_equal(held | trained, labelled.images[0].target != 255)
    for preferred in (1, 3):
        monkeypatch.setattr(
            Judge,
            "dice",
            lambda self, config, n_levels, progress, preferred=preferred: 0.9 if config.n_levels == preferred else 0.5,
        )
        assert suited_settings(labelled).n_levels == preferred


def test_every_way_to_train_chooses_the_same():
    images, labels = zip(*(draw(seed, size=(60, 70)) for seed in range(6)), strict=True)
    images = [exposed(k, image) for k, image in enumerate(images)]
    expected = suited_settings(labelled_set(images, labels))
    assert expected.normalise
    for model in (
        hr.fit_stack(images, labels),
        hr.fit(images, labels),
        hr.PixelClassifier().fit(images, labels).model_,
    ):
        assert hr.StackConfig.from_dict(model.settings["config"]) == expected
    plain = (hr.fit_stack(images, labels, tune="off"), hr.fit(images, labels, tune="off"))
    for model in (*plain, hr.PixelClassifier(tune="off").fit(images, labels).model_):
        assert hr.StackConfig.from_dict(model.settings["config"]) == hr.StackConfig()


def drawn_volumes(n, size):
    volumes, labels = hr.synthetic.embryo(n, size, anisotropy=2)
    return labelled_set(volumes, labels, axes="ZYX", voxel_size=(2, 1, 1))


def test_volumes_have_rules_of_their_own(monkeypatch):
    """Small volumes have altered copies, the fewer the more volumes there are; none read the pretrained network."""
    monkeypatch.setattr(settings_choice, "held_out_judges", lambda *_: [])
    monkeypatch.setattr(default_settings, "default_encoder_is_installed", lambda: True)
    for n, n_copies in ((1, 8), (10, 5), (60, 0)):
        messages = []
        chosen = suited_settings(drawn_volumes(n, (4, 64, 72)), "auto", messages.append)
        assert chosen.features == "bank"
        assert chosen.augment.copies == n_copies
        assert (chosen.augment.tilt > 0) == (n_copies > 0) == ("copies of each volume" in messages[0])
        assert chosen.context == hr.ContextConfig(window=33)
        assert chosen.sampling.step == default_settings.VOLUME_STEP
        assert chosen.drop_levels == (n >= 4)
        assert "volumes have sides of 64 pixels" in messages[0]
    larger = suited_settings(drawn_volumes(4, (2, 100, 110)))
    assert larger == hr.StackConfig(sampling=hr.SamplingConfig(step=default_settings.VOLUME_STEP))


def test_what_a_caller_sets_for_volumes_is_kept(monkeypatch):
    monkeypatch.setattr(settings_choice, "held_out_judges", lambda *_: [])
    given = {
        "augment": hr.AugmentConfig(copies=1), "sampling": hr.SamplingConfig(step=1),
        "context": hr.ContextConfig(window=9),
    }  # fmt: skip
    chosen = suited_settings(drawn_volumes(1, (4, 64, 72)), changes=given)
    assert {name: getattr(chosen, name) for name in given} == given


def test_fully_labelled_volumes_are_left_to_rules_but_for_the_window():
    """Small stacks preferred balanced classes of volumes, with which whole stacks were worse."""
    tiny, larger = drawn_volumes(4, (2, 64, 72)), drawn_volumes(4, (2, 100, 110))
    assert settings_choice.settings_choice(tiny).options == []
    assert [option.name for option in settings_choice.settings_choice(larger).options] in ([], ["context"])
