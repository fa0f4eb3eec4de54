"""Improving a model: refined, convolutional, with a pretrained network; ways that are not installed are refused."""

import pytest

from hedgerow.paint import long_jobs
from hedgerow.paint.messages import Refused
from helpers.paint import client_of, open_project, running

LOOK = {"do": "view", "image": 0, "level": 0, "rows": [0, 96], "cols": [0, 120]}


def test_what_is_not_here_is_refused():
    nothing = {"refine": False, "deep": False, "encoder": []}
    for how in ("refine", "deep", "encoder:lite0"):
        with pytest.raises(Refused, match=r"install|not on this machine"):
            long_jobs.check_how(how, nothing)
    long_jobs.check_how("refine", nothing | {"refine": True})
    long_jobs.check_how("encoder:lite0", nothing | {"encoder": ["lite0"]})


@pytest.mark.slow
@pytest.mark.parametrize("how", ["refine", "deep"])
def test_a_better_model_is_made_shown_and_called_off(tmp_path, how):
    pytest.importorskip("torch")
    minutes = {"refine": 0.1, "deep": 0.1}
    with running(open_project(tmp_path), improvement_minutes=minutes) as server, client_of(server).window() as window:
        window.say(LOOK)
        for n, (value, row, column) in enumerate(((0, 10, 10), (1, 20, 60), (0, 60, 15), (1, 10, 90))):
            window.paint(id=f"s{n}", value=value, points=[[row, column], [row + 15, column + 8]])
        window.say({"do": "improve", "how": how})
        window.hear("progress", job="improve")
        window.say({"do": "cancel", "job": "improve"})
        assert window.hear("done", "failed", job="improve", seconds=300)["say"] == "failed"
        window.say({"do": "improve", "how": how})
        window.hear("progress", job="improve")
        window.paint(id="meanwhile", value=0, points=[[80, 10]])
        window.hear("overlay", scope="visible")
        done = window.hear("done", "failed", job="improve", seconds=300)
        assert (done["say"], done["files"][0]["name"]) == ("done", "model-1.hedge")
