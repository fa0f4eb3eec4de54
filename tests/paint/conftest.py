"""A project that most tests of the page use."""

import pytest


@pytest.fixture
def project(tmp_path):
    from helpers.paint import open_project

    opened = open_project(tmp_path, 2, (600, 560))
    yield opened
    opened.close()
