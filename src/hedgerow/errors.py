"""The errors a user can meet. Each message says what was given, what was expected, and the remedy."""


class HedgerowError(Exception):
    """Anything Hedgerow refuses; the command line prints its message as one sentence and exits 2."""


class InputError(HedgerowError):
    """An image, a label map or a folder that cannot be used."""


class ConfigError(HedgerowError):
    """A setting outside its limits."""


class ModelError(HedgerowError):
    """A model file that is damaged, foreign, or of a newer version."""


class DivergenceError(HedgerowError):
    """Refinement that left the numbers; `network` is the last good one."""

    def __init__(self, message: str, network: object) -> None:
        super().__init__(message)
        self.network = network
