"""Finding a model's folder, and what its files say."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lazyrag.errors import ConfigError, DatasetPathError, MissingDependencyError
from lazyrag.models.onnx.folder import FileFingerprint, ModelFolder, choose_graph, graph_files
from lazyrag.models.onnx.hub import find_model
from lazyrag.models.onnx.pooling import PoolingSettings, read_pooling_settings
from tests.hub_server import COMMIT, HubServer, hub_server
from tests.interpreter import python
from tests.shared import shared
from tests.tiny_models import write_embedder, write_json, write_steps

MEAN = {"pooling_mode_mean_tokens": True}


@pytest.fixture
def model(tmp_path) -> ModelFolder:
    """An empty folder."""
    (tmp_path / "model").mkdir()
    return ModelFolder(tmp_path / "model", "model")


def write_snapshot(cache: Path, repository: str = "models--makers--tiny") -> Path:
    """A model in a cache of the hub's layout, on the main branch."""
    (cache / repository / "refs").mkdir(parents=True)
    (cache / repository / "refs" / "main").write_text(COMMIT)
    return write_embedder(cache / repository / "snapshots" / COMMIT, pooling=MEAN)


def test_a_folder_is_used_as_it_is(tmp_path):
    """Its name is the model's, whatever the path looks like."""
    folder = write_embedder(tmp_path / "my model", pooling=MEAN)
    assert find_model(folder) == ModelFolder(folder, "my model")
    assert find_model(f"{folder}{os.sep}") == ModelFolder(folder, "my model")


@pytest.mark.parametrize("wrong", ["", "  ", None, 7])
def test_a_model_is_a_path_or_a_name(wrong):
    """Nothing else, and no blank text, which would be the working directory."""
    with pytest.raises(ConfigError, match="give a folder, or an id on the hub"):
        find_model(wrong)


@pytest.mark.parametrize("path", ["/nowhere/at/all", "./nowhere", "a/b/c", "C:\\nowhere"])
def test_a_path_that_is_not_there_is_no_id(path):
    """The error names it, and is a FileNotFoundError too."""
    with pytest.raises(DatasetPathError, match="There is no folder") as caught:
        find_model(path)
    assert isinstance(caught.value, FileNotFoundError)


def test_a_folder_has_no_revision(tmp_path):
    """Silence would let people believe that they pinned something."""
    with pytest.raises(ConfigError, match="only models on the hub have revisions"):
        find_model(tmp_path, revision="main")


def test_an_id_that_the_hub_would_refuse_is_refused():
    """The error names it."""
    with pytest.raises(ConfigError, match="'makers/ti--ny' is neither a folder nor an id"):
        find_model("makers/ti--ny")


