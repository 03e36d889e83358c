"""The configuration file of the service."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from lazyrag import migrate
from lazyrag.errors import ConfigError
from lazyrag.server.core.config import ModelsConfig, SetConfig, open_rerank, open_set, read_config


def write(folder, text):
    path = folder / "serve.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_folder_needs_no_file(tmp_path):
    """A folder is served as one set of its name, on the loopback address, with its state beside the
    index.
    """
    folder = tmp_path / "my notes"
    folder.mkdir()
    config = read_config(folder)
    assert list(config.sets) == ["my-notes"]
    assert config.sets["my-notes"].path == folder
    assert (config.server.host, config.server.port) == ("127.0.0.1", None)
    assert config.server.state == folder / ".lazyrag" / "serve"


def test_the_state_folder_is_not_that_of_a_set(tmp_path):
    """What the service stores for itself would be taken for documents."""
    path = write(tmp_path, "[server]\nstate = 'files/../files'\n[sets.notes]\npath = 'files'\n")
    with pytest.raises(ConfigError, match=r"server\.state must not be"):
        read_config(path)


def test_options_take_precedence(tmp_path):
    """Options of the command take precedence over the file, and those not given leave it as it
    is.
    """
    path = write(tmp_path, "[server]\nport = 9000\nprocesses = 2\n[sets.notes]\npath = 'files'\n")
    config = read_config(path, port=9001, processes=None)
    assert (config.server.port, config.server.processes) == (9001, 2)


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    """The folder that the command runs in does not matter."""
    path = write(tmp_path, "[server]\nstate = 'state'\n[sets.notes]\npath = 'files'\n")
    monkeypatch.chdir("/")
    config = read_config(path)
    assert config.server.state == tmp_path / "state"
    assert config.sets["notes"].path == tmp_path / "files"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[server]\nprot = 1\n[sets.a]\npath='.'",
            r"serve.toml: Unknown key server.prot.*Did you mean 'port'",
        ),
        ("[sets.a]\npth='.'", r"Unknown key sets.a.pth.*Did you mean 'path'"),
        ("[servers]\nport = 1\n[sets.a]", r"Unknown key servers.*Did you mean 'server'"),
        (
            "[server]\nport = 99999\n[sets.a]",
            r"server.port must be less than or equal to 65535; got 99999",
        ),
        ("[server]\nport = 'x'\n[sets.a]", r"server.port must be a valid integer.*got 'x'"),
        ("[server]\nlog = 'xml'\n[sets.a]", r"server.log must be 'text' or 'json'; got 'xml'"),
        (
            "[server]\nroot_path = 'rag/'\n[sets.a]",
            r"server.root_path must be a path such as '/rag'; got 'rag/'",
        ),
        (
            "[sets.a]\nstore = 'x'\nstore_conf = {}",
            r"sets.a must have store or store_conf, not both",
        ),
        ("[sets.'../a']", r"sets.*must be letters.*'../a'"),
        ("[sets.a]\nsetup = 'module'", r"sets.a.setup must be 'module:function'; got 'module'"),
        ("server = 3\n[sets.a]", r"server must be a table; got 3"),
        ("sets = 1", r"sets must be a table; got 1"),
        ("[sets.a]\npath = ['a']", r"sets.a.path must be a path"),
        ("[sets.a]\nlabels = 'hr'", r"sets.a.labels must be a valid list; got 'hr'"),
        (
            "[models]\nchat = 'gpt-5'\n[sets.a]",
            r"models.chat must be 'openai:NAME' or 'module:attribute'; got 'gpt-5'",
        ),
        ("[sets.a]\npath = 'x'\n[sets.b]\npath = './x'", r"sets must have a store each"),
        ("[server]\nport = 1", r"sets is missing"),
        ("[sets]", r"sets must have at least 1|sets"),
        ("port = ", r"cannot be read as TOML"),
    ],
)
def test_error_names_the_key(tmp_path, text, message):
    """An error is one line with the path of the key, what it must be, and the value."""
    with pytest.raises(ConfigError) as caught:
        read_config(write(tmp_path, text))
    assert re.search(message, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_folder(tmp_path):
    """A path that does not exist is an error that names it."""
    with pytest.raises(ConfigError, match="nowhere"):
        read_config(tmp_path / "nowhere")


def test_set_of_the_command_line(tmp_path):
    """A set with a path has the index that ``lazyrag index`` uses; readers see what the writer
    builds.
    """
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "tea.txt").write_text("Green tea is brewed at eighty degrees.")
    text = "[sets.notes]\npath = 'files'\nlabels = {'t*' = ['hot'], '*.md' = ['other']}\n"
    config = read_config(write(tmp_path, text))
    chosen = config.sets["notes"]
    with open_set("notes", chosen, config.server.state, write=True) as docs:
        docs.activate_group("MediumChunk", analysers=["zh"])
        assert (tmp_path / "files" / ".lazyrag" / "config.json").is_file()
        with open_set("notes", chosen, config.server.state, write=False) as read:
            assert [
                node.path for node in read.restricted({"labels": ["hot"]}).search("green tea")
            ] == ["tea.txt"]
            assert read.restricted({"labels": ["other"]}).search("green tea") == []


def test_names_of_sets_may_hold_spaces(tmp_path):
    """As a quoted key; none begins or ends with one."""
    path = tmp_path / "serve.toml"
    path.write_text('[sets."Our notes 2024"]\npath = "notes"\n')
    assert list(read_config(path).sets) == ["Our notes 2024"]
    for name in (" notes", "notes ", "a\\tb"):
        path.write_text(f'[sets."{name}"]\npath = "notes"\n')
        with pytest.raises(ConfigError, match="spaces within"):
            read_config(path)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("reports/*", "*"),
        ("*", "reports/*"),
        ("reports/*", "*.pdf"),
        ("hr/*", "hr/public/*"),
        ("[ab]/?.md", "a/*"),
    ],
)
def test_rules_that_widen_access_are_named(first, second):
    """A file that two patterns match has the labels of both, which the author may not want; equal
    ones add nothing.
    """
    [sentence] = SetConfig(labels={first: ["hr"], second: ["all"]}).label_overlaps()
    assert f"{first!r} and {second!r} has the labels of both: all, hr" in sentence
    assert (
        list(SetConfig(labels={first: ["hr", "all"], second: ["all", "hr"]}).label_overlaps()) == []
    )


@pytest.mark.parametrize(
    ("first", "second"), [("hr/*", "handbook/*"), ("*.md", "*.pdf"), ("a?", "a"), ("[!a]", "bb")]
)
def test_rules_of_different_files_are_not_named(first, second):
    """No file matches both."""
    assert list(SetConfig(labels={first: ["hr"], second: ["all"]}).label_overlaps()) == []


@pytest.mark.slow
def test_index_of_the_command_line(tmp_path):
    """An index that ``lazyrag index`` made gets the field of the labels; the command line goes on
    with it.
    """
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "tea.txt").write_text("Green tea is brewed at eighty degrees.")

    def command(*words):
        done = subprocess.run(
            [sys.executable, "-m", "lazyrag", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    command("index")
    config = read_config(folder)
    with open_set("files", config.sets["files"], config.server.state, write=True) as docs:
        docs.activate_group("MediumChunk", analysers=["zh"])
        assert "labels" in docs.reader.fields
        assert "eighty degrees" in command("search", "tea")
    assert "tea.txt" not in command("sync")


def test_a_set_moves_to_other_stores(tmp_path):
    """`migrate` and `store_conf` are the whole move: nothing is loaded again, hits and labels
    stay.
    """
    folder, state = tmp_path / "files", tmp_path / "state"
    folder.mkdir()
    (folder / "tea.md").write_text("Green tea is not roasted.")
    old, new = (
        {"segment_store": {"type": "map", "kwargs": {"uri": str(path)}}}
        for path in (folder / ".lazyrag" / "store.db", tmp_path / "new.db")
    )
    with open_set("notes", SetConfig(path=folder, labels=["hr"]), state, write=True) as docs:
        docs.activate_group("MediumChunk")
        before = docs.search("tea", where={"labels": ["hr"]})
    migrate(old, new)
    with open_set(
        "notes", SetConfig(path=folder, labels=["hr"], store_conf=new), state, write=True
    ) as docs:
        assert docs.sync().unchanged == ("tea.md",)
        after = docs.search("tea", where={"labels": ["hr"]})
    assert [(hit.uid, hit.score) for hit in after] == [(hit.uid, hit.score) for hit in before] != []


def test_set_without_files(tmp_path):
    """A set without path has a store in the state folder."""
    config = read_config(write(tmp_path, "[sets.uploads]\n"))
    with open_set("uploads", config.sets["uploads"], config.server.state, write=True) as docs:
        docs.add_texts({"tea": "Green tea."})
    assert (config.server.state / "sets" / "uploads" / "store.db").is_file()


def test_importable_names(tmp_path, monkeypatch):
    """Models and definitions are named as module:attribute."""
    (tmp_path / "files").mkdir()
    (tmp_path / "definitions_of_test.py").write_text(
        "def model(text):\n    return [1.0, 2.0]\n"
        "def define(docs):\n    docs.create_node_group('line', transform=str.splitlines)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    names = "embed = 'definitions_of_test:model'\nsetup = 'definitions_of_test:define'\n"
    config = read_config(write(tmp_path, f"[sets.notes]\npath = 'files'\n{names}"))
    with open_set("notes", config.sets["notes"], config.server.state, write=True) as docs:
        assert "line" in docs.groups
        assert docs.reader.embed_keys


def test_unknown_name(tmp_path):
    """A name that cannot be imported is an error that says where modules are found."""
    config = read_config(write(tmp_path, "[sets.notes]\nsetup = 'no_such_module:define'\n"))
    with pytest.raises(ConfigError, match="no_such_module"):
        open_set("notes", config.sets["notes"], config.server.state, write=True)


def test_rerank_models(tmp_path, monkeypatch):
    """A model behind an endpoint, an importable one, and none."""
    (tmp_path / "ranking.py").write_text("def rank(query, documents, top_n=None):\n    return []\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert open_rerank(ModelsConfig()) is None
    assert open_rerank(ModelsConfig(rerank="ranking:rank")).__name__ == "rank"
    with open_rerank(
        ModelsConfig(rerank="openai:reranker-1", url="http://127.0.0.1:1/v1")
    ) as model:
        assert model.model == "reranker-1"
