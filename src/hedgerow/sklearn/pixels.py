"""`PixelClassifier`: from images and labels to a model, in scikit-learn's manner.

It follows scikit-learn's conventions but does not need it: where scikit-learn is installed, `clone` and searches over
parameters work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Literal, Self

import numpy as np

from hedgerow.config import AugmentConfig, ContextConfig, RefineConfig, SamplingConfig, StackConfig
from hedgerow.errors import ConfigError, InputError
from hedgerow.features.registry import layout_of
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.settings_choice import Tune, check_tune, suited_settings
from hedgerow.images.given import given_images, training_set
from hedgerow.images.given_arrays import n_axes_of
from hedgerow.images.labelled import Images
from hedgerow.images.legend import Legend
from hedgerow.images.subjects import Groups, grouped
from hedgerow.model_methods import NotebookCard
from hedgerow.predict.evaluate import evaluate
from hedgerow.predict.protocol import Model
from hedgerow.progress import Report

_SETTINGS = ("n_levels", "n_trees", "max_depth", "features", "balance", "seed", "context", "sampling", "augment")
log = logging.getLogger("hedgerow")


@dataclass(repr=False, eq=False)
class PixelClassifier(NotebookCard):
    """Segments images, pixel by pixel: a stack of forests, or with `refine` the network refined from it.

    n_levels, n_trees, max_depth, features, balance, seed: as in `StackConfig`
    context, sampling, augment: groups of settings, as in `StackConfig`
                None: chosen for the images, so that `PixelClassifier()` fits the model of `hr.fit_stack`
    tune:       "auto": settings that are None are chosen by rules and by what held-out images prefer; "off": they are
                the plain defaults
    refine:     False: forests; True: the refined network; or a RefineConfig for it. Refinement needs PyTorch
    unlabelled: the label value that means "no label"; None: 255, but an InputError of `fit` asks if 0 or -1 looks like
                that value; "auto": 255, or 0 or -1 if it looks like that value
    legend:     names and colours of the classes

    After `fit`:
    classes_: (C,) class values
    model_:   ForestStack, or StackNet; `hr.save` writes either

    >>> images, labels = hr.synthetic.somites(n_images=3, size=(40, 48))
    >>> model = hr.PixelClassifier(n_levels=1, n_trees=2).fit(images[:2], labels[:2])
    >>> model.predict(images[2]).shape, len(model.predict(images))
    ((40, 48), 3)
    >>> 0 < model.score(images[2], labels[2]) < 1
    True
    """

    # The limits of the parameters are checked by `fit`: scikit-learn's `clone` and `set_params` expect that.
    n_levels: int | None = None
    n_trees: int | None = None
    max_depth: int | None = None
    _: KW_ONLY
    features: str | tuple[str, ...] | None = None
    balance: bool | None = None
    context: ContextConfig | None = None
    sampling: SamplingConfig | None = None
    augment: AugmentConfig | None = None
    seed: int = StackConfig.seed
    tune: Tune = "auto"
    refine: bool | RefineConfig = False
    unlabelled: int | Literal["auto"] | None = None
    legend: Legend | None = None

    def fit(self, images: Images, labels: Images, *, groups: Groups = None, progress: Report | None = None) -> Self:
        """images: (H,W[,C]) each, or (F,H,W) for features="channels"; labels: (H,W) each; or one image and its labels;
        or files of both, each a folder, a file or a glob.

        groups:   which images are held out together, as of `fit`
        progress: report function; None: a bar on the terminal or in the notebook
        """
        given, how = self._given(), self._refinement()
        layout = layout_of(StackConfig(**given).features)
        images, labels = _one_by_one(images, labels)
        labelled = training_set(images, labels, layout, self.unlabelled, None, self.legend)
        labelled = grouped(labelled, groups, log.warning)
        chosen = suited_settings(labelled, check_tune(self.tune), log.info, given, progress)
        stack = grow_stack(labelled, chosen, progress=progress)
        self.model_: Model = stack
        if how is not None:
            from hedgerow.network.mapping import to_convnet
            from hedgerow.refinement.loop import refine

            self.model_ = refine(to_convnet(stack), images, labels, how, groups=groups, progress=progress)
        self.classes_ = np.array(stack.classes)
        return self

    def predict(self, images: Images) -> Any:
        """(H,W) class values of an image, or a list of them for a list of images."""
        return self._each(images, lambda image: self._fitted().predict(image))

    def predict_proba(self, images: Images) -> Any:
        """(C,H,W) float32 class probabilities of an image, in the order of `classes_`, or a list for a list."""
        return self._each(images, lambda image: self._fitted().predict_proba(image))

    def score(self, images: Images, labels: Images) -> float:
        """Mean Dice over the classes, pooled over all labelled pixels; accuracy would mostly score the background."""
        unlabelled = None if self.unlabelled == "auto" else self.unlabelled
        return evaluate(self._fitted(), *_one_by_one(images, labels), unlabelled=unlabelled).mean_dice

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; they have no parameters of their own, so `deep` changes nothing."""
        return {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change parameters, for the next `fit`."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ConfigError(f"PixelClassifier has no parameter {name!r}; it has {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def changed(self) -> dict[str, Any]:
        """The parameters that differ from their defaults."""
        values = {parameter: getattr(self, parameter.name) for parameter in fields(self)}
        return {parameter.name: value for parameter, value in values.items() if value != parameter.default}

    def __repr__(self) -> str:
        return f"PixelClassifier({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        """For scikit-learn's tools. To them it is no classifier: they would balance folds by a y of shape (S,)."""
        from sklearn.utils import InputTags, Tags, TargetTags

        needs = TargetTags(required=True, multi_output=True)
        return Tags(estimator_type=None, target_tags=needs, input_tags=InputTags(three_d_array=True))

    def _given(self) -> dict[str, Any]:
        """The settings of the stack that were given."""
        return {name: value for name in _SETTINGS if (value := getattr(self, name)) is not None}

    def _refinement(self) -> RefineConfig | None:
        """The settings of the refinement; None: there is none."""
        if isinstance(self.refine, bool | np.bool_):
            return RefineConfig(seed=self.seed) if self.refine else None
        if not isinstance(self.refine, RefineConfig):
            raise ConfigError(f"refine is {self.refine!r}; give True, False or a RefineConfig.")
        return self.refine

    def _fitted(self) -> Model:
        if not self.__sklearn_is_fitted__():
            raise InputError("the PixelClassifier has not been fitted; call its fit(images, labels) first.")
        return self.model_

    def _each(self, images: Images, answer: Callable[[np.ndarray], np.ndarray]) -> np.ndarray | list[np.ndarray]:
        """The answer for one image, or a list of answers for a list of images."""
        features = self._fitted().features
        many, is_one = given_images(images, features.n_inputs, features.layout)
        answers = [answer(image) for image in many]
        return answers[0] if is_one else answers


def _one_by_one(images: Images, labels: Images) -> tuple[Images, Images]:
    """Images and labels as lists if both are arrays of many: to scikit-learn, the first axis is that of the samples."""
    is_many = n_axes_of(labels) == 3 and n_axes_of(images) in (3, 4) and len(images) == len(labels)  # type: ignore[arg-type]
    if not is_many or np.shape(labels)[2] in (1, 3, 4):  # type: ignore[arg-type]  # one label map in colours
        return images, labels
    return list(images), list(labels)  # type: ignore[arg-type]
