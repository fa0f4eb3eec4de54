"""Values that programs stumble over, and changes to trees of tables and lists such as JSON and TOML hold."""

import copy
from contextlib import suppress

NUMBERS = (
    *(0, -1, 1, 2, 3, 20, 21, 31, 64, 101, 255, 256, 1000, 4097, 10**6, 10**9),
    *(2**31 - 1, 2**31, -(2**31) - 1, 2**32, 2**53 + 1, 2**63, 2**64, 10**30, 10**400, -(10**400)),
    *(0.0, -0.0, 0.5, 1.5, 1e-9, 5e-324, 1e15, 1e38, 1e39, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf")),
)
TEXTS = (
    *("", "x", "1", "nan", "uint8", "../../x", "\x1b[31mred", "\x1b]0;title\x07", "a\nb", "a\r\tb", "\x00", "\x7f"),
    *("\u202eabc", "\ud800", "é", "\U0001f33f", "x" * 5000, "%s%n", "'\"\\"),
)


def pick(rng, options):
    """One of a sequence, as it is (numpy's choice would convert it)."""
    return options[int(rng.integers(len(options)))]


def nested(depth):
    """A list in a list in a list."""
    result = []
    for _ in range(depth):
        result = [result]
    return result


TREES = (
    *(list, dict, lambda: [0], lambda: [None], lambda: {"a": 1}, lambda: {"": {}}, lambda: nested(3)),
    *(lambda: nested(40), lambda: nested(900), lambda: list(range(300)), lambda: [0.7] * 101),
)


def hostile(rng, words=()):
    """A value that does not belong; words: names that mean something where it is put."""
    kind = rng.integers(10)
    if kind < 5:
        return pick(rng, NUMBERS)
    if kind < 7:
        return pick(rng, (*TEXTS, *words))
    if kind < 8:
        return pick(rng, (None, True, False))
    return pick(rng, TREES)()


def places(tree, rng):
    """A random way down a tree: (container, key) of one of its entries, or None if it has none."""
    if not isinstance(tree, dict | list) or not tree:
        return None
    key = pick(rng, list(tree) if isinstance(tree, dict) else range(len(tree)))
    below = places(tree[key], rng) if rng.random() < 0.75 else None
    return below or (tree, key)


def change(tree, rng, words=()):
    """Change one entry of a tree in place; returns what was done, for people."""
    result = places(tree, rng)
    if result is None:
        return "nothing"
    container, key = result
    kind = rng.integers(12)
    if kind == 0:
        del container[key]
        return f"deleted {key!r}"
    if kind == 1 and isinstance(container, dict):
        name = pick(rng, (*TEXTS, *words))
        container[name] = container.pop(key)
        return f"renamed {key!r} to {name[:20]!r}"
    if kind == 2 and isinstance(container, dict):
        name = pick(rng, (*TEXTS, *words))
        container[name] = hostile(rng, words)
        return f"added {name[:20]!r}"
    if kind == 3 and isinstance(container, list):
        container += list(container) * int(pick(rng, (1, 3, 60)))
        return "repeated a list"
    if kind == 4:
        other = places(tree, rng)
        with suppress(RecursionError):  # too deep for a copy
            container[key] = copy.deepcopy(other[0][other[1]])
        return f"{key!r} as {other[1]!r}"
    number = container[key]
    if kind <= 7 and isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < 1e300:
        container[key] = pick(
            rng, (number + 1, number - 1, -number, number * 2, number / 2, float(number), number * 10)
        )
    else:
        container[key] = hostile(rng, words)
    return f"{key!r} = {_brief(container[key])}"


def _brief(value):
    if isinstance(value, dict | list):
        return f"a {type(value).__name__}"
    return repr(value)[:30]
