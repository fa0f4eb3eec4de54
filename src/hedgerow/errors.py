"""The errors a user may encounter. Each message says what was given, what was expected, and the remedy."""


class HedgerowError(Exception):
    """Anything Hedgerow refuses; the command line prints its message as one sentence and exits 2."""


class InputError(HedgerowError):
    """An image, a label map or a folder that cannot be used."""


class ConfigError(HedgerowError):
    """A setting outside its limits."""


class ModelError(HedgerowError):
    """A model file that is damaged, foreign, or of a newer version."""


def refuse_unless(holds: bool, complaint: str) -> None:
    """Raise ModelError unless a condition on a model file holds; the complaint refers to the file as "it"."""
    if not holds:
        raise ModelError(f"{complaint}, so it is damaged or was edited; copy it again.")


class DivergenceError(HedgerowError):
    """Refinement diverged; `network` is the last good one."""

    def __init__(self, message: str, network: object) -> None:
        super().__init__(message)
        self.network = network
