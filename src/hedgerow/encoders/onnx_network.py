"""Anyone's network as an encoder: an ONNX file, run by onnxruntime, whose inner tensors are read by name.

A file of unknown origin is only data here: custom operators and tensors in other files are not loaded.
"""

import hashlib
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow.encoders.protocol import MAX_STRIDE, Encoder, EncoderLayer
from hedgerow.errors import ConfigError, InputError, one_line, one_path
from hedgerow.extras import is_there, require
from hedgerow.memory import megabytes

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

MAX_ONNX_BYTES = 2 * 10**9  # the limit of the ONNX format is slightly higher
MULTIPLE = 32
# A file does not state how the input is scaled. It is (value - 127) / 128, so from -1 to 1; a network that was trained
# with another scaling should be exported with that scaling as its first nodes.
CENTRE, SPREAD = 127.0, 128.0
MAX_SHOWN_LAYERS = 12  # in a message


class OnnxNetwork(Encoder):
    """path: the file; names: the inner tensors that will be read, each (1,C,h,w) float32"""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        for package in ("onnx", "onnxruntime"):
            require(package, "an encoder from an ONNX file")
        self.name = str(path)
        data = _content(path)
        self.checksum = hashlib.sha256(data).hexdigest()
        model = _parsed(path, data)
        self._input = _input_name(path, model)
        _refuse_unknown(path, model, names)
        wanted = list(dict.fromkeys(names))
        self._session = _session(path, model, wanted)
        self.layers = self._measured(path, wanted)
        self.default_layers = tuple(layer.name for layer in self.layers)
        self.multiple = max(MULTIPLE, self.layers[-1].stride)  # the coarsest comes last

    def run(self, picture: np.ndarray, names: Sequence[str]) -> list[np.ndarray]:
        scaled = (picture[None] - np.float32(CENTRE)) / np.float32(SPREAD)
        return [layer[0] for layer in self._session.run(list(names), {self._input: scaled})]

    def _measured(self, path: Path, names: Sequence[str]) -> tuple[EncoderLayer, ...]:
        """The layers of these names with their strides and channels, the finest first, measured in one run."""
        # Twice as wide as high, to notice layers whose size does not depend on the picture's.
        size = (4 * MULTIPLE, 8 * MULTIPLE)
        picture = np.zeros((1, 3, *size), np.float32)
        try:
            outputs = self._session.run(list(names), {self._input: picture})
        except Exception as problem:  # onnxruntime's exceptions have no common base class
            raise InputError(
                f"{one_path(path)} cannot be run on a picture of {size[0]} x {size[1]} pixels ({one_line(problem)}); "
                "export it for pictures of any size."
            ) from problem
        layers = [_layer(path, name, output, size) for name, output in zip(names, outputs, strict=True)]
        return tuple(sorted(layers, key=lambda layer: layer.stride))


def onnx_content(path: Path) -> bytes:
    """The bytes of a file, which must be an ONNX file."""
    require("onnx", "an encoder from an ONNX file")
    data = _content(path)
    _parsed(path, data)
    return data


