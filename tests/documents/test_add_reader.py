"""Readers that users name for files: which one reads which file, when files are read again, and in
which process.
"""

from __future__ import annotations

import os
import sys
import zipfile

import pytest

from lazyrag import Document, IngestionWarning, migrate, register_loader
from lazyrag.errors import ConfigError
from lazyrag.loaders import LoadedFile, LoadLimits
from lazyrag.loaders.records import CsvLoader
from tests.shelf import conf_of


def says(word):
    """A reader that says a word of every file."""

    def read(path):
        return f"{word} {path.name}"

    return read


class WordLoader:
    """Says a word of every file."""

    def __init__(self, word="class"):
        """Say this word."""
        self.word = word

    def load(self, path):
        """The word and the file's name."""
        return f"{self.word} {path.name}"


def texts(docs):
    """The text of each document."""
    return {node.path: node.text for node in docs.get_nodes()}


@pytest.mark.parametrize(
    "func",
    [says("own"), WordLoader("own"), LoadedFile],
    ids=["function", "instance", "returns LoadedFile"],
)
def test_what_may_read_a_file(folder, func):
    """A function and a loader read files of the pattern; the others are read as ever."""
    reader = (lambda path: LoadedFile(f"own {path.name}")) if func is LoadedFile else func
    docs = Document(folder({"a.log": "x", "b.txt": "tea"}))
    docs.add_reader("*.log", reader)
    assert texts(docs) == {"a.log": "own a.log", "b.txt": "tea"}


def test_a_class_is_made_anew_for_each_file(folder):
    """A loader class is given as it is, and keeps nothing from file to file."""
    made = []

    class Loader(WordLoader):
        """Remembers that it was made."""

        def __init__(self):
            """Note it."""
            super().__init__()
            made.append(self)

    docs = Document(folder({"a.log": "x", "b.log": "y"}), workers=1)
    docs.add_reader(".log", Loader)
    assert texts(docs) == {"a.log": "class a.log", "b.log": "class b.log"}
    assert len(made) == 2


def test_the_decorator(folder):
    """Without a function, add_reader decorates one and returns it unchanged, on an instance and on
    the class.
    """
    docs = Document(folder({"a.log": "x", "b.motd": "y"}))

    @docs.add_reader("*.log")
    def read_log(path):
        return f"log {path.name}"

    @Document.add_reader("*.motd")
    def read_motd(path):
        return f"motd {path.name}"

    assert (read_log.__name__, read_motd.__name__) == ("read_log", "read_motd")
    assert texts(docs) == {"a.log": "log a.log", "b.motd": "motd b.motd"}


def test_an_instance_goes_before_its_class_and_that_before_what_is_registered(folder):
    """Built-in, registered, class, instance: each takes the file from those before."""
    path = folder({"a.txt": "tea"})
    assert texts(Document(path)) == {"a.txt": "tea"}
    register_loader(".txt", replace=True)(
        type("Own", (), {"load": lambda _self, _path: "registered"})
    )
    assert texts(Document(path)) == {"a.txt": "registered"}
    Document.add_reader("a*", says("class"))
    assert texts(Document(path)) == {"a.txt": "class a.txt"}
    docs = Document(path)
    docs.add_reader("?.txt", says("instance"))
    assert texts(docs) == {"a.txt": "instance a.txt"}
    assert texts(Document(path)) == {"a.txt": "class a.txt"}


def test_a_subclass_has_readers_of_its_own(folder):
    """What is named on a subclass is not there for other Documents; what is named on Document is
    there for it.
    """

    class Notes(Document):
        """A Document of notes."""

    path = folder({"a.log": "tea", "b.motd": "milk"})
    Notes.add_reader("*.log", says("notes"))
    Document.add_reader("*.motd", says("all"))
    assert texts(Notes(path)) == {"a.log": "notes a.log", "b.motd": "all b.motd"}
    assert texts(Document(path)) == {"a.log": "tea", "b.motd": "all b.motd"}


@pytest.mark.parametrize(
    ("patterns", "name", "wins"),
    [
        (["*.log", "a*"], "a.log", "*.log"),
        (["a*", "*.log"], "a.log", "*.log"),
        (["a*", "*g"], "a.log", "*g"),
        (["*g", "a*"], "a.log", "a*"),
        ([".log", ".x.log"], "a.x.log", ".x.log"),
        ([".x.log", ".log"], "a.x.log", ".x.log"),
        (["*.LOG"], "a.Log", "*.LOG"),
        (["notes/*.log"], "notes/deep/a.log", "notes/*.log"),
        (["**/a.*"], "a.log", "**/a.*"),
        (["**/a.*"], "notes/a.log", "**/a.*"),
        (["a.log"], "notes/a.log", "a.log"),
    ],
)
def test_which_pattern_wins(folder, patterns, name, wins):
    """A suffix before a pattern, a longer suffix before a shorter one, a later pattern before an
    earlier one.
    """
    docs = Document(folder({name: "tea"}))
    for pattern in patterns:
        docs.add_reader(pattern, says(pattern))
    assert texts(docs)[name].startswith(f"{wins} ")


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("*.log", "log"), ("*.log", ".log.txt"), ("other/*.log", "notes/a.log"), ("b*", "notes/a.b")],
)
def test_what_a_pattern_does_not_match(folder, pattern, name):
    """Files of other names are read as ever."""
    docs = Document(folder({name: "tea", "c.txt": "milk"}))
    docs.add_reader(pattern, says("own"))
    assert "own" not in " ".join(texts(docs).values())