def test_the_hubs_client_is_needed_for_ids_only(tmp_path, monkeypatch):
    """A folder needs no client; an id says how to install it."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert find_model(tmp_path).path == tmp_path
    with pytest.raises(MissingDependencyError, match=r"'huggingface_hub'.*\.\[onnx\]"):
        find_model("makers/tiny")


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[HubServer]:
    """A hub that fresh interpreters know as the only one, and an empty cache."""
    with hub_server(write_embedder(tmp_path / "served", pooling=MEAN), "makers/tiny") as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
        monkeypatch.setenv("NO_PROXY", "*")
        yield served


def in_fresh_interpreter(*lines: str) -> list[str]:
    """What lines of Python print, in a process whose hub is the one that the environment names."""
    done = python("-c", "\n".join(("from lazyrag.models.onnx.hub import find_model", *lines)))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_an_id_is_looked_up_on_this_machine(hub, tmp_path):
    """By the main branch, by a branch and by a commit; another revision is not there; nobody is
    asked for anything.
    """
    snapshot = write_snapshot(tmp_path / "cache")
    printed = in_fresh_interpreter(
        f"for revision in (None, 'main', '{COMMIT}'):",
        "    found = find_model('makers/tiny', revision=revision)",
        "    print(found.path, found.name, found.graph().name)",
        "from lazyrag.errors import ConfigError",
        "for wanted in (('makers/tiny', 'v2'), ('makers/other', None)):",
        "    try:",
        "        find_model(wanted[0], revision=wanted[1])",
        "    except ConfigError as error:",
        "        print(error)",
    )
    assert printed[:3] == [f"{snapshot} tiny model.onnx"] * 3
    assert "no model of that id at revision 'v2' in the cache of the hub" in printed[3]
    assert printed[4].startswith("'makers/other' is not on this machine")
    assert "Run: lazyrag model fetch makers/other" in printed[4]
    assert "download=True" in printed[4]
    assert hub.requests == 0


@pytest.mark.slow
def test_a_download_fetches_what_is_needed_and_once(hub, tmp_path):
    """The graph with its weights and what describes it, no other format; what is there is not asked
    for again.
    """
    others = (
        "pytorch_model.bin",
        "onnx/model_O4.onnx",
        "README.md",
        "openvino/model.xml",
        "onnx/Constant_7_attr__value",
    )
    for name in ("model.onnx_data", "Constant_3_attr__value", *others):
        (hub.folder / name).parent.mkdir(exist_ok=True)
        (hub.folder / name).write_bytes(name.encode())
    printed = in_fresh_interpreter(
        "found = find_model('makers/tiny', download=True)",
        "print(found.name, found.path.is_dir())",
        "print(sorted(path.relative_to(found.path).as_posix() for path in found.path.rglob('*') if path.is_file()))",
    )
    needed = [
        "1_Pooling/config.json",
        "Constant_3_attr__value",
        "config.json",
        "model.onnx",
        "model.onnx_data",
        "modules.json",
    ]
    needed += ["sentence_bert_config.json", "tokenizer.json"]
    assert printed == ["tiny True", str(needed)]
    assert sorted(name for name, _ in hub.transfers) == needed
    asked = hub.requests
    printed = in_fresh_interpreter(
        "print(find_model('makers/tiny', download=True).name, find_model('makers/tiny').name)",
    )
    assert printed == ["tiny tiny"]
    assert hub.requests == asked


@pytest.mark.slow
def test_a_download_that_cannot_be_says_why(hub):
    """No such repository, or several graphs in it: the error names them, before anything is
    fetched.
    """
    shutil.move(hub.folder / "model.onnx", hub.folder / "b.onnx")
    shutil.copy(hub.folder / "b.onnx", hub.folder / "a.onnx")
    printed = in_fresh_interpreter(
        "from lazyrag.errors import ConfigError",
        "for name in ('makers/none', 'makers/tiny'):",
        "    try:",
        "        find_model(name, download=True)",
        "    except ConfigError as error:",
        "        print(error)",
    )
    assert printed[0].startswith(
        f"'makers/none' cannot be fetched from {hub.url}: there is no such public model"
    )
    assert printed[1].startswith("'makers/tiny' on the hub has several ONNX files: a.onnx, b.onnx.")
    assert hub.transfers == []


def test_a_snapshot_given_as_a_folder_has_the_models_name(tmp_path):
    """The last folder's name is a commit there."""
    assert find_model(write_snapshot(tmp_path)).name == "tiny"


@pytest.mark.parametrize(
    ("files", "wanted", "chosen"),
    [
        (["model.onnx", "onnx/model.onnx"], None, "model.onnx"),
        (["onnx/model_quantized.onnx", "onnx/model.onnx"], None, "onnx/model.onnx"),
        (["onnx/model_O2.onnx", "onnx/model_quantized.onnx"], None, "onnx/model_quantized.onnx"),
        (["config.json", "anything.onnx"], None, "anything.onnx"),
        (["model.onnx", "onnx/model_O2.onnx"], "onnx/model_O2.onnx", "onnx/model_O2.onnx"),
    ],
)
def test_the_usual_graph_is_chosen(files, wanted, chosen):
    """The one that was asked for, else the usual names in their order, else the only one."""
    assert choose_graph(files, wanted, "it") == chosen


@pytest.mark.parametrize(
    ("files", "wanted", "message"),
    [
        (["config.json", "model.safetensors"], None, "it has no ONNX file.*optimum-cli"),
        (["b.onnx", "a.onnx"], None, r"several ONNX files: a\.onnx, b\.onnx.*file='a\.onnx'"),
        (
            ["model.onnx", "model_O4.onnx"],
            "model_04.onnx",
            r"no such ONNX file.*Did you mean 'model_O4\.onnx'",
        ),
        (["model.onnx"], "../model.onnx", "no such ONNX file"),
    ],
)
def test_a_graph_that_is_not_clear_is_an_error(files, wanted, message):
    """It lists what there is."""
    with pytest.raises(ConfigError, match=message):
        choose_graph(files, wanted, "it")


