"""Files of class names and colours: other values, names and nesting, long texts, damaged bytes."""

import copy
import json

from fuzz.damage import damaged
from fuzz.outcomes import check_text, require
from fuzz.special import exchange
from fuzz.tomls import change_toml, key_of, value_of
from fuzz.values import change
from hedgerow.images.label_files import legend_of_files
from hedgerow.images.legend import FILE, Legend, read_legend, write_legend

TREE = {
    "class": [
        {"value": 0, "name": "background", "colour": "#4477aa"},
        {"value": 1, "name": "cell", "colour": [255, 0, 0]},
        {"value": 7, "name": "nucleus, dividing", "color": "#00ff7f"},
        {"value": 200, "name": "é"},
    ]
}
WORDS = (
    *(
        "value",
        "name",
        "colour",
        "color",
        "class",
        "=1+1",
        "+A1",
        "-2",
        "@SUM(A1)",
        "\t=1",
        "cell",
        "#12345",
        "#GGGGGG",
    ),
    *("x" * 100, "x" * 101, "x" * 10**6, "a,b", '"', "\\", "#", "background"),
)


class Classes:
    """Makes and uses files of classes."""

    name = "classes"

    def __init__(self, folder):
        path = folder / FILE
        path.write_text(as_toml(TREE))
        self.use(path)

    def write(self, rng, folder):
        """The file of a case, and what was done to it."""
        path, tree = folder / FILE, copy.deepcopy(TREE)
        done = [change(tree, rng, WORDS) for _ in range(int(rng.integers(0, 4)))]
        text = as_toml(tree)
        content = text.encode("utf-8", "surrogatepass")
        if not done or rng.random() < 0.3:
            content, how = change_toml(text, rng)
            done.append(how)
        if rng.random() < 0.15:
            content, how = damaged(content, rng)
            done.append(how)
        path.write_bytes(content)
        if rng.random() < 0.03:
            done.append(f"it is {exchange(path, rng)}")
        return path, ", ".join(done)

    def use(self, path):
        """Read, directly and as labels' companion; what was read is the same after it is written."""
        legend = read_legend(path)
        require(legend_of_files([path.with_name("a.png")]) == legend, "other classes beside labels")
        again = path.with_name("again.toml")
        write_legend(again, legend)
        require(read_legend(again) == legend, "other classes after writing them")
        require(Legend.from_list(json.loads(json.dumps(legend.to_list()))) == legend, "other classes from a model")
        require(len(set(legend.names.values())) == len(legend.names), "two classes of one name")
        values = sorted({*legend.names, *legend.colours})
        require(len(legend.palette(values)) == len(values), "not a colour for each class")
        for value in values:
            check_text(legend.spoken(value), "images/legend.py")


def as_toml(tree):
    """A tree as TOML, in so far as it has a form for it."""
    rows = tree.get("class")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return "".join(f"{key_of(name)} = {value_of(value)}\n" for name, value in tree.items())
    lines = []
    for row in rows:
        lines += [
            "[[class]]",
            *(f"{key_of(name)} = {value_of(value)}" for name, value in row.items() if value is not None),
        ]
    lines += [f"[{key_of(name)}]\nx = {value_of(value)}" for name, value in tree.items() if name != "class"]
    return "\n".join(lines) + "\n"
