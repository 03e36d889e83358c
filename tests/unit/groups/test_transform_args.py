"""A group's transform given in every way, and lists of which each document takes the entry for its
path.
"""

from __future__ import annotations

import threading
import time

import pytest

from lazyrag import Document, LLMParser, NodeTransform, SentenceSplitter
from lazyrag.errors import (
    ConfigError,
    IngestionError,
    NotRegisteredError,
    TransformError,
    UnknownKeywordError,
)
from lazyrag.groups.node_group import make_group
from lazyrag.transforms import MarkdownSplitter, TransformArgs

FILES = {
    "a.md": "# Tea\n\nIt keeps.\n\n# Water\n\nIt boils.\n",
    "docs/B.MD": "# Cup\n",
    "c.csv.txt": "x. y.",
    "d.txt": "One. Two.",
}


def lines(text):
    """The lines of a text."""
    return text.splitlines()


def name_of(node):
    """The path of a node's document."""
    return f"from {node.path}"


class Suffixed(NodeTransform):
    """Words with something behind each."""

    def __init__(self, suffix="!", *, times=1):
        self.suffix, self.times = suffix, times

    def transform(self, node):
        """The words."""
        return [word + self.suffix * self.times for word in node.get_text().split()]


def _mark(transform, **kwargs):
    return make_group("g", transform, "lazyllm_root", kwargs).fingerprint.value


def _texts(docs, group):
    found = {}
    for node in docs.get_nodes(group):
        found.setdefault(node.path, []).append(node.text)
    return found


@pytest.fixture
def docs(folder):
    """Two Markdown files and two plain ones."""
    return Document(folder(FILES))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("transform", "kwargs"),
    [
        (Suffixed, {"suffix": "?"}),
        (Suffixed("?"), {}),
        (TransformArgs(Suffixed, kwargs={"suffix": "?"}), {}),
        (TransformArgs(Suffixed("?"), name="questions", num_workers=3), {}),
        ({"f": Suffixed, "kwargs": {"suffix": "?"}}, {}),
        ([TransformArgs(Suffixed, kwargs={"suffix": "?"})], {}),
        ([{"f": Suffixed("?")}], {}),
        ([Suffixed("?")], {}),
        ((Suffixed("?"),), {}),
    ],
)
def test_one_transform_in_every_form_is_one_definition(docs, transform, kwargs):
    """Class, instance, TransformArgs, dict, list of one: the same nodes, and nothing is built anew
    for another form.
    """
    docs.create_node_group("g", Suffixed, suffix="?")
    docs.create_node_group("g", transform, **kwargs)
    assert _texts(docs, "g")["d.txt"] == ["One.?", "Two.?"]


def test_a_name_and_a_function_in_arguments(docs):
    """A registered name with parameters; a function of text, and of nodes where trans_node says
    so.
    """
    docs.create_node_group(
        "sentence", TransformArgs("SentenceSplitter", kwargs={"chunk_size": 2, "chunk_overlap": 0})
    )
    docs.create_node_group("line", {"f": lines})
    docs.create_node_group("node", TransformArgs(name_of, trans_node=True))
    docs.create_node_group("all nodes", [TransformArgs(name_of)], trans_node=True)
    docs.create_node_group("text", TransformArgs(lines, trans_node=False), trans_node=True)
    assert _texts(docs, "sentence")["d.txt"] == ["One. ", "Two."]
    assert _texts(docs, "line")["a.md"] == ["# Tea", "It keeps.", "# Water", "It boils."]
    assert _texts(docs, "node")["d.txt"] == _texts(docs, "all nodes")["d.txt"] == ["from d.txt"]
    assert _texts(docs, "text")["d.txt"] == ["One. Two."]


