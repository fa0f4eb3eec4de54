"""The types of the public names, for editors and type checkers, which cannot follow lazy loading."""

from hedgerow import synthetic as synthetic
from hedgerow.config import AugmentConfig as AugmentConfig
from hedgerow.config import ContextConfig as ContextConfig
from hedgerow.config import ConvConfig as ConvConfig
from hedgerow.config import DeepConfig as DeepConfig
from hedgerow.config import EncoderConfig as EncoderConfig
from hedgerow.config import RefineConfig as RefineConfig
from hedgerow.config import SamplingConfig as SamplingConfig
from hedgerow.config import Sharpness as Sharpness
from hedgerow.config import StackConfig as StackConfig
from hedgerow.deep.deepstack import DeepStack as DeepStack
from hedgerow.deep.distilling import distil as distil
from hedgerow.deep.fitting import deepen as deepen
from hedgerow.errors import ConfigError as ConfigError
from hedgerow.errors import DivergenceError as DivergenceError
from hedgerow.errors import HedgerowError as HedgerowError
from hedgerow.errors import InputError as InputError
from hedgerow.errors import ModelError as ModelError
from hedgerow.features.layer_cache import cache_features as cache_features
from hedgerow.forest.arrays import ForestStack as ForestStack
from hedgerow.forest.autocontext import fit_stack as fit_stack
from hedgerow.images.classes import class_table as class_table
from hedgerow.images.label_files import read_labels as read_labels
from hedgerow.images.legend import Legend as Legend
from hedgerow.images.metrics import Scores as Scores
from hedgerow.images.objects import measure as measure
from hedgerow.images.reading import read_image as read_image
from hedgerow.images.showing import show as show
from hedgerow.io.model_file import load as load
from hedgerow.io.model_file import save as save
from hedgerow.jobs.training import fit as fit
from hedgerow.network.mapback import to_forest as to_forest
from hedgerow.network.mapping import to_convnet as to_convnet
from hedgerow.network.stacknet import StackNet as StackNet
from hedgerow.predict.evaluate import evaluate as evaluate
from hedgerow.refinement.loop import refine as refine
from hedgerow.report import write_report as write_report
from hedgerow.report.figures import look as look
from hedgerow.scale.large_prediction import predict_large as predict_large
from hedgerow.sklearn.classifier import NeuralForestClassifier as NeuralForestClassifier
from hedgerow.sklearn.forests import from_sklearn as from_sklearn
from hedgerow.sklearn.forests import to_sklearn as to_sklearn
from hedgerow.sklearn.pixels import PixelClassifier as PixelClassifier
from hedgerow.threads import set_threads as set_threads

__version__: str
