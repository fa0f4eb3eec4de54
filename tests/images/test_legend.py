"""Names and colours of classes, and label maps in which a class is a colour."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

import hedgerow as hr
from hedgerow.errors import InputError, ModelError
from hedgerow.images.label_files import MAX_COLOURS, legend_of_files, read_label_set, read_labels
from hedgerow.images.legend import Legend, read_legend, write_legend
from hedgerow.images.pictures import class_palette
from helpers.files import write

TOML = """
[[class]]
value = 3
name = "sky"
colour = "#80c0ff"

[[class]]
value = 77
name = "house \\"old\\""
colour = [200, 10, 0]

[[class]]
value = 200
name = "tree"
"""
LEGEND = Legend({3: "sky", 77: 'house "old"', 200: "tree"}, {3: (128, 192, 255), 77: (200, 10, 0)})


def test_a_legend_is_read_and_written(tmp_path):
    (tmp_path / "classes.toml").write_text(TOML)
    assert read_legend(tmp_path / "classes.toml") == LEGEND
    write_legend(tmp_path / "again.toml", LEGEND)
    assert read_legend(tmp_path / "again.toml") == LEGEND
    assert Legend.from_list(LEGEND.to_list()) == LEGEND
    assert not Legend()


def test_classes_without_names_or_colours_have_numbers_and_a_rainbow():
    assert (LEGEND.name(3), LEGEND.name(4), LEGEND.spoken(3), LEGEND.spoken(4)) == ("sky", "4", "sky", "class 4")
    palette = LEGEND.palette((3, 77, 200))
    assert palette[77].tolist() == [200, 10, 0]
    np.testing.assert_array_equal(palette[200], class_palette((3, 77, 200))[200])
    assert LEGEND.only([77]) == Legend({77: 'house "old"'}, {77: (200, 10, 0)})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("class = 3", "not a list"),
        ("[[class]]\nname = 'a'", "no value"),
        ("[[class]]\nvalue = 1.5\nname = 'a'", "no value"),
        ("[[class]]\nvalue = 1\nname = ''", "printable"),
        ("[[class]]\nvalue = 1\nname = '\u0007'", "cannot read"),
        ('[[class]]\nvalue = 1\nname = "\\u001b[2J"', "printable"),
        ("[[class]]\nvalue = 1\nname = 3", "printable"),
        ("[[class]]\nvalue = 1\ncolour = 'red'", "red, green and blue"),
        ("[[class]]\nvalue = 1\ncolour = [1, 2, 300]", "red, green and blue"),
        ("[[class]]\nvalue = 1\ncolour = [1.0, 2, 3]", "red, green and blue"),
        ("[[class]]\nvalue = 1\nname = 'a'\n[[class]]\nvalue = 1\nname = 'b'", "value of its own"),
        ("[[class]]\nvalue = 1\nsize = 3", "unknown entry 'size'"),
        ("[classes]\n1 = 'a'", "[[class]]"),
        ("value = ", "cannot read"),
        ("[[class]]\nvalue = 1\nname = 'a'\n[[class]]\nvalue = 2\nname = 'a'", "classes 1 and 2 are both called 'a'"),
        ("class = " + "[" * 100_000, "nested too deeply"),
        ("class = " + "[\n" * 100_000, "nested too deeply"),
        ("class = " + "{a = " * 100_000, "nested too deeply"),
        ("value = " + "1" * 100_000, "more than 1,000 characters"),
        (".".join(["a"] * 50_000) + " = 1", "more than 8 parts"),
        (".".join(['"a"'] * 50_000) + " = 1", "more than 8 parts"),
        ("[" + " . ".join(["a"] * 50_000) + "]", "more than 8 parts"),
        ('a = {b = """"""", ' + ".".join(["a"] * 50_000) + " = 1}", "more than 8 parts"),
        ("a = {b = ''''''', " + ".".join(["a"] * 50_000) + " = 1}", "more than 8 parts"),
        ('"""\n\\' * 200_000, "more than 10,000 characters"),
        (f"[[class]]\nvalue = 1\nname = '{'a' * 5_000}'", "printable"),
        (f"[[class]]\nvalue = 1\nname = '{'a' * 500_000}'", "more than 10,000 characters"),
        (f"[[class]]\nvalue = 1\nname = '{'a' * 10_000_000}'", "more than 1,048,576 bytes"),
        ("\n".join(f"key{i} = 1" for i in range(50_000)), "[[class]]"),
        (f"[[class]]\nvalue = 1\n{'b' * 900} = 1", "unknown entry"),
    ],
)
def test_a_legend_that_cannot_be_is_refused(tmp_path, text, words):
    (tmp_path / "classes.toml").write_text(text)
    with pytest.raises(InputError) as problem:
        read_legend(tmp_path / "classes.toml")
    assert "classes.toml" in str(problem.value)
    assert words in str(problem.value)
    assert len(str(problem.value)) < 600 + len(str(tmp_path))


def test_a_legend_may_begin_with_a_mark_and_have_lines_of_windows(tmp_path):
    (tmp_path / "classes.toml").write_bytes(b"\xef\xbb\xbf" + TOML.replace("\n", "\r\n").encode())
    assert read_legend(tmp_path / "classes.toml") == LEGEND
    (tmp_path / "classes.toml").write_bytes(TOML.encode("utf-16"))
    with pytest.raises(InputError, match="save it as UTF-8"):
        read_legend(tmp_path / "classes.toml")


