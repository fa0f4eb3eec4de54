"""Training a model on labelled images, with effort "fast", "good" or "best"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from hedgerow import extras
from hedgerow.config import StackConfig
from hedgerow.encoders.catalogue import allow, find
from hedgerow.errors import ConfigError
from hedgerow.features.registry import kinds_of, layout_of
from hedgerow.files import PathLike, fingerprint
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import GrowAll, grow_in_turn, grow_stack
from hedgerow.forest.default_settings import settings_for
from hedgerow.forest.settings_choice import SettingsChoice, Tune, check_tune, settings_choice
from hedgerow.images.array_checks import Layout
from hedgerow.images.axes import checked_axes
from hedgerow.images.classes import check_unlabelled_or_ask, unlabelled_value
from hedgerow.images.given import read_labelled_set, training_set
from hedgerow.images.given_arrays import VoxelSides, voxel_of
from hedgerow.images.instances import LabelKind
from hedgerow.images.labelled import Images, LabelledSet
from hedgerow.images.legend import Legend
from hedgerow.images.pairing import FilesSpec, in_words, labelled_files, pair_files
from hedgerow.images.reading import Pages
from hedgerow.images.stored import ImageSpec
from hedgerow.images.subjects import Groups, check_groups, grouped
from hedgerow.jobs.effort_run import Trained, files_of_run, fit_in_stages
from hedgerow.jobs.estimates import Budget, Effort, Estimate
from hedgerow.jobs.inputs import checked_output, files_of, save
from hedgerow.locking import locked
from hedgerow.predict.devices import check_device
from hedgerow.predict.evaluate import score
from hedgerow.progress import Report, Say, announce, quiet
from hedgerow.scale import cluster
from hedgerow.scale.cluster import Workers
from hedgerow.scale.sparse_growth import LargeSet, WholeInstead, grow
from hedgerow.work_folder import WorkFolder, remove_work_folder

if TYPE_CHECKING:
    from hedgerow.deep.any_model import AnyModel


@dataclass(frozen=True)
class TrainRequest:
    """A model to train on files.

    images, labels: folders, files or globs
    output:      the model file to write
    effort:      "fast": a stack of forests; "good": its network, refined; "best": convolutional networks as well
    config:      settings of the stack; None: chosen for the images, see `tune`
    tune:        without config, "auto": rules, then what held-out images prefer; "off": the plain defaults
    changes:     settings to change in `config`, by name
    layers:      layers of the encoder to read instead of those in the settings
    minutes:     approximate time limit for "good" and "best"; None: no limit, except for "best" on a CPU, which prints
                 its limit
    device:      where networks are trained
    restart:     discard an interrupted run of the same output instead of resuming it
    workers:     grow the forests of effort "fast": a number of processes, the address of a Dask scheduler, or a client
    unlabelled:  the label value that means "no label"; None: 255, but a QuestionError asks if 0 or -1 looks like that
                 value; "auto": 255, or 0 or -1 if it looks like that value
    max_classes: labels with more classes are refused, because they are probably not labels
    label_kind:  "objects": the labels number objects; the classes background, object and boundary are made from them
    groups:      which images belong together and are held out together, see `images.subjects.Groups`
    pages:       which pages of image files to read, see `read_image`
    axes:        letters for the axes of the files, such as "ZYX"; None: those that the files name
    voxel_size:  of volumes along (z, y, x); None: what the files say
    keep:        files that must never be overwritten, besides those that are read
    overwrite:   also overwrite an existing file that Hedgerow did not write
    """

    images: FilesSpec
    labels: FilesSpec
    output: PathLike
    effort: Effort = "fast"
    config: StackConfig | None = None
    tune: Tune = "auto"
    changes: Mapping[str, Any] = field(default_factory=dict)
    layers: Sequence[str] = ()
    minutes: float | None = None
    device: str = "cpu"
    restart: bool = False
    workers: Workers | None = None
    unlabelled: int | str | None = None
    max_classes: int = 64
    label_kind: LabelKind = "classes"
    groups: Groups = None
    pages: Pages = None
    axes: str | None = None
    voxel_size: VoxelSides | None = None
    keep: Iterable[PathLike] = ()
    overwrite: bool = False

    def __post_init__(self) -> None:
        self.budget, self.unlabelled_value, self.how()  # refuse impossible ones
        check_groups(self.groups)
        check_tune(self.tune)
        if self.effort == "fast" and (self.minutes is not None or self.device != "cpu" or self.restart):
            raise ConfigError("--minutes, --device and --restart are for --effort good or best; forests take seconds.")
        if self.effort != "fast" and self.workers is not None:
            raise ConfigError("--workers and --cluster are for forests only; leave out --effort, or leave them out.")

    def how(self, layout: Layout = "picture") -> ImageSpec:
        """How to read the images, whatever their path."""
        return ImageSpec("", layout, self.pages, axes=checked_axes(self.axes), voxel=voxel_of(self.voxel_size))

    def settings(self, part: float, say: Say) -> StackConfig:
        """The settings for images larger than memory, of which this fraction is labelled."""
        return self.changed(self.config or settings_for(part, say, keep_features="features" in self.changes))

    def changed(self, config: StackConfig) -> StackConfig:
        """The settings with the requested changes."""
        changed = replace(config, **self.changes)
        if not self.layers:
            return changed
        if "encoder" not in changed.features:
            raise ConfigError("--layers needs an encoder among the features; add --features encoder.")
        return replace(changed, encoder=replace(changed.encoder, layers=tuple(self.layers)))

    @property
    def budget(self) -> Budget:
        """The time that training may take."""
        return Budget(self.effort, self.minutes, self.device)

    @property
    def unlabelled_value(self) -> int | str | None:
        """`unlabelled`, checked."""
        return check_unlabelled_or_ask(self.unlabelled)


def train(request: TrainRequest, *, say: Say = quiet, progress: Report | None = None) -> Trained:
    """Train a model on files and write it; prints what was read before the work begins, and each stage's score.

    Efforts "good" and "best" store their state in a work folder beside the output until the model is saved, so that the
    same request resumes an interrupted run. If the images do not fit in memory, effort "fast" reads only the parts that
    training needs; the model is the same.
    """
    requested = request.changed(request.config or StackConfig())
    layout = layout_of(requested.features)
    allow(requested.encoder.name)  # a resumed run may load its stack from the work folder
    _require_extras(request.effort, requested)
    check_device(request.device, is_network=request.effort != "fast")
    pairs = pair_files(request.images, request.labels, say)
    output = checked_output(
        request.output, [*files_of(pairs, request.groups), *request.keep], overwrite=request.overwrite
    )
    folder = None if request.effort == "fast" else output.with_name(output.name + ".work")
    with locked(output), cluster.connected(request.workers) as client:
        grow_all = grow_in_turn if client is None else cluster.trees_on(client)
        files = LargeSet(pairs, layout, request.pages, request.groups)
        is_stack = any(file.image.volumes for file in labelled_files(pairs[:1], [""], request.how(layout)))
        is_whole = request.layers or request.label_kind == "objects" or is_stack or request.axes
        if request.effort == "fast" and not is_whole and files.exceeds_memory():
            try:
                value = unlabelled_value(*files.first_labels(), request.unlabelled_value, say)
                stack = grow(
                    files, request.settings, value, request.max_classes, say=say, progress=progress, grow_all=grow_all
                )
                return Trained(stack, n_bytes=save(stack, output, say))
            except WholeInstead as reason:
                say(f"loading whole images: {reason}")
        labelled = read_labelled_set(
            pairs, in_words(request.labels), request.how(layout), request.unlabelled_value,
            max_classes=request.max_classes, label_kind=request.label_kind, say=say, warn=say,
        )  # fmt: skip
        _refuse_networks_of_volumes(labelled, request.effort)
        labelled = grouped(labelled, request.groups, say)
        begun = request.budget.clock()
        choice = settings_choice(labelled, request.tune, request.changes) if request.config is None else None
        config = request.changed(choice.ruled if choice else request.config or StackConfig())
        estimate = _estimated(labelled, config, request.budget, say, choice)
        if folder is not None and request.restart:
            remove_work_folder(folder)
        state = files_of_run(labelled, folder, say)
        if choice:
            config = request.changed(_chosen(choice, state, say, progress))
        fitted = fit_labelled(
            labelled, config, request.budget, estimate=estimate, begun=begun, files=state, grow_all=grow_all,
            say=say, progress=progress,
        )  # fmt: skip
        n_bytes = save(fitted.model, output, say)
        if folder is not None:
            remove_work_folder(folder)
        return replace(fitted, n_bytes=n_bytes)


def _require_extras(effort: Effort, config: StackConfig) -> None:
    """Raise an error, before anything is read or printed, if a package or network is needed that is not there."""
    if "encoder" in [kind.kind for kind in kinds_of(config.features)]:
        find(config.encoder.name, config.encoder.layers)
    if effort != "fast":
        extras.require("torch", f"effort {effort}")


def _chosen(choice: SettingsChoice, files: WorkFolder, say: Say, progress: Report | None) -> StackConfig:
    """The settings for the images, read from the work folder if an interrupted run chose them."""
    options = [option.words for option in choice.options]
    key = fingerprint(files.run, choice.labelled.subjects, choice.ruled.to_dict(), options, choice.seconds)
    chosen = files.record(
        "settings", key, lambda: choice.settings(say, progress), StackConfig.to_dict, StackConfig.from_dict
    )
    if "settings" in files.reused:
        say("resuming: the settings that the interrupted run chose are reused")
    return chosen


def _estimated(
    labelled: LabelledSet, config: StackConfig, budget: Budget, say: Say, choice: SettingsChoice | None = None
) -> Estimate:
    """The estimated time, which is printed before settings are chosen: choosing may take as long as training."""
    if budget.effort == "best" and budget.is_cpu:
        say("measuring how fast this machine is")
    estimate = budget.estimate(labelled, config, choice.cost if choice else 0.0)
    say(f"effort {budget.effort}: {estimate}")
    return estimate


def fit(
    images: Images,
    labels: Images,
    effort: Effort = "fast",
    config: StackConfig | None = None,
    *,
    minutes: float | None = None,
    device: str = "cpu",
    unlabelled: int | Literal["auto"] | None = None,
    label_kind: LabelKind = "classes",
    groups: Groups = None,
    tune: Tune = "auto",
    names: Sequence[str] | None = None,
    legend: Legend | None = None,
    axes: str | None = None,
    voxel_size: VoxelSides | None = None,
    say: Say = announce,
    progress: Report | None = None,
) -> AnyModel:
    """Train a model on images (H,W[,C]) and labels (H,W), on volumes (Z,Y,X) and labels (Z,Y,X), or on files of both,
    each a folder, a file or a glob.

    The same as the command `train`, with the same messages; `fit_stack`, `refine` and `deepen` are its stages.
    config:  settings of the stack; None: chosen for these images, see `tune`
    minutes: approximate time limit of the whole run; a limit that is too short for "best" is refused before training
             starts. None: no limit; "best" on a CPU takes about 23 minutes, or as long as its networks need
    unlabelled: the label value that means "no label"; None: 255, but an InputError asks if 0 or -1 looks like that
             value; "auto": 255, or 0 or -1 if it looks like that value
    label_kind: "objects": the labels number objects, 0 is the background; the classes background, object and boundary
             are made from them, and the method predict_objects finds objects in new images
    groups:  a group for each image, a pattern for their names or a CSV file: images of one group, for instance slices
             of one patient, are held out together; None: images whose names say so or that look alike are a group;
             "none": none are
    tune:    without config, "auto": rules by the sizes of the images, then what held-out images prefer; "off": the
             plain defaults, `StackConfig()` or, if less than 10 % is painted, one level without offsets
    axes:    of the arrays of images: "YX", "YXC", "ZYX", "ZYXC", "CZYX", or with T for a series in time, whose images
             are trained on one by one; labels have the same axes without C. None: labels of three axes beside an
             image with the same three are those of a volume
    voxel_size: of all volumes along (z, y, x), in any unit; None: slices are as far apart as pixels
    say:     receives the time estimate, the settings chosen, and the gain of each stage; by default they are printed
             on a terminal and in a notebook, and logged elsewhere

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> hr.fit(images, labels, "fast", hr.StackConfig(n_levels=1, n_trees=2)).n_classes
    22
    """
    budget, tune = Budget(effort, minutes, device), check_tune(tune)
    check_device(device, is_network=effort != "fast")
    layout = layout_of((config or StackConfig()).features)
    _require_extras(effort, config or StackConfig())
    given = training_set(images, labels, layout, unlabelled, names, legend, label_kind, axes, voxel_size)
    _refuse_networks_of_volumes(given, effort)
    labelled = grouped(given, groups, say)
    begun = budget.clock()
    choice = settings_choice(labelled, tune) if config is None else None
    estimate = _estimated(labelled, choice.ruled if choice else config or StackConfig(), budget, say, choice)
    config = choice.settings(say, progress) if choice else config or StackConfig()
    return fit_labelled(labelled, config, budget, estimate=estimate, begun=begun, say=say, progress=progress).model


def _refuse_networks_of_volumes(labelled: LabelledSet, effort: Effort) -> None:
    if effort == "best" and labelled.is_volume:
        raise ConfigError(
            "effort best trains convolutional networks, which read images only; volumes take effort good."
        )


def fit_labelled(
    labelled: LabelledSet,
    config: StackConfig,
    budget: Budget,
    *,
    estimate: Estimate | None = None,
    begun: float | None = None,
    files: WorkFolder | None = None,
    grow_all: GrowAll = grow_in_turn,
    say: Say = quiet,
    progress: Report | None = None,
) -> Trained:
    """`fit` on labelled images; also scores the model on the images that the settings reserve.

    estimate: the estimated time, if it was printed already
    begun:    when the time limit began, by the clock of `budget`; None: now
    files:    of the run, which the caller removes once the model is saved; None: it cannot be resumed
    grow_all: grows the forests of effort "fast", e.g. on workers
    """
    started = budget.clock()
    estimate = estimate or _estimated(labelled, config, budget, say)
    if budget.effort == "fast":
        fitted = Trained(grow_stack(labelled, config, progress=progress, say=say, grow_all=grow_all))
    else:
        begun = started if begun is None else begun
        fitted = fit_in_stages(labelled, config, budget, estimate, begun, files or WorkFolder(None), say, progress)
    model = fitted.model
    reserved = [image for image in labelled if image.mark in model.known.reserved]
    if reserved:
        dice = float(score(model, replace(labelled, images=reserved), progress).mean_dice)
        say(f"mean Dice {dice:.3f} on {len(reserved)} reserved image(s)")
        if isinstance(model, ForestStack):
            recorded = {"n_images": len(reserved), "mean_dice": dice}
            return replace(fitted, model=replace(model, settings={**model.settings, "reserved": recorded}))
    return fitted