def test_weights_beside_a_graph_belong_to_it(tmp_path):
    """Whatever exporters call them; another graph's do not."""
    names = [
        "model.onnx",
        "model.onnx.data",
        "model.onnx_data",
        "model.onnx_data_1",
        "Constant_7_attr__value",
        "other.onnx_data",
        "model.onnx.md",
    ]
    for name in names:
        (tmp_path / name).touch()
    assert {path.name for path in graph_files(tmp_path / "model.onnx")} == {*names[:5]}


@pytest.mark.parametrize(
    ("sentence_bert", "tokenizer", "config", "expected"),
    [
        ({"max_seq_length": 256}, {"model_max_length": 512}, {"max_position_embeddings": 512}, 256),
        (
            {"max_seq_length": None},
            {"model_max_length": 384},
            {"max_position_embeddings": 512},
            384,
        ),
        (None, {"model_max_length": 1e30}, {"max_position_embeddings": 512}, 512),
        (
            None,
            {"model_max_length": 1000000000000000019884624838656},
            {"max_position_embeddings": 77},
            77,
        ),
        (
            None,
            None,
            {"max_position_embeddings": 514, "model_type": "xlm-roberta", "pad_token_id": 1},
            512,
        ),
        (None, None, {"max_position_embeddings": 514, "model_type": "mpnet"}, 512),
        (
            {"max_seq_length": 514},
            None,
            {"max_position_embeddings": 514, "model_type": "roberta"},
            512,
        ),
        (None, {"model_max_length": 512}, {"max_position_embeddings": -1}, 512),
        (None, {"model_max_length": 512}, None, 512),
        (None, None, {"max_position_embeddings": True}, None),
        (None, None, None, None),
    ],
)
def test_the_length_is_read_where_models_say_it(model, sentence_bert, tokenizer, config, expected):
    """sentence_bert_config.json, else tokenizer_config.json, never beyond the positions of
    config.json; no nonsense.
    """
    for name, described in (
        ("sentence_bert_config.json", sentence_bert),
        ("tokenizer_config.json", tokenizer),
        ("config.json", config),
    ):
        if described is not None:
            write_json(model.path / name, described)
    assert model.max_tokens == expected


def test_older_models_name_their_length_otherwise(model):
    """sentence_roberta_config.json and its like count too."""
    write_json(
        model.path / "sentence_roberta_config.json", {"max_seq_length": 128, "do_lower_case": True}
    )
    assert model.max_tokens == 128
    assert model.lower_case


@pytest.mark.parametrize("broken", ["{", "[1, 2]", '"text"', "\x00", "[" * 100_000])
def test_a_broken_description_names_its_file(model, broken):
    """Not a bare JSON error from the depths."""
    (model.path / "config.json").write_text(broken, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.json cannot be used.*Fetch the model again"):
        model.read_json_object("config.json")


@pytest.mark.parametrize("broken", ['{"type": 1}', "[1]", "["])
def test_a_broken_list_of_modules_names_its_file(model, broken):
    """modules.json is a list of objects."""
    (model.path / "modules.json").write_text(broken, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"modules\.json cannot be used"):
        model.modules()


@pytest.mark.parametrize(
    ("described", "query", "document"),
    [
        ({"prompts": {"query": "q: ", "document": "d: "}}, "q: ", "d: "),
        ({"prompts": {"query": "q: ", "passage": "p: "}}, "q: ", "p: "),
        ({"prompts": {"corpus": "c: "}, "default_prompt_name": "corpus"}, "c: ", "c: "),
        ({"prompts": {"query": "", "other": "o: "}, "default_prompt_name": "other"}, "", "o: "),
        ({"prompts": {}, "default_prompt_name": None}, "", ""),
        ({"prompts": ["query"], "default_prompt_name": ["query"]}, "", ""),
        ({}, "", ""),
    ],
)
def test_prompts_come_from_the_model(model, described, query, document):
    """By the names that sentence-transformers looks for, then its default."""
    write_json(model.path / "config_sentence_transformers.json", described)
    assert (model.prefix("query"), model.prefix("document")) == (query, document)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        (MEAN, ("mean",)),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}, ("lasttoken",)),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ("cls", "mean")),
        ({"pooling_mode_mean_tokens": False}, ("mean",)),
        ({"pooling_mode": "weightedmean"}, ("weightedmean",)),
        ({"pooling_mode": ["mean", "cls"]}, ("mean", "cls")),
    ],
)
def test_the_pooling_is_read_in_both_spellings(model, pooling, expected):
    """Switches of older releases in the order in which they are concatenated, a name or a list of
    the newer ones.
    """
    write_steps(model.path, pooling)
    assert read_pooling_settings(model) == PoolingSettings(expected, normalise=True)