def test_each_document_takes_the_first_entry_for_its_path(docs):
    """Patterns as in fnmatch, whatever the case; a function of the path; None takes the rest."""
    docs.create_node_group(
        "chunk",
        [
            TransformArgs("MarkdownSplitter", pattern="*.md"),
            {"f": Suffixed, "pattern": lambda path: ".csv" in path, "kwargs": {"times": 2}},
            lines,
            TransformArgs(Suffixed, pattern="*.txt"),
        ],
    )
    assert _texts(docs, "chunk") == {
        "a.md": ["# Tea\n\nIt keeps.\n\n", "# Water\n\nIt boils.\n"],
        "docs/B.MD": ["# Cup\n"],
        "c.csv.txt": ["x.!!", "y.!!"],
        "d.txt": ["One. Two."],
    }


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [("docs/*", ["docs/B.MD"]), ("*/docs/*.md", ["docs/B.MD"]), ("?.md", ["a.md"])],
)
def test_patterns_are_of_the_whole_path(docs, pattern, taken):
    """The path is relative to the dataset; a slash in front of it counts where the pattern has
    one.
    """
    docs.create_node_group("chunk", [TransformArgs(lines, pattern=pattern)])
    assert sorted(_texts(docs, "chunk")) == taken


def test_documents_that_no_entry_fits_have_no_nodes(docs):
    """They are not failures: a pattern chooses the documents of a group."""
    docs.create_node_group("chunk", TransformArgs(lines, pattern="*.md"))
    assert sorted(_texts(docs, "chunk")) == ["a.md", "docs/B.MD"]
    assert not docs.last_report.failed


def test_the_whole_list_is_in_the_fingerprint():
    """Entries, their order, parameters and patterns decide; names and numbers of workers do not."""
    markdown, sentence = (
        TransformArgs(MarkdownSplitter, pattern="*.md"),
        TransformArgs(SentenceSplitter),
    )
    told = _mark([markdown, sentence])
    others = [
        _mark([sentence, markdown]),
        _mark([markdown]),
        _mark([TransformArgs(MarkdownSplitter, pattern="*.txt"), sentence]),
        _mark(
            [TransformArgs(MarkdownSplitter, pattern="*.md", kwargs={"chunk_size": 8}), sentence]
        ),
        _mark([TransformArgs(MarkdownSplitter, pattern=lambda path: path == "a"), sentence]),
        _mark([TransformArgs(MarkdownSplitter, pattern=lambda path: path == "b"), sentence]),
        _mark([markdown, TransformArgs(lines)]),
        _mark([markdown, TransformArgs(lines, trans_node=True)]),
    ]
    assert len({told, *others}) == 9
    assert told == _mark(
        [
            TransformArgs(MarkdownSplitter, pattern="*.md", num_workers=2, name="md"),
            SentenceSplitter,
        ]
    )


def test_what_cannot_be_seen_in_a_list_is_told(docs):
    """A client inside one entry's function is listed with the entry."""
    client = threading.Lock()

    def ask(text):
        return str(client.locked())

    group = make_group("g", [lines, ask], "lazyllm_root", {})
    assert [name for name, _ in group.fingerprint.unseen] == ["transform[1].client"]


def test_a_file_that_moves_takes_the_entry_for_its_new_path(folder):
    """Its content is the same, and its nodes are another entry's; one that moves within a pattern
    costs no call.
    """
    calls = []

    def counted(text):
        calls.append(text)
        return text.splitlines()

    path = folder({"a.txt": "One. Two."})
    docs = Document(path)
    docs.create_node_group(
        "g", [TransformArgs("MarkdownSplitter", pattern="*.md"), Suffixed], version="1"
    )
    docs.create_node_group("h", [TransformArgs(counted, pattern="*.md"), counted], version="1")
    assert _texts(docs, "g") == {"a.txt": ["One.!", "Two.!"]}
    assert _texts(docs, "h") == {"a.txt": ["One. Two."]}
    (path / "a.txt").rename(path / "b.txt")
    docs.sync()
    assert _texts(docs, "g") == {"b.txt": ["One.!", "Two.!"]}
    assert _texts(docs, "h") == {"b.txt": ["One. Two."]}
    assert len(calls) == 1
    (path / "b.txt").rename(path / "b.md")
    docs.sync()
    assert _texts(docs, "g") == {"b.md": ["One. Two."]}
    assert len(calls) == 1 + len(_texts(docs, "h"))
    assert docs.maintenance.verify() == ()