def test_texts_and_comments_may_hold_what_is_refused_outside(tmp_path):
    name = "a.b.c.d.e.f.g.h.i.j [[[[[[[[[[[[[[[[[[[["
    classes = (f"[[class]]\nvalue = 1\nname = '{name}' # {name}", f'[[class]]\nvalue = 2\nname = """{name}\\""""')
    text = f"# {name}\n" + "\n".join(classes)
    (tmp_path / "classes.toml").write_text(text)
    assert read_legend(tmp_path / "classes.toml").names == {1: name, 2: f'{name}"'}


def test_a_file_beside_the_labels_comes_before_a_palette(tmp_path):
    labels = Image.fromarray(np.array([[0, 1], [2, 2]], np.uint8), "P")
    labels.putpalette([0, 0, 0, 255, 0, 0, 0, 0, 255])
    path = write(tmp_path / "a.png", labels)
    assert read_label_set([path])[1].colours[2] == (0, 0, 255)
    np.testing.assert_array_equal(read_labels(path), [[0, 1], [2, 2]])
    (tmp_path / "classes.toml").write_text(TOML)
    assert legend_of_files([path]) == LEGEND


def test_a_ramp_of_greys_is_no_choice_of_colours(tmp_path):
    labels = Image.fromarray(np.array([[0, 1], [2, 2]], np.uint8), "P")
    labels.putpalette([level for i in range(256) for level in (i, i, i)])
    assert not read_label_set([write(tmp_path / "a.png", labels)])[1]


# Label maps in colours

BLACK, RED, BLUE, WHITE = (0, 0, 0), (255, 0, 0), (0, 0, 255), (255, 255, 255)


def coloured(path, *rows):
    return write(path, np.array(rows, np.uint8))


def test_colours_are_numbered_alike_in_all_files_of_a_set(tmp_path):
    first = coloured(tmp_path / "a.png", [BLACK, RED, RED], [RED, BLUE, BLUE])
    second = coloured(tmp_path / "b.png", [WHITE, WHITE, BLUE])
    grey = coloured(tmp_path / "c.png", [WHITE, BLACK])  # alone it would be taken for class values
    maps, legend = read_label_set([first, second, grey])
    assert legend.colours == {0: BLACK, 1: BLUE, 2: RED, 3: WHITE}
    assert [labels.tolist() for labels in maps] == [[[0, 2, 2], [2, 1, 1]], [[3, 3, 1]], [[3, 0]]]
    assert read_labels(grey, legend=legend).tolist() == [[3, 0]]
    assert read_labels(grey, legend=Legend()).tolist() == [[255, 0]]


def test_colours_without_black_are_numbered_from_1(tmp_path):
    _, legend = read_label_set([coloured(tmp_path / "a.png", [RED, BLUE])])
    assert set(legend.colours) == {1, 2}


def test_a_white_canvas_is_0_so_that_it_can_be_asked_about(tmp_path):
    canvas = np.full((60, 80, 3), 255, np.uint8)
    canvas[5:8, 5:40], canvas[30:33, 20:60], canvas[50:52, 10:30] = RED, BLUE, BLACK
    maps, legend = read_label_set([write(tmp_path / "a.png", canvas)])
    assert legend.colours == {0: WHITE, 1: BLUE, 2: RED, 3: BLACK}
    with pytest.raises(InputError, match=r"the labels have the value 0 at 94.*% of all pixels.*unlabelled=0"):
        hr.fit([np.zeros((60, 80), np.uint8)], [maps[0]], "fast")


def test_colours_of_a_legend_are_its_classes(tmp_path):
    path = coloured(tmp_path / "a.png", [(128, 192, 255), (200, 10, 0)])
    with pytest.raises(InputError, match="colours of unknown classes"):
        read_labels(path)
    (tmp_path / "classes.toml").write_text(TOML)
    assert read_labels(path).tolist() == [[3, 77]]
    assert read_label_set([path])[0][0].tolist() == [[3, 77]]
    other = coloured(tmp_path / "b.png", [(128, 192, 255), (1, 2, 3)])
    with pytest.raises(InputError, match=r"1 colour.*#010203; expected #80c0ff, #c80a00"):
        read_labels(other)


def test_photographs_and_mixed_folders_are_no_labels(tmp_path):
    rng = np.random.default_rng(0)
    photo = write(tmp_path / "p.png", rng.integers(0, 256, (30, 30, 3), dtype=np.uint8))
    with pytest.raises(InputError, match=f"more than {MAX_COLOURS} colours"):
        read_label_set([photo])
    numbers = write(tmp_path / "n.png", np.array([[0, 1]], np.uint8))
    with pytest.raises(InputError, match=r"n\.png holds class numbers"):
        read_label_set([coloured(tmp_path / "a.png", [RED, BLUE]), numbers])


# Models


def test_a_model_keeps_names_and_colours(example, tiny_config, tmp_path):
    config = dataclasses.replace(tiny_config, n_levels=1)
    stack = hr.fit_stack(example.images, example.labels, config, legend=LEGEND)
    hr.save(stack, tmp_path / "model.hedge")
    loaded = hr.load(tmp_path / "model.hedge")
    assert loaded.legend == LEGEND
    table = str(hr.evaluate(loaded, example.images, example.labels))
    assert "3 sky" in table
    assert "200 tree" in table


def test_a_legend_of_other_classes_is_not_saved(stack, tmp_path):
    with pytest.raises(ModelError, match="belongs to no class"):
        hr.save(dataclasses.replace(stack, legend=Legend({5: "five"})), tmp_path / "model.hedge")
