"""Optional packages, which are installed only on request."""

import importlib
import importlib.util

from hedgerow.errors import HedgerowError, one_line
from hedgerow.memory import ran_out

# Package -> the extra in pyproject.toml that installs it; "net" installs all others.
EXTRAS = {
    "onnx": "onnx", "sklearn": "sklearn", "onnxruntime": "pretrained",
    "starlette": "paint", "uvicorn": "paint", "websockets": "paint",
    "cryptography": "scale", "distributed": "scale", "fsspec": "cloud", "s3fs": "cloud", "aiohttp": "cloud",
    "nibabel": "nifti",
}  # fmt: skip


def require(package: str, purpose: str, extra: str = "") -> None:
    """Raise HedgerowError, with the remedy, unless the package that `purpose` needs can be imported.

    extra: the extra that installs this and all else that is needed; "": that of EXTRAS
    """
    try:
        importlib.import_module(package)
    except (ImportError, OSError, MemoryError) as error:
        what = f"'.[{extra or EXTRAS.get(package, 'net')}]' in the folder of Hedgerow's source"
        why = f"which is not installed; run pip install {'timm' if package == 'timm' else what}"
        if ran_out(error):
            remedy = "end other programs, or raise the limit of this process (ulimit -v)"
            why = f"and there is not enough memory to load it; {remedy}."
        elif not isinstance(error, ModuleNotFoundError):
            why = f"which cannot be loaded ({one_line(error)}); install it again."
        raise HedgerowError(f"{purpose} needs {package}, {why}") from error


def is_there(package: str) -> bool:
    """Whether a package is installed; does not import it."""
    return importlib.util.find_spec(package) is not None
