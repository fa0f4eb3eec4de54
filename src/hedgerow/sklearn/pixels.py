"""`PixelClassifier`: the whole way from images and labels to a model, in scikit-learn's manner.

It follows scikit-learn's conventions without needing it: `clone` and searches over parameters work where it is there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import numpy as np

from hedgerow.config import AugmentConfig, ContextConfig, RefineConfig, SamplingConfig, StackConfig
from hedgerow.errors import ConfigError, InputError
from hedgerow.forest.autocontext import fit_stack
from hedgerow.images.given import given_images
from hedgerow.images.legend import Legend
from hedgerow.images.listed import Images
from hedgerow.model_methods import NotebookCard
from hedgerow.predict.evaluate import evaluate
from hedgerow.predict.protocol import Model
from hedgerow.progress import Report

_STACK = ("n_levels", "n_trees", "max_depth", "features", "balance", "seed")
_NESTED = ("context", "sampling", "augment")


class PixelClassifier(NotebookCard):
    """Segments images, pixel by pixel: a stack of forests, or with `refine` the network refined from it.

    n_levels, n_trees, max_depth, features, balance, seed: as in `StackConfig`
    context, sampling, augment: groups of more settings, as in `StackConfig`; None: their defaults
    refine:     False: forests; True: the network, refined; or a RefineConfig, which says how. It needs PyTorch
    unlabelled: the label value that means "no label"; None: 255, but if another value looks like it, `fit` asks with an
                InputError; "auto": decided by what it looks like
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

    def __init__(
        self,
        n_levels: int = StackConfig.n_levels,
        n_trees: int = StackConfig.n_trees,
        max_depth: int = StackConfig.max_depth,
        *,
        features: str | tuple[str, ...] = StackConfig.features,
        balance: bool = StackConfig.balance,
        context: ContextConfig | None = None,
        sampling: SamplingConfig | None = None,
        augment: AugmentConfig | None = None,
        seed: int = StackConfig.seed,
        refine: bool | RefineConfig = False,
        unlabelled: int | Literal["auto"] | None = None,
        legend: Legend | None = None,
    ) -> None:
        # As they are given: limits are checked by `fit`, as scikit-learn's `clone` and `set_params` expect.
        self.n_levels = n_levels
        self.n_trees = n_trees
        self.max_depth = max_depth
        self.features = features
        self.balance = balance
        self.context = context
        self.sampling = sampling
        self.augment = augment
        self.seed = seed
        self.refine = refine
        self.unlabelled = unlabelled
        self.legend = legend

    def fit(self, images: Images, labels: Images, *, progress: Report | None = None) -> Self:
        """images: (H,W[,C]) each, or (F,H,W) for features="channels"; labels: (H,W) each; or one image and its labels;
        or files of both, each a folder, a file or a glob.

        progress: report function; None: a bar on the terminal or in the notebook
        """
        config, how = self._config(), self._refinement()
        stack = fit_stack(images, labels, config, unlabelled=self.unlabelled, legend=self.legend, progress=progress)
        self.model_: Model = stack
        if how is not None:
            from hedgerow.network.mapping import to_convnet
            from hedgerow.refinement.loop import refine

            self.model_ = refine(to_convnet(stack), images, labels, how, progress=progress)
        self.classes_ = np.array(stack.classes)
        return self

    def predict(self, images: Images) -> Any:
        """(H,W) class values of an image, or a list of them for a list of images."""
        return self._each(images, lambda image: self._fitted().predict(image))

    def predict_proba(self, images: Images) -> Any:
        """(C,H,W) float32 class probabilities of an image, in the order of `classes_`, or a list for a list."""
        return self._each(images, lambda image: self._fitted().predict_proba(image))

    def score(self, images: Images, labels: Images) -> float:
        """Mean Dice over the classes, pooled over all labelled pixels: in most images, accuracy is the background's."""
        unlabelled = None if self.unlabelled == "auto" else self.unlabelled
        return evaluate(self._fitted(), images, labels, unlabelled=unlabelled).mean_dice

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; there are none below them, so `deep` changes nothing."""
        return {name: getattr(self, name) for name in _defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters, for the next `fit`."""
        known = _defaults()
        for name, value in params.items():
            if name not in known:
                raise ConfigError(f"PixelClassifier has no parameter {name!r}; it has {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def changed(self) -> dict[str, Any]:
        """The parameters that differ from their defaults."""
        return {name: value for name, value in self.get_params().items() if value != _defaults()[name]}

    def __repr__(self) -> str:
        return f"PixelClassifier({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        """For scikit-learn's tools. Not a classifier of samples to them: those would balance folds by y, (S,)."""
        from sklearn.utils import InputTags, Tags, TargetTags

        needs = TargetTags(required=True, multi_output=True)
        return Tags(estimator_type=None, target_tags=needs, input_tags=InputTags(three_d_array=True))

    def _config(self) -> StackConfig:
        groups = {name: getattr(self, name) for name in _NESTED}
        given = {name: value for name, value in groups.items() if value is not None}
        return StackConfig(**{name: getattr(self, name) for name in _STACK}, **given)

    def _refinement(self) -> RefineConfig | None:
        """How to refine; None: not at all."""
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
        features = self._fitted().features
        many, is_one = given_images(images, features.n_inputs, features.layout)
        found = [answer(image) for image in many]
        return found[0] if is_one else found


def _defaults() -> dict[str, Any]:
    """The parameters of the constructor and their defaults."""
    parameters: Sequence[inspect.Parameter] = list(inspect.signature(PixelClassifier).parameters.values())
    return {parameter.name: parameter.default for parameter in parameters}
