"""Texts of TOML that take a reader long, or that it may stumble over; for files of settings and of classes."""

import json

from fuzz.values import pick


def change_toml(text, rng):
    """Some text more, or the text in another form -> bytes, and what was done."""
    name, do = pick(rng, CHANGES)
    found = do(text)
    return found if isinstance(found, bytes) else found.encode("utf-8", "surrogatepass"), name


CHANGES = (
    ("nested lists", lambda text: text + "\nx = " + "[" * 20_000),
    ("closed nested lists", lambda text: text + "\nx = " + "[" * 900 + "]" * 900),
    ("nested tables", lambda text: text + "\nx = " + "{a = " * 900 + "1" + "}" * 900),
    ("many digits", lambda text: text + "\nx = " + "9" * 100_000),
    ("some digits", lambda text: text + "\nx = " + "9" * 5000),
    ("many hexadecimal digits", lambda text: text + "\nx = 0x" + "f" * 100_000),
    ("a dotted key", lambda text: text + "\n" + "a." * 50_000 + "a = 1"),
    ("a dotted table", lambda text: text + "\n[" + "a." * 20_000 + "a]"),
    ("many dotted keys", lambda text: text + "".join(f"\n{'a.' * 300}b{i} = 1" for i in range(300))),
    ("many tables", lambda text: text + "".join(f"\n[[x]]\nvalue = {i}" for i in range(20_000))),
    ("many keys", lambda text: text + "".join(f"\nx{i} = 1" for i in range(20_000))),
    ("a long name", lambda text: text + "\n" + "x" * 2 * 10**6 + " = 1"),
    ("a long text", lambda text: text + '\nx = "' + "x" * 2 * 10**6 + '"'),
    ("a byte order mark", lambda text: b"\xef\xbb\xbf" + text.encode("utf-8", "surrogatepass")),
    ("UTF-16", lambda text: text.encode("utf-16", "surrogatepass")),
    ("Windows' lines", lambda text: text.replace("\n", "\r\n")),
    ("old Macs' lines", lambda text: text.replace("\n", "\r")),
    ("a date", lambda text: text.replace("= 1", "= 1979-05-27T07:32:00Z", 1)),
    ("not a number", lambda text: text.replace("= 1", "= nan", 1)),
    ("twice", lambda text: text + text),
    ("zero bytes", lambda text: text + "\x00" * 100),
    ("a comment", lambda text: text + "# \x1b[2J\n"),
    ("an escape", lambda text: text + '\nx = "\\U00110000"'),
    ("half a character", lambda text: text.encode("utf-8", "surrogatepass") + b'\nx = "\xc3'),
    ("no end", lambda text: text + '\nx = """' + "x\n" * 1000),
)


def key_of(name):
    """A name as a key."""
    return name if name.isidentifier() and name.isascii() else json.dumps(name)


def value_of(value):
    """A value, in so far as TOML has a form for it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key_of(name)} = {value_of(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list | bool | str):
        return json.dumps(value)
    return str(value)  # numbers; nan and inf are TOML too