def test_steps_of_a_model(model):
    """Whether there is a Normalize, and what only a graph can do; where the classes live does not
    matter.
    """
    write_steps(model.path, MEAN, normalise=False, more=["Dense", "Dropout"])
    assert read_pooling_settings(model) == PoolingSettings(
        ("mean",), normalise=False, others=("Dense",)
    )
    write_json(
        model.path / "modules.json",
        [
            {"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""},
            {"type": "a.b.Normalize"},
        ],
    )
    assert read_pooling_settings(model) == PoolingSettings((), normalise=True)


def test_without_modules_nothing_is_known(model):
    """But for a pooling that an export has kept."""
    assert read_pooling_settings(model) == PoolingSettings()
    write_json(
        model.path / "1_Pooling" / "config.json",
        {"pooling_mode_cls_token": True, "include_prompt": False},
    )
    assert read_pooling_settings(model) == PoolingSettings(("cls",), with_prefix=False)


def test_an_unknown_pooling_is_refused(model):
    """The error names the file, what it says and what is known."""
    write_steps(model.path, {"pooling_mode": "median"})
    with pytest.raises(
        ConfigError, match=r"1_Pooling.config\.json 'median'.*Known: cls, lasttoken, max, mean"
    ):
        read_pooling_settings(model)


def test_a_digest_is_of_bytes_and_settings(tmp_path):
    """The same in another folder and at another time; another for any other byte, order or
    setting.
    """
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "a").write_bytes(b"one")
        (folder / "b").write_bytes(b"two")
    os.utime(second / "a", ns=(1, 1))
    of_first = FileFingerprint.of([first / "a", first / "b"])
    digest = of_first.digest({"x": 1, "y": 2})
    assert len(digest) == 16
    assert FileFingerprint.of([second / "a", second / "b"]).digest({"y": 2, "x": 1}) == digest
    assert of_first.digest({"x": 1, "y": 3}) != digest
    assert FileFingerprint.of([first / "b", first / "a"]).digest({"x": 1, "y": 2}) != digest
    (second / "b").write_bytes(b"Two")
    assert FileFingerprint.of([second / "a", second / "b"]).digest({"x": 1, "y": 2}) != digest


def test_a_file_that_has_changed_has_no_digest(tmp_path):
    """What was loaded is not what would be hashed; nor is a file that is gone."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"one")
    noted = FileFingerprint.of([path])
    path.write_bytes(b"another")
    with pytest.raises(ConfigError, match=r"model\.onnx has changed since"):
        noted.digest({})
    path.unlink()
    with pytest.raises(ConfigError, match=r"model\.onnx has changed since"):
        noted.digest({})


@pytest.mark.shared
def test_the_real_models_folder():
    """all-MiniLM-L6-v2: 256 tokens, mean, normalised, no prompts; the 128 in its tokenizer.json do
    not count.
    """
    folder = find_model(shared("models", "all-minilm-l6-v2"))
    assert folder.max_tokens == 256
    assert folder.positions == 512
    assert read_pooling_settings(folder) == PoolingSettings(("mean",), normalise=True)
    assert (folder.prefix("query"), folder.prefix("document"), folder.dimension) == ("", "", None)
    assert folder.graph().name == "model.onnx"


def test_a_file_is_no_folder(tmp_path):
    """The path of an ONNX file is answered with what to give instead."""
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"is a file; give the model's folder.*model\.onnx"):
        find_model(tmp_path / "model.onnx")