def test_a_pattern_that_raises_fails_its_file_and_no_other(docs):
    """It is reported with the file."""

    def picky(path):
        if path == "d.txt":
            raise KeyError(path)
        return True

    docs.create_node_group("g", [TransformArgs(lines, pattern=picky)])
    with pytest.warns(UserWarning, match=r"d\.txt"):
        assert sorted(_texts(docs, "g")) == ["a.md", "c.csv.txt", "docs/B.MD"]
    [failed] = docs.last_report.failed
    assert isinstance(failed.error, TransformError)


def test_num_workers_bounds_the_calls_at_a_time(folder):
    """Two at a time, though four threads work; generators run within the bound as well."""
    running, most = [], []
    lock = threading.Lock()

    def slow(text):
        with lock:
            running.append(text)
            most.append(len(running))
        time.sleep(0.01)
        yield text
        with lock:
            running.remove(text)

    docs = Document(folder({f"{number}.txt": f"text {number}" for number in range(12)}), workers=4)
    docs.create_node_group("g", TransformArgs(slow, num_workers=2))
    assert len(_texts(docs, "g")) == 12
    assert max(most) <= 2


def test_arguments_are_read_by_key():
    """As in a mapping; an unknown key names the nearest."""
    args = TransformArgs.from_dict({"f": lines, "pattern": "*.md", "num_workers": 2})
    assert (args["f"], args["pattern"], args["trans_node"], args["kwargs"]) == (
        lines,
        "*.md",
        None,
        {},
    )
    with pytest.raises(NotRegisteredError, match="Did you mean 'pattern'"):
        args["patern"]


@pytest.mark.parametrize(
    ("transform", "kwargs", "error", "told"),
    [
        (
            {"f": Suffixed, "kwargs": {"sufix": "?"}},
            {},
            ConfigError,
            "Suffixed cannot be made with.*mean 'suffix'",
        ),
        ([TransformArgs(Suffixed, kwargs={"time": 2})], {}, ConfigError, "Did you mean 'times'"),
        (
            ["SentenceSplitter", {"f": "SentenceSplitter", "kwargs": {"chunk_sise": 2}}],
            {},
            ConfigError,
            "'chunk_size'",
        ),
        ({"f": lines, "patern": "*.md"}, {}, UnknownKeywordError, "Did you mean 'pattern'"),
        ({"pattern": "*.md"}, {}, ConfigError, "needs 'f'"),
        (TransformArgs(Suffixed), {"suffix": "?"}, ConfigError, r"give TransformArgs\(f, kwargs="),
        ([Suffixed], {"parnet": "x"}, ConfigError, "Did you mean 'parent'"),
        (
            [TransformArgs(lines, kwargs={"a": 1})],
            {},
            ConfigError,
            "which only a transform class takes",
        ),
    ],
)
def test_wrong_arguments_are_told(docs, transform, kwargs, error, told):
    """The error names what was given and the nearest that is known."""
    with pytest.raises(error, match=told):
        docs.create_node_group("g", transform, **kwargs)


@pytest.mark.parametrize(
    ("kwargs", "told"),
    [
        ({"f": 3}, "f must be"),
        ({"f": lines, "trans_node": "yes"}, "trans_node must be"),
        ({"f": lines, "num_workers": -1}, "num_workers"),
        ({"f": lines, "kwargs": [1]}, r"kwargs must be"),
        ({"f": lines, "pattern": ""}, "pattern must be"),
        ({"f": lines, "pattern": 5}, "pattern must be"),
        ({"f": lines, "name": 5}, "name must be"),
        ({"f": lines, "workers": 5}, "Did you mean 'num_workers'"),
    ],
)
def test_wrong_values_are_told(kwargs, told):
    """The error names the argument and what is allowed."""
    with pytest.raises(ConfigError, match=told):
        TransformArgs(**kwargs)