def test_ids_of_ones_own(folder):
    """A file that is known by an id is matched by the id and by its own name."""
    path = folder({"a.log": "x", "b.log": "y"})
    docs = Document(doc_files={"first": path / "a.log", "second": path / "b.log"})
    docs.add_reader("first", says("id"))
    assert texts(docs) == {"first": "id a.log", "second": "y"}
    docs.add_reader("b.*", says("name"))
    docs.sync()
    assert texts(docs)["second"] == "name b.log"


def test_a_reader_decides_whatever_the_content_is(folder):
    """A PDF's bytes under a user's suffix go to the user's reader."""
    docs = Document(folder({"a.dat": b"%PDF-1.7\n%\xff\xff", "b.txt": "tea"}))
    docs.add_reader("*.dat", says("own"))
    assert texts(docs)["a.dat"] == "own a.dat"


@pytest.mark.parametrize(
    ("pattern", "func", "words"),
    [
        ("", says("x"), "pattern must be a suffix"),
        (".", says("x"), "pattern must be a suffix"),
        (None, says("x"), "pattern must be a suffix"),
        (["*.log"], says("x"), "pattern must be a suffix"),
        ("TXT", says("x"), r"Pass '\.txt' for the suffix, or '\*\*/TXT' for the name"),
        ("*.log", "TextLoader", "must be a function of the path"),
        ("*.log", 7, "must be a function of the path"),
        ("*.log", dict, "must be a function of the path"),
        (
            "*.log",
            type("L", (), {"__init__": lambda self, word: None, "load": lambda self, path: ""}),
            r"needs word.*L\(word=",
        ),
    ],
)
def test_what_is_no_reader_is_refused(pattern, func, words):
    """The error says what was given and what is allowed."""
    with pytest.raises(ConfigError, match=words):
        Document().add_reader(pattern, func)


def test_what_is_asynchronous_is_refused():
    """A coroutine function would never be awaited."""

    async def read(path):
        return path.name

    with pytest.raises(ConfigError, match="asynchronous"):
        Document.add_reader("*.log", read)


def test_misspelt_keywords_are_refused():
    """An unknown keyword names the nearest one."""
    with pytest.raises(ConfigError, match="Did you mean 'pattern'"):
        Document().add_reader(patern="*.log")


def test_a_reader_that_fails(folder):
    """Its error is reported for its file and says which reader it was; the other files are in."""
    docs = Document(folder({"a.log": "x", "b.txt": "tea"}))

    @docs.add_reader("*.log")
    def broken_reader(path):
        raise KeyError(path.name)

    with pytest.warns(
        IngestionWarning, match=r"The loader broken_reader of \*\.log files raised KeyError"
    ):
        assert texts(docs) == {"b.txt": "tea"}


@pytest.fixture
def counted():
    """A reader that notes which files it reads; its word can be changed from outside, unseen."""

    class Counted:
        """Notes its files."""

        def __init__(self, word):
            """Say this word."""
            self.word = word
            self.read = []

        @property
        def identity(self):
            """What tells it from others."""
            return f"counted {self.word}"

        def __call__(self, path):
            """The word and the name."""
            self.read.append(path.name)
            return f"{self.word} {path.name}"

    return Counted


def test_a_changed_reader_reads_its_files_again(folder, tmp_path, counted):
    """A restart with the same reader reads nothing, one with another reads its files, and only
    these.
    """
    path, store = folder({"a.log": "x", "b.txt": "tea"}), tmp_path / "store.db"

    def opened(reader):
        docs = Document(path, store_conf=conf_of(store))
        docs.add_reader("*.log", reader)
        return docs

    with opened(counted("one")) as docs:
        assert texts(docs) == {"a.log": "one a.log", "b.txt": "tea"}
    again = counted("one")
    with opened(again) as docs:
        assert texts(docs) == {"a.log": "one a.log", "b.txt": "tea"}
        assert again.read == []
    with opened(counted("two")) as docs:
        plan = docs.plan()
        assert (plan.files.updated, plan.files.unchanged) == (("a.log",), ("b.txt",))
        report = docs.sync()
        assert (report.updated, report.unchanged) == (("a.log",), ("b.txt",))
        assert texts(docs) == {"a.log": "two a.log", "b.txt": "tea"}
    with Document(path, store_conf=conf_of(store)) as docs:  # without a reader, its content decides
        assert docs.sync().updated == ("a.log",)
        assert texts(docs)["a.log"] == "x"


