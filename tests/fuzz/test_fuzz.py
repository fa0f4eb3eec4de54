"""A bounded part of the fuzzing that `make fuzz` goes on with, and tests of the fuzzer itself."""

import pytest

from fuzz.broken import CASES, chosen
from fuzz.outcomes import BAD
from fuzz.runner import Runner
from fuzz.worker import KINDS, rng_of, run_case
from helpers.files import listing

N_CASES = 200


@pytest.mark.parametrize("kind", ["models", "images", "settings"])
def test_hostile_files_are_used_or_refused_with_one_sentence(kind, tmp_path):
    with Runner(0, [kind], tmp_path) as runner:
        for number in range(N_CASES):
            runner.run(kind, number)
    tally = runner.tallies[kind]
    assert not tally.failures, "\n".join(tally.failures)
    # A fuzzer whose files are all alike would prove nothing.
    assert min(tally.counts["used"], tally.counts["refused"]) > N_CASES / 20, tally


def test_the_runner_notices_whatever_a_case_may_not_do(tmp_path):
    numbers = {}
    for number in range(1000):
        numbers.setdefault(chosen(rng_of("broken", 0, number)), number)
    said = []
    with Runner(0, ["broken"], tmp_path, said.append, hang=5) as runner:
        for which, (do, expected) in enumerate(CASES):
            assert runner.run("broken", numbers[which]).what == expected, do.__name__
    n_bad = sum(expected in BAD for _, expected in CASES)
    assert len(said) == len(list(tmp_path.iterdir())) == n_bad == len(runner.tallies["broken"].failures)
    for which, (do, expected) in enumerate(CASES):
        again = f"--kind broken --seed 0 --case {numbers[which]}\n"
        assert (expected in BAD) == any(do.__name__ in text and again in text for text in said), do.__name__


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in ("images", "settings")])
def test_a_case_is_the_same_file_again(kind, tmp_path):
    made = []
    for place in (tmp_path / "one", tmp_path / "two"):
        place.mkdir()
        of_kind = kind(place)
        for number in (5, 0, 3) if made else (3,):
            run_case(of_kind, 7, number, place / "case")
        made.append(listing(place / "case"))
    assert made[0]
    assert made[0] == made[1]