def _content(path: Path) -> bytes:
    """The bytes of a regular file; one that is too large is refused before it is read."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{one_path(path)} is not a file; give the path of an ONNX file.")
        if status.st_size > MAX_ONNX_BYTES:
            raise InputError(
                f"{one_path(path)} has a size of {megabytes(status.st_size)}, expected at most "
                f"{megabytes(MAX_ONNX_BYTES)}; export a smaller network."
            )
        return path.read_bytes()
    except (OSError, ValueError) as problem:  # ValueError: a name with a zero character
        raise InputError(f"cannot read {one_path(path)}: {one_line(problem)}; check its name and folder.") from problem


def _parsed(path: Path, data: bytes) -> "ModelProto":
    import onnx

    try:
        model = onnx.load_model_from_string(data)
    except Exception as problem:  # protobuf's exceptions cannot be named: it is not a dependency
        raise _not_onnx(path) from problem
    if not model.graph.node or not model.opset_import:
        raise _not_onnx(path)
    tensors = _parts(model, "TensorProto")
    if any(tensor.external_data or tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in tensors):
        raise InputError(
            f"{one_path(path)} keeps weights in other files, which are not read; export it as a single file "
            "(save_as_external_data=False)."
        )
    return model


def _not_onnx(path: Path) -> InputError:
    return InputError(f"{one_path(path)} is not an ONNX file or is damaged; give another one, or export it again.")


def _parts(message: Any, kind: str) -> Iterator[Any]:
    """All messages of a kind in a part of a model, including the part itself and the graphs within nodes."""
    if message.DESCRIPTOR.name == kind:
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from _parts(part, kind)


def _input_name(path: Path, model: "ModelProto") -> str:
    """The name of the only input, which must be a picture of any size."""
    stored = {tensor.name for tensor in model.graph.initializer}  # old files list these as inputs, too
    inputs = [value for value in model.graph.input if value.name not in stored]
    if len(inputs) != 1:
        raise InputError(
            f"{one_path(path)} has {len(inputs)} inputs, expected a picture only; export the part that takes a picture."
        )
    problem = _problem_of_input(inputs[0])
    if problem:
        raise InputError(f"{one_path(path)} {problem}.")
    return inputs[0].name


def _problem_of_input(value: "ValueInfoProto") -> str:
    """The end of a sentence that explains why an input is not (1,3,H,W) float32 with free H and W; empty if it is."""
    import onnx

    kind = value.type.tensor_type
    dimensions = kind.shape.dim
    if kind.elem_type != onnx.TensorProto.FLOAT or len(dimensions) != 4:
        return "does not take a picture; export it with one input of float32 numbers of shape (1,3,height,width)"
    # None: any number
    batch, channels, *sides = (part.dim_value if part.HasField("dim_value") else None for part in dimensions)
    if channels != 3:
        number = "any number of channels" if channels is None else f"{channels} channel(s)"
        return f"takes pictures with {number}, expected 3; export it for pictures in red, green and blue"
    if batch not in (None, 1):
        return f"takes {batch} pictures at once, expected 1; export it for one picture"
    if any(side is not None for side in sides):
        size = " x ".join("any" if side is None else str(side) for side in sides)
        return f"only takes pictures of {size} pixels; export it with dynamic height and width"
    return ""


def _refuse_unknown(path: Path, model: "ModelProto", names: Sequence[str]) -> None:
    known = {name for node in model.graph.node for name in node.output if name}
    unknown = [name for name in names if name not in known]
    if names and not unknown:
        return
    readable = _readable(model)
    more = ["..."] if len(readable) > MAX_SHOWN_LAYERS else []
    shown = ", ".join([name[:60] for name in readable[:MAX_SHOWN_LAYERS]] + more)
    if unknown:
        raise ConfigError(f"{one_path(path)} has no layer {unknown[0][:60]!r}; its layers are {shown}.")
    raise ConfigError(f"no layers of {one_path(path)} were chosen; choose some with --layers from {shown}.")


def _readable(model: "ModelProto") -> list[str]:
    """The names of the tensors that are known to be (1,C,h,w), in the order of the network; else those of all."""
    from onnx import shape_inference

    names = [name for node in model.graph.node for name in node.output if name]
    try:
        graph = shape_inference.infer_shapes(model).graph
    except Exception:  # of several kinds; the names only help the user
        return names
    pictures = {
        value.name for value in (*graph.value_info, *graph.output) if len(value.type.tensor_type.shape.dim) == 4
    }
    return [name for name in names if name in pictures] or names


def _keep_only(model: "ModelProto", names: Sequence[str]) -> None:
    """Make these tensors the outputs, and remove the nodes that they do not need, which onnxruntime would run."""
    import onnx

    needed, nodes = set(names), []
    for node in reversed(model.graph.node):  # a node comes after those whose outputs it takes
        if needed.intersection(node.output):
            nodes.append(node)
            # Graphs within a node may take tensors of this graph.
            needed.update(name for inner in _parts(node, "NodeProto") for name in inner.input)
            needed.update(value.name for inner in _parts(node, "GraphProto") for value in inner.output)
    nodes.reverse()
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)


def _session(path: Path, model: "ModelProto", names: Sequence[str]) -> Any:
    """An onnxruntime session whose outputs are these tensors."""
    import onnxruntime

    _keep_only(model, names)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # patches are divided among threads, see `torch_devices`
    options.use_deterministic_compute = True
    options.log_severity_level = 4  # our own message suffices
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=_providers())
    except Exception as problem:  # onnxruntime's exceptions have no common base class
        raise InputError(
            f"onnxruntime refuses {one_path(path)} ({one_line(problem)}); export it again, or install a newer "
            "onnxruntime."
        ) from problem


def _providers() -> list[str]:
    import onnxruntime

    providers = ["CPUExecutionProvider"]
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers() and is_there("torch"):
        from hedgerow.encoders.torch_devices import device

        if device().type == "cuda":
            providers.insert(0, "CUDAExecutionProvider")
    return providers


def _layer(path: Path, name: str, output: Any, size: tuple[int, int]) -> EncoderLayer:
    """The layer with this output for a picture of this size; its stride must be the same in both directions."""
    if not isinstance(output, np.ndarray) or output.dtype != np.float32 or output.ndim != 4 or 0 in output.shape:
        shape = f"{output.dtype} of shape {output.shape}" if isinstance(output, np.ndarray) else "no tensor"
        raise _not_a_layer(path, name, f"is {shape}, expected float32 of shape (1,channels,height,width)")
    _, channels, *sides = output.shape
    strides = {whole / side for whole, side in zip(size, sides, strict=True)}
    stride = strides.pop()
    if strides or not stride.is_integer() or stride > MAX_STRIDE or int(stride) & (int(stride) - 1):
        values = f"{sides[0]} x {sides[1]} values for {size[0]} x {size[1]} pixels"
        expected = f"one value per 1, 2, 4, ... or {MAX_STRIDE} pixels in each direction"
        raise _not_a_layer(path, name, f"has {values}, expected {expected}")
    return EncoderLayer(name, int(stride), channels)


def _not_a_layer(path: Path, name: str, problem: str) -> ConfigError:
    return ConfigError(f"the layer {name[:60]!r} of {one_path(path)} {problem}; choose another.")
