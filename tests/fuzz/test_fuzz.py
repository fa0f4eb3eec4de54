"""A bounded part of the fuzzing that `make fuzz` goes on with, and tests of the fuzzer itself."""

import pytest

from fuzz import kinds, special
from fuzz.broken import CASES, chosen
from fuzz.outcomes import BAD
from fuzz.run import run_all
from fuzz.runner import CORPUS, DISTURBED, Runner, Tally, Worker
from fuzz.worker import rng_of, run_case
from helpers.files import listing

N_CASES = {"models": 150, "deep": 100, "requests": 100, "messages": 100} | dict.fromkeys(("settings", "images"), 200)
POSSIBLE = [
    pytest.param(kind, marks=pytest.mark.skipif(not kinds.is_possible(kind), reason="a package is not installed"))
    for kind in kinds.OF_FILES
]


@pytest.mark.parametrize("kind", POSSIBLE)
def test_hostile_files_are_used_or_refused_with_one_sentence(kind, tmp_path):
    with Runner(0, [kind], tmp_path) as runner:
        runner.run_corpus(kind)
        n_cases = N_CASES.get(kind, 150)
        for number in range(n_cases):
            runner.run(kind, number)
    tally = runner.tallies[kind]
    assert not tally.failures, "\n".join(tally.failures)
    # A fuzzer whose files are all alike would prove nothing.
    assert min(tally.counts["used"], tally.counts["refused"]) > n_cases / 50, tally


def test_the_corpus_has_many_cases_of_known_kinds_and_each_is_small():
    assert {folder.name for folder in CORPUS.iterdir()} <= set(kinds.OF_FILES)
    cases = list(CORPUS.glob("*/*"))
    assert len(cases) > 50
    for case in cases:
        assert sum(len(content) for content in listing(case).values()) < 40_000, case


@pytest.mark.slow
def test_the_runner_notices_whatever_a_case_may_not_do(tmp_path):
    numbers = {}
    for number in range(1000):
        numbers.setdefault(chosen(rng_of("broken", 0, number)), number)
    lines = []
    with Runner(0, ["broken"], tmp_path, lines.append, hang=5) as runner:
        for which, (do, expected) in enumerate(CASES):
            for _ in range(1 if expected == "hang" else 2):
                assert runner.run("broken", numbers[which]).what == expected, do.__name__
    n_bad = sum(expected in BAD for _, expected in CASES)
    assert len(lines) == len(list(tmp_path.iterdir())) == n_bad == len(runner.tallies["broken"].failures)
    for which, (do, expected) in enumerate(CASES):
        again = f"--kind broken --seed 0 --case {numbers[which]}\n"
        assert (expected in BAD) == any(do.__name__ in text and again in text for text in lines), do.__name__


def test_a_case_that_other_processes_keep_waiting_does_not_hang(tmp_path, monkeypatch):
    number = next(n for n in range(1000) if CASES[chosen(rng_of("broken", 0, n))][1] == "used")
    worker = Worker(tmp_path / "worker", "broken")
    worker.hang = 0
    seconds = iter([100.0, 700.0])  # before the case, and during it
    with monkeypatch.context() as patch:
        patch.setattr(worker, "seconds_waiting", lambda: next(seconds))
        assert worker.run(seed=0, number=number).what == "used"
    with monkeypatch.context() as patch:
        patch.setattr(worker, "seconds_waiting", lambda: 100.0)
        assert worker.run(seed=0, number=number).what == "hang"
    worker.stop()
    assert worker.seconds_waiting() == 0, "of a process that is gone"


@pytest.mark.parametrize("processes", [1, 3])
def test_each_case_runs_once_and_no_two_of_a_kind_at_a_time(processes):
    runs, running = [], []

    class Recording:
        def __init__(self):
            self.kinds = ("tiffs", "zarrs", *DISTURBED)
            self.tallies = {kind: Tally() for kind in self.kinds}

        def run_corpus(self, kind):
            runs.append((kind, "corpus"))

        def run(self, kind, number):
            source = "disturbed" if kind in DISTURBED else kind
            assert source not in running
            running.append(source)
            self.tallies[kind].seconds += 1
            runs.append((kind, number))
            running.remove(source)

    runner = Recording()
    run_all(runner, 20, None, processes)
    assert sorted(runs, key=str) == sorted(
        ((kind, n) for kind in runner.kinds for n in ("corpus", *range(20))), key=str
    )


def test_what_was_kept_fails_again(tmp_path):
    with Runner(0, ["broken"], tmp_path) as runner:
        number = next(n for n in range(1000) if CASES[chosen(rng_of("broken", 0, n))][1] == "result")
        first = runner.run("broken", number)
        (kept,) = tmp_path.iterdir()
        again = runner.run_kept("broken", kept)
    assert (first.what, again.what) == ("result", "result")


@pytest.mark.skipif(not special.IS_POSSIBLE, reason="not on Windows")
def test_pipes_links_and_files_without_end_are_packed_and_unpacked(tmp_path):
    first, packed, again = tmp_path / "first", tmp_path / "packed", tmp_path / "again"
    (first / "folder" / "empty").mkdir(parents=True)
    (first / "a.txt").write_text("a")
    (first / "folder" / "link").symlink_to("/dev/zero")
    rng = rng_of("broken", 0, 0)
    made = set()
    while len(made) < 6:
        path = first / f"b{len(made)}"
        path.write_text("b")
        how = special.exchange(path, rng).partition(" to ")[0]
        if how in made:
            special.remove(path)
        made.add(how)
    special.pack(first, packed)
    assert not [path for path in packed.rglob("*") if not (path.is_dir() or special.is_plain(path))]
    special.unpack(packed, again)
    assert shape(again) == shape(first)
    special.copy(first, tmp_path / "copied")
    assert shape(tmp_path / "copied") == shape(first)


def shape(folder):
    """What lies below a folder: name, kind, and size or where it leads."""
    kinds_below = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            kinds_below[path.relative_to(folder)] = path.readlink()
        elif not path.is_dir():
            kinds_below[path.relative_to(folder)] = path.is_fifo(), path.stat().st_size
        else:
            kinds_below[path.relative_to(folder)] = "folder"
    return kinds_below


@pytest.mark.parametrize("name", ["images", "settings", "tiffs", "zarrs", "projects", "classes"])
def test_a_case_is_the_same_file_again(name, tmp_path):
    made = []
    for place in (tmp_path / "one", tmp_path / "two"):
        place.mkdir()
        kind = kinds.make(name, place)
        for number in (5, 0, 3) if made else (3,):
            run_case(kind, 7, number, place / "case")
        made.append(listing(place / "case"))
    assert made[0]
    assert made[0] == made[1]


@pytest.mark.skipif(not kinds.is_possible("zarrs"), reason="zarr is not installed")
def test_metadata_that_an_earlier_change_made_unreadable_are_left_as_they_are(tmp_path):
    (tmp_path / "made").mkdir()
    zarrs = kinds.make("zarrs", tmp_path / "made")
    zarrs.bases = [tmp_path / "no-text"]
    zarrs.bases[0].mkdir()
    (zarrs.bases[0] / "zarr.json").write_bytes(b"\xff")
    made = []
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        made.append(zarrs.write(rng_of("zarrs", 0, number), folder)[1])
    assert any("nothing" in done for done in made)
