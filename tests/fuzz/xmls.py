"""Changes to XML, as OME-TIFF holds it: to its tree, and to its text."""

import copy
from xml.etree import ElementTree

from fuzz.values import NUMBERS, TEXTS, pick

MANY = (2, 30, 2000)  # elements


def change_xml(text, rng, words=()):
    """A text of XML with 1 to 3 changes, and what was done."""
    root = ElementTree.fromstring(text)
    done = [_change(root, rng, words) for _ in range(int(rng.integers(1, 4)))]
    try:
        result = ElementTree.tostring(root, encoding="unicode")
    except (TypeError, ValueError, RecursionError):  # a name or nesting that cannot be written
        return text, "nothing"
    if rng.random() < 0.1:
        result, how = pick(rng, TEXTUAL)(result)
        done.append(how)
    return result, ", ".join(done)


def _change(root, rng, words):
    element = pick(rng, list(root.iter()))
    name = element.tag.rpartition("}")[2]
    kind = rng.integers(10)
    if kind <= 4 and element.attrib:
        key = pick(rng, sorted(element.attrib))
        value = pick(rng, (*NUMBERS, *NUMBERS, *TEXTS, *words, *words))
        element.set(key, _writable(value))
        return f"{name}.{key} = {value!r:.40}"
    if kind == 5 and element.attrib:
        key = pick(rng, sorted(element.attrib))
        del element.attrib[key]
        return f"no {name}.{key}"
    if kind == 6:
        n = pick(rng, MANY)
        element.extend(copy.deepcopy(pick(rng, list(root.iter()))) for _ in range(n if len(element) < 9 else 1))
        return f"{n} more in {name}"
    if kind == 7 and len(element):
        element.remove(pick(rng, list(element)))
        return f"an element less in {name}"
    if kind == 8:
        element.tag = element.tag.replace(name, _writable(pick(rng, ("x", *words))) or "x")
        return f"{name} is {element.tag[-20:]}"
    element.text = _writable(pick(rng, (*TEXTS, *NUMBERS, *words)))
    return f"text in {name}"


def _writable(value):
    return str(value).encode("ascii", "xmlcharrefreplace").decode()[:20_000]


def _entities(text):
    riddle = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "x"}">' for i in range(9))
    return f"<!DOCTYPE OME [{riddle}]>" + text.replace('="', '="&e8;', 1), "entities"


def _foreign_file(text):
    return '<!DOCTYPE OME [<!ENTITY e SYSTEM "file:///dev/zero">]>' + text.replace('="', '="&e;', 1), "a file"


def _nested(text):
    head, mark, rest = text.rpartition("</")
    return f"{head}{'<a>' * 30_000}{mark}{rest}", "nested without an end"


def _deep(text):
    head, mark, rest = text.rpartition("</")
    return f"{head}{'<a>' * 9000}{'</a>' * 9000}{mark}{rest}", "nested deeply"


def _half(text):
    return text[: len(text) // 2], "half of it"


def _twice(text):
    return text + text, "two roots"


def _encoding(text):
    return f'<?xml version="1.0" encoding="UTF-16"?>{text}', "of another encoding"


TEXTUAL = (_entities, _foreign_file, _nested, _deep, _half, _twice, _encoding)
