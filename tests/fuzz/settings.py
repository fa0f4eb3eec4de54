"""Settings files in TOML and JSON: other values, names and nesting, and damaged text."""

import copy
import json

import hedgerow as hr
from fuzz.damage import damaged
from fuzz.outcomes import require
from fuzz.tomls import change_toml, key_of, value_of
from fuzz.values import change, pick
from hedgerow.settings import documented_toml

BASES = (
    *(hr.StackConfig(), hr.StackConfig.zebrafish(), hr.StackConfig.kinect()),
    *(hr.RefineConfig(), hr.RefineConfig.zebrafish(), hr.RefineConfig.kinect(), hr.Sharpness()),
)
WORDS = (
    *("grid", "per_class", "gini", "entropy", "trees", "folds", "none", "bank", "channels", "depth", "bank+channels"),
    *("adam", "sgd", "cosine", "balanced", "best", "n_levels", "context", "augment", "seed", "stride", "features"),
)


class Settings:
    """Makes and uses settings files; the name of a file says which settings it is read as."""

    name = "settings"

    def __init__(self, folder):
        self.kinds = {type(base).__name__: type(base) for base in BASES}

    def write(self, rng, folder):
        """The file of a case, and what was done to it."""
        base = pick(rng, BASES)
        ending = pick(rng, ("toml", "json"))
        path = folder / f"{type(base).__name__}.{ending}"
        values = copy.deepcopy(base.to_dict())
        if rng.random() < 0.7:
            done = [change(values, rng, WORDS) for _ in range(int(rng.integers(1, 5)))]
            text = json.dumps(values) if ending == "json" else as_toml(values)
        else:
            done, text = [], json.dumps(values, indent=2) if ending == "json" else documented_toml(base)
        content = text.encode("utf-8", "surrogatepass")
        if ending == "toml" and rng.random() < 0.1:
            content, how = change_toml(text, rng)
            done.append(how)
        if not done or rng.random() < 0.1:
            content, damages = damaged(content, rng)
            done.append(damages)
        path.write_bytes(content)
        return path, f"{path.name}: {', '.join(done)}"

    def use(self, path):
        """Read; what was read is the same after it is written in either form."""
        kind = self.kinds[path.stem]
        settings = kind.read(path)
        for ending in ("toml", "json"):
            again = path.with_name(f"again.{ending}")
            settings.write(again)
            require(kind.read(again) == settings, f"other settings after writing them as {ending}")


def as_toml(values):
    """A tree of tables as TOML, in so far as it has a form for them."""
    plain = [f"{key_of(name)} = {value_of(value)}" for name, value in values.items() if not isinstance(value, dict)]
    tables = [(name, value) for name, value in values.items() if isinstance(value, dict)]
    for name, table in tables:
        plain += [f"[{key_of(name)}]"]
        plain += [f"{key_of(key)} = {value_of(value)}" for key, value in table.items() if value is not None]
    return "\n".join(line for line in plain if not line.endswith(" = None")) + "\n"