class Named(NodeTransform):
    """The name of the folder that a document lies in."""

    def transform(self, node):
        """One node."""
        return self.path_key(node.path)

    def path_key(self, path):
        """The folder."""
        return path.rpartition("/")[0] or "top"


def test_a_transform_may_say_what_of_the_path_decides(folder):
    """Its nodes are made anew where that changes, and kept where the file moves otherwise."""
    path = folder({"a.txt": "One."})
    docs = Document(path)
    docs.create_node_group("where", Named)
    assert _texts(docs, "where") == {"a.txt": ["top"]}
    (path / "b").mkdir()
    (path / "a.txt").rename(path / "b" / "a.txt")
    docs.sync()
    assert _texts(docs, "where") == {"b/a.txt": ["b"]}


def test_a_moved_file_is_asked_about_anew_where_another_model_is_for_it(tmp_path):
    """What one entry's model made is not taken for what another one's would make of the same
    text.
    """
    (tmp_path / "a.md").write_text("It keeps.\nIt boils.", encoding="utf-8")
    docs = Document(tmp_path)
    docs.create_node_group("line", transform=lines)
    by_path = [
        TransformArgs(LLMParser(lambda _: "of Markdown", "en"), pattern="*.md"),
        TransformArgs(LLMParser(lambda _: "of text", "en")),
    ]
    docs.create_node_group("summary", transform=by_path, parent="line")
    assert _texts(docs, "summary") == {"a.md": ["of Markdown", "of Markdown"]}
    (tmp_path / "a.md").rename(tmp_path / "a.txt")
    docs.sync()
    assert _texts(docs, "summary") == {"a.txt": ["of text", "of text"]}


def test_a_model_in_a_list_is_asked_several_things_at_once():
    """As many calls run together as outside of a list; with num_workers of the entry, no more than
    those.
    """
    now, most, lock = 0, 0, threading.Lock()

    def model(_):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1
        return "short"

    for workers, expected in ((0, 4), (1, 1)):
        most = 0
        docs = Document()
        docs.add_texts(
            {"a.txt": "\n".join(f"Tea {number}" for number in range(12)), "b.md": "Water"}
        )
        docs.create_node_group("line", transform=lines)
        parser = LLMParser(model, "en", num_workers=4)
        entry = TransformArgs(parser, num_workers=workers, pattern="*.txt")
        docs.create_node_group("summary", transform=[entry], parent="line")
        assert _texts(docs, "summary") == {"a.txt": ["short"] * 12}
        assert most == expected


def test_a_transform_that_says_no_chunk_size_may_stand_in_a_list():
    """``chunk_size = None`` says nothing."""

    class Whole(NodeTransform):
        chunk_size = None

        def transform(self, node):
            return node.get_text()

    group = make_group("g", [SentenceSplitter(64), Whole()], "lazyllm_root", {})
    assert group.user_transform.chunk_size == 64


@pytest.mark.parametrize("pattern", [".md", ".MD", "*.md"])
def test_a_suffix_is_a_pattern(tmp_path, pattern):
    """A suffix means the same as for add_reader, whatever its case."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "茶.MD").write_text("# 茶", encoding="utf-8")
    (tmp_path / "md").write_text("no suffix", encoding="utf-8")
    docs = Document(tmp_path)
    docs.create_node_group("marked", transform=[TransformArgs("MarkdownSplitter", pattern=pattern)])
    assert [node.path for node in docs.get_nodes("marked")] == ["sub/茶.MD"]


def test_a_pattern_that_raises_is_named(tmp_path):
    """Its file fails with what the pattern raised, not with what a transform did."""
    (tmp_path / "tea.txt").write_text("Sencha", encoding="utf-8")
    docs = Document(tmp_path)
    docs.create_node_group(
        "some", transform=[TransformArgs("SentenceSplitter", pattern=lambda path: 1 / 0)]
    )
    with pytest.raises(
        IngestionError, match="The pattern of SentenceSplitter raised ZeroDivisionError"
    ):
        docs.get_nodes("some")