def test_a_reader_named_later_reads_at_the_next_sync(folder):
    """Naming another reader for a file, or changing one's code or parameters, is a change of the
    file.
    """
    docs = Document(folder({"prices.csv": "tea,price\nSencha,12\n", "b.txt": "tea"}))
    assert texts(docs)["prices.csv"] == "tea: Sencha; price: 12"
    docs.add_reader("*.csv", CsvLoader(template="{tea} costs {price}"))
    assert docs.sync().updated == ("prices.csv",)
    assert texts(docs)["prices.csv"] == "Sencha costs 12"
    docs.add_reader("*.csv", CsvLoader(template="{tea} costs {price}"))
    assert docs.sync().updated == ()
    docs.add_reader("*.csv", CsvLoader(template="{tea}: {price} EUR"))
    assert docs.sync().updated == ("prices.csv",)
    assert texts(docs)["prices.csv"] == "Sencha: 12 EUR"


def test_versions_and_what_is_not_seen(folder):
    """What a fingerprint cannot see is listed by plan(), unless version= tells readers apart."""
    docs = Document(folder({"a.log": "x"}))
    words = {"said": object()}
    docs.add_reader("*.log", lambda path: f"{bool(words)} {path.name}")
    assert [name for name, _ in docs.plan().unseen] == ["reader *.log"]
    docs.add_reader("*.log", lambda path: f"{bool(words)} {path.name}", version="1")
    assert docs.plan().unseen == ()
    docs.sync()
    docs.add_reader("*.log", lambda path: f"{bool(words)} {path.name}", version="2")
    assert docs.plan().files.updated == ("a.log",)


def test_views_and_read_only(folder, tmp_path):
    """A restricted view shows what the reader made of files; a reader of a store that is only read
    changes nothing.
    """
    path, store = folder({"a.log": "x", "b.txt": "tea"}), tmp_path / "store.db"
    with Document(path, store_conf=conf_of(store)) as docs:
        docs.add_reader("*.log", says("own"))
        view = docs.restricted({"file_name": "a.log"})
        assert texts(view) == {"a.log": "own a.log"}
        view.add_reader("*.txt", says("of the view"))
        docs.sync()
        assert texts(docs) == {"a.log": "own a.log", "b.txt": "of the view b.txt"}
    with Document(path, store_conf=conf_of(store), read_only=True) as docs:
        docs.add_reader("*.log", says("other"))
        assert texts(docs)["a.log"] == "own a.log"


def test_migrated_documents_are_not_read_again(folder, tmp_path, counted):
    """A copy in another store knows which reader made its documents."""
    path = folder({"a.log": "x", "b.txt": "tea"})
    first = counted("one")
    with Document(path, store_conf=conf_of(tmp_path / "one.db")) as docs:
        docs.add_reader("*.log", first)
        before = texts(docs)
    migrate(conf_of(tmp_path / "one.db"), conf_of(tmp_path / "two.db"))
    again = counted("one")
    with Document(path, store_conf=conf_of(tmp_path / "two.db")) as docs:
        docs.add_reader("*.log", again)
        assert docs.sync().unchanged == ("a.log", "b.txt")
        assert texts(docs) == before
    assert (first.read, again.read) == (["a.log"], [])


READERS = '''
import os


def read(path):
    """Tells which process reads."""
    return f"{path.read_text(encoding='utf-8')} in {os.getpid()}"


class Teller:
    """Tells a word, and which process reads."""

    def __init__(self, word):
        self.word = word

    def load(self, path):
        return f"{self.word} in {os.getpid()}"
'''


@pytest.fixture
def readers(tmp_path, monkeypatch):
    """A module of readers, which other processes can import."""
    position = tmp_path / "modules"
    position.mkdir()
    (position / "some_readers.py").write_text(READERS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(position))
    import some_readers

    yield some_readers
    sys.modules.pop("some_readers")


@pytest.mark.slow
def test_readers_in_other_processes(folder, readers):
    """Functions and instances that can be imported read there, files within files included; the
    others read here.
    """
    path = folder({"a.log": "tea", "b.motd": "x", "c.here": "x"})
    for name in ("there.zip", "mixed.zip"):
        with zipfile.ZipFile(path / name, "w") as archive:
            archive.writestr("inner.log", "green")
            if name == "mixed.zip":
                archive.writestr("inner.here", "x")
    with Document(path, limits=LoadLimits(processes=1)) as docs:
        docs.add_reader("*.log", readers.read)
        docs.add_reader("*.motd", readers.Teller("hello"))
        docs.add_reader("*.here", lambda _path: f"here in {os.getpid()}")
        found = texts(docs)
    other = {found[name].rpartition(" ")[2] for name in ("a.log", "b.motd", "there.zip")}
    assert len(other) == 1
    assert other != {str(os.getpid())}
    assert found["a.log"] == f"tea in {other.pop()}"
    assert found["c.here"] == f"here in {os.getpid()}"
    assert found["mixed.zip"] == f"green in {os.getpid()}\n\nhere in {os.getpid()}"
