"""The registry that serves everything that has a name."""

from __future__ import annotations

import functools
import importlib.metadata
import io
import sys
import threading
import types

import pytest

from lazyrag.errors import (
    AlreadyRegisteredError,
    ConfigError,
    MissingDependencyError,
    NotRegisteredError,
)
from lazyrag.loaders import loaders
from lazyrag.registry import Registry
from lazyrag.retrieval import rerankers, similarities
from lazyrag.text.analyzers import analysers
from lazyrag.text.tokens import token_counters
from lazyrag.transforms import transforms


@pytest.fixture
def colours() -> Registry:
    registry: Registry = Registry("colour")
    registry.register("red", 0xFF0000)
    registry.register("green", 0x00FF00)
    return registry


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function that writes an importable module; it is forgotten after the test."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, source: str) -> str:
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    before = set(sys.modules)
    yield write
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


def test_register_returns_the_object_itself(colours):
    """What is registered stays usable as it was, by call and by decorator."""

    @colours.register("mix")
    def mix() -> str:
        return "purple"

    blue = object()
    assert colours.register("blue", blue) is blue
    assert mix() == "purple"
    assert colours["mix"] is mix


def test_a_taken_name_is_refused(colours):
    """Another object under a taken name is an error that says how to go on; the first one stays."""
    with pytest.raises(AlreadyRegisteredError, match=r"colour named 'red'.*replace=True"):
        colours.register("red", 1)
    assert colours["red"] == 0xFF0000


def test_a_taken_name_can_be_taken_over(colours):
    """replace=True puts the new object in the old one's place."""
    colours.register("red", 1, replace=True)
    assert colours["red"] == 1
    assert len(colours) == 2


def test_the_same_object_again_is_no_conflict(colours):
    """A module that is imported twice does not fail."""
    colours.register("red", 0xFF0000)
    assert colours["red"] == 0xFF0000


def test_a_refused_decorator_leaves_the_first_object(colours):
    """The decorator form checks the name like the call."""
    with pytest.raises(AlreadyRegisteredError):

        @colours.register("green")
        def green() -> None: ...

    assert colours["green"] == 0x00FF00


@pytest.mark.parametrize("name", ["", None, 5, ("a",)])
def test_a_name_is_a_non_empty_text(colours, name):
    """Anything else is refused at once, and nothing is entered."""
    with pytest.raises(ConfigError, match="colour needs a non-empty name"):
        colours.register(name, 1)
    assert list(colours) == ["green", "red"]
    with pytest.raises(ConfigError, match="An analyser needs"):
        Registry("analyser").register(name, 1)


CELL = """
@colours.register("mix")
def mix():
    return {result}

@colours.register("paint")
class Paint:
    shade = {result}

def score(query, node):
    return {result}

colours.register("score", Wrapper(score))
"""


class Wrapper:
    """What a registry stores for a function."""

    def __init__(self, func):
        self.func = func


def run_cell(colours, source: str, *, module: str = "__main__") -> None:
    """Run a notebook's cell, or a script."""
    exec(source, {"__name__": module, "colours": colours, "Wrapper": Wrapper})  # noqa: S102


def test_a_definition_that_is_run_again_takes_its_own_place(colours):
    """A function, a class and a function that is wrapped are the new ones after their cell was
    changed and run.
    """
    run_cell(colours, CELL.format(result=1))
    run_cell(colours, CELL.format(result=2))
    assert colours["mix"]() == 2
    assert colours["paint"].shade == 2
    assert colours["score"].func("", None) == 2


@pytest.mark.parametrize(("name", "told"), [("mix", "mix"), ("paint", "Paint"), ("score", "score")])
def test_a_definition_of_the_same_name_elsewhere_is_another(colours, name, told):
    """A function or class of another module is refused, and the error says where the first one
    stands.
    """
    run_cell(colours, CELL.format(result=1), module="first_plugin")
    first = colours[name]
    others: Registry = Registry("other colour")
    run_cell(others, CELL.format(result=1), module="second_plugin")
    with pytest.raises(AlreadyRegisteredError, match=rf"\(first_plugin:{told}\)"):
        colours.register(name, others[name])
    assert colours[name] is first


def test_definitions_inside_of_a_function_are_not_told_apart_by_name(colours):
    """Each call of a factory makes another function; the second one under a taken name is
    refused.
    """

    def make(result):
        def made() -> int:
            return result

        return made

    colours.register("made", make(1))
    with pytest.raises(AlreadyRegisteredError, match=r"make\.<locals>\.made"):
        colours.register("made", make(2))
    assert colours["made"]() == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (functools.partial(int, base=2), functools.partial(int, base=8)),
        (Wrapper(functools.partial(int, base=2)), Wrapper(functools.partial(int, base=8))),
        ([1].count, [2].count),
        (io.StringIO("a").read, io.StringIO("b").read),
        (Wrapper(lambda: 1), Wrapper(lambda: 2)),
        (Wrapper(1), Wrapper(2)),
    ],
    ids=["partial", "wrapped partial", "method of a list", "method", "lambda", "no function"],
)
def test_objects_without_a_definition_of_their_own_are_others(colours, first, second):
    """Partial functions, methods of an instance, lambdas and values take nothing over unless they
    are equal.
    """
    colours.register("own", first)
    with pytest.raises(AlreadyRegisteredError) as caught:
        colours.register("own", second)
    assert " at 0x" not in str(caught.value)
    assert colours["own"] is first


def test_the_errors_message_shows_no_internals(colours):
    """A taken name is told by module and qualified name, by class, or as it was declared."""
    colours.declare("azure", "package_that_is_not_there:AZURE")
    colours.register("mix", run_cell)
    said = {}
    for name in ("azure", "mix", "red"):
        with pytest.raises(AlreadyRegisteredError) as caught:
            colours.register(name, Wrapper(None))
        said[name] = str(caught.value)
    rest = "Choose another name, or pass replace=True to take this one over."
    assert said == {
        "azure": f"A colour named 'azure' is registered already (package_that_is_not_there:AZURE). {rest}",
        "mix": f"A colour named 'mix' is registered already ({__name__}:run_cell). {rest}",
        "red": f"A colour named 'red' is registered already (an object of builtins:int). {rest}",
    }


def test_an_unknown_name_lists_the_known_ones_and_the_nearest(colours):
    """The error is a KeyError and a sentence."""
    with pytest.raises(NotRegisteredError) as caught:
        colours["grene"]
    assert (
        str(caught.value)
        == "No colour is registered as 'grene'. Known: green, red. Did you mean 'green'?"
    )
    assert isinstance(caught.value, KeyError)


def test_names_are_listed_in_order(colours):
    """Iteration, length, membership and repr agree, and none of them needs the objects."""
    colours.declare("azure", "package_that_is_not_there:x")
    assert list(colours) == ["azure", "green", "red"]
    assert len(colours) == 3
    assert "azure" in colours
    assert "pink" not in colours
    assert repr(colours) == "Registry('colour': azure, green, red)"


def test_a_declared_target_is_imported_on_first_use_and_once(colours, module):
    """Listing it imports nothing; asking for it twice runs its module once."""
    name = module(
        "lazy_blue",
        "import builtins\nbuiltins._blue_runs = getattr(builtins, '_blue_runs', 0) + 1\nBLUE = []",
    )
    colours.declare("blue", f"{name}:BLUE")
    assert "blue" in list(colours)
    assert name not in sys.modules
    first = colours["blue"]
    assert first == []
    assert colours["blue"] is first
    assert sys.modules[name].builtins._blue_runs == 1
    del sys.modules[name].builtins._blue_runs


def test_a_missing_package_says_how_to_install_it(colours, module):
    """The error names the entry, the package and the extra, is an ImportError, and keeps its
    cause.
    """
    name = module("needs_more", "import package_that_is_not_there\nx = 1")
    colours.declare("ultraviolet", f"{name}:x", extra="milvus")
    with pytest.raises(MissingDependencyError) as caught:
        colours["ultraviolet"]
    message = str(caught.value)
    assert "colour 'ultraviolet'" in message
    assert "'package_that_is_not_there'" in message
    assert 'pip install -e ".[milvus]"' in message
    assert caught.value.name == "package_that_is_not_there"
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_target_is_found_once_its_package_is_there(colours, module):
    """A failed import is not remembered: after the installation the same registry finds the
    object.
    """
    name = module("needs_later", "import comes_later\nx = comes_later.y")
    colours.declare("later", f"{name}:x", extra="milvus")
    with pytest.raises(MissingDependencyError):
        colours["later"]
    module("comes_later", "y = 7")
    sys.path_importer_cache.clear()
    assert colours["later"] == 7


def test_a_bug_in_our_own_modules_is_not_called_a_missing_package(colours):
    """A module of ours that is not there is our bug, not something to install."""
    colours.declare("typo", "lazyrag.no_such_module:x", extra="milvus")
    with pytest.raises(ModuleNotFoundError) as caught:
        colours["typo"]
    assert not isinstance(caught.value, MissingDependencyError)


def test_a_missing_package_without_an_extra_is_shown_as_it_is(colours, module):
    """No install command is made up where there is none."""
    name = module("needs_unknown", "import package_that_is_not_there\nx = 1")
    colours.declare("odd", f"{name}:x")
    with pytest.raises(ModuleNotFoundError) as caught:
        colours["odd"]
    assert not isinstance(caught.value, MissingDependencyError)


def test_registering_what_a_lazy_target_names_is_no_conflict(colours, module):
    """The same object under its own name is fine, whether the target has been imported before or
    not.
    """
    name = module("lazy_white", "WHITE = object()")
    colours.declare("white", f"{name}:WHITE")
    white = __import__(name).WHITE
    assert colours.register("white", white) is white


def test_a_module_may_register_what_is_declared_of_it(colours, module, monkeypatch):
    """Asking for a declared name runs a module whose decorator enters that name: what it entered is
    found.
    """
    monkeypatch.setitem(sys.modules, "switchboard", types.SimpleNamespace(colours=colours))
    name = module(
        "teal_plugin", "from switchboard import colours\n@colours.register('teal')\ndef teal(): ..."
    )
    colours.declare("teal", f"{name}:teal")
    assert colours["teal"] is sys.modules[name].teal


@pytest.mark.parametrize("ask_first", [False, True], ids=["not loaded", "loaded"])
def test_the_same_target_may_be_declared_again(colours, module, ask_first):
    """A module that is run again declares what it declared, whether somebody asked for it meanwhile
    or not.
    """
    name = module("lazy_pink", "PINK = object()")
    colours.declare("pink", f"{name}:PINK")
    pink = colours["pink"] if ask_first else None
    colours.declare("pink", f"{name}:PINK")
    assert colours["pink"] is (pink or sys.modules[name].PINK)


def test_what_was_declared_and_registered_may_be_declared_again(colours, module):
    """A name that its own target was registered under counts as declared."""
    name = module("lazy_pink", "PINK = object()")
    colours.declare("pink", f"{name}:PINK")
    pink = colours.register("pink", importlib.import_module(name).PINK)
    colours.declare("pink", f"{name}:PINK")
    assert colours["pink"] is pink


@pytest.mark.parametrize("ask_first", [False, True], ids=["not loaded", "loaded"])
def test_another_target_under_a_taken_name_is_refused(colours, module, ask_first):
    """The first target stays, and the error names it."""
    name = module("lazy_pink", "PINK = 'pink'\nROSE = 'rose'")
    colours.declare("pink", f"{name}:PINK")
    assert not ask_first or colours["pink"] == "pink"
    with pytest.raises(
        AlreadyRegisteredError, match=r"colour named 'pink'.*\(lazy_pink:PINK\).*replace=True"
    ):
        colours.declare("pink", f"{name}:ROSE")
    assert colours["pink"] == "pink"
    colours.declare("pink", f"{name}:ROSE", replace=True)
    assert colours["pink"] == "rose"


def test_a_target_under_an_objects_name_is_refused(colours, module):
    """What is registered is not covered by a declaration, unless replace=True says so."""
    name = module("lazy_pink", "PINK = 'pink'")
    with pytest.raises(AlreadyRegisteredError, match=r"colour named 'red'.*replace=True"):
        colours.declare("red", f"{name}:PINK")
    assert colours["red"] == 0xFF0000
    colours.declare("red", f"{name}:PINK", replace=True)
    assert colours["red"] == "pink"


@pytest.mark.parametrize(
    ("name", "target"), [("", "m:x"), (None, "m:x"), ("a", "m"), ("a", "m:"), ("a", ":x")]
)
def test_a_declaration_needs_a_name_and_a_target(colours, name, target):
    """A target names an attribute of a module; the error comes at once, not on first use."""
    with pytest.raises(ConfigError, match=r"non-empty name|'package\.module:attribute'"):
        colours.declare(name, target)
    assert list(colours) == ["green", "red"]


@pytest.fixture
def plugin(module, monkeypatch):
    """An installed package that offers the colour 'mauve' and another 'red' by entry points."""
    name = module("colour_plugin", "MAUVE = 'mauve of the plugin'\nRED = 'red of the plugin'")
    offered = [
        importlib.metadata.EntryPoint("mauve", f"{name}:MAUVE", "tests.colours"),
        importlib.metadata.EntryPoint("red", f"{name}:RED", "tests.colours"),
        importlib.metadata.EntryPoint("loud", f"{name}:MAUVE", "tests.sounds"),
    ]

    def entry_points(*, group: str) -> list[importlib.metadata.EntryPoint]:
        return [point for point in offered if point.group == group]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    registry: Registry = Registry("colour", entry_point_group="tests.colours")
    registry.register("red", "our red")
    return registry, name


def test_entry_points_are_listed_by_name_and_loaded_on_first_use(plugin):
    """A third party's entry is known without being imported, and is the real object when asked
    for.
    """
    registry, name = plugin
    assert list(registry) == ["mauve", "red"]
    assert "mauve" in registry
    assert name not in sys.modules
    assert registry["mauve"] == "mauve of the plugin"
    assert name in sys.modules


def test_our_name_wins_over_an_entry_point(plugin):
    """A plugin cannot take a built-in name silently."""
    registry, _ = plugin
    assert registry["red"] == "our red"
    assert len(registry) == 2


def test_an_unknown_name_lists_entry_points_too(plugin):
    """What a plugin offers is among the known names."""
    registry, _ = plugin
    with pytest.raises(NotRegisteredError, match=r"Known: mauve, red\. Did you mean 'mauve'\?"):
        registry["mauv"]


def test_isolated_undoes_what_was_registered_inside(colours):
    """New, replaced and declared names are as before, also after an exception."""

    def change() -> None:
        with colours.isolated():
            colours.register("blue", 1)
            colours.register("red", 2, replace=True)
            colours.declare("grey", "nowhere:x")
            assert list(colours) == ["blue", "green", "grey", "red"]
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        change()
    assert list(colours) == ["green", "red"]
    assert colours["red"] == 0xFF0000


def test_a_lazy_target_is_one_object_for_all_threads(colours, module):
    """Threads that ask at the same time get the same object."""
    name = module("lazy_shared", "class Shared: ...\nSHARED = Shared()")
    colours.declare("shared", f"{name}:SHARED")
    barrier = threading.Barrier(8)
    found = []

    def ask() -> None:
        barrier.wait()
        found.append(colours["shared"])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({id(one) for one in found}) == 1


def ask(registry: Registry) -> None:
    """Ask for the entry that must be imported."""
    assert registry["lazy"] == "loaded"


def register_over(registry: Registry) -> None:
    """Register something else under its name, which is refused."""
    with pytest.raises(AlreadyRegisteredError):
        registry.register("lazy", object())


@pytest.mark.parametrize(
    ("offer", "use"), [("declared", ask), ("declared", register_over), ("entry point", ask)]
)
def test_a_module_may_register_while_another_thread_waits_for_it(module, monkeypatch, offer, use):
    """No lock is held during imports: two threads, one importing a plug-in that registers something
    in its body, the other one asking for what that plug-in offers, both come to an end.
    """
    plugin_runs, other_waits = threading.Event(), threading.Event()
    registry: Registry = Registry("colour", entry_point_group="tests.colours")
    switchboard = types.SimpleNamespace(
        registry=registry, plugin_runs=plugin_runs, other_waits=other_waits
    )
    monkeypatch.setitem(sys.modules, "switchboard", switchboard)
    plugin = module(
        "slow_plugin",
        "import switchboard\nswitchboard.plugin_runs.set()\nassert switchboard.other_waits.wait(60)\n"
        "switchboard.registry.register('more', 1)\nVALUE = 'loaded'",
    )
    door = module(
        "door", f"import switchboard\nswitchboard.other_waits.set()\nfrom {plugin} import VALUE"
    )
    point = importlib.metadata.EntryPoint("lazy", f"{door}:VALUE", "tests.colours")
    offered = [point] if offer == "entry point" else []
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: offered)
    if offer == "declared":
        registry.declare("lazy", f"{door}:VALUE")
    done = []

    def second() -> None:
        assert plugin_runs.wait(60)
        use(registry)
        done.append("second")

    def first() -> None:
        importlib.import_module(plugin)
        done.append("first")

    threads = [threading.Thread(target=run, daemon=True) for run in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(done) == ["first", "second"]
    assert list(registry) == ["lazy", "more"]


def test_what_was_registered_during_an_import_stays(module, monkeypatch):
    """An object that takes a declared name over while its target is being imported is not covered
    by the target.
    """
    registry: Registry = Registry("colour")
    monkeypatch.setitem(sys.modules, "switchboard", types.SimpleNamespace(registry=registry))
    name = module(
        "late_blue",
        "import switchboard\nswitchboard.registry.register('blue', 1, replace=True)\nBLUE = 2",
    )
    registry.declare("blue", f"{name}:BLUE")
    assert registry["blue"] == 1
    assert registry["blue"] == 1


@pytest.mark.parametrize(
    ("registry", "names"),
    [
        (similarities, ["bm25", "bm25_chinese", "cosine"]),
        (rerankers, ["KeywordFilter", "ModuleReranker"]),
        (transforms, ["SentenceSplitter"]),
        (
            loaders,
            [
                ".csv",
                ".docx",
                ".htm",
                ".html",
                ".json",
                ".jsonl",
                ".markdown",
                ".md",
                ".ndjson",
                ".pdf",
                ".text",
                ".tsv",
                ".txt",
            ],
        ),
        (analysers, ["en", "zh"]),
        (token_counters, ["utf8"]),
    ],
    ids=lambda value: value.kind if isinstance(value, Registry) else "",
)
def test_what_is_built_in_can_be_loaded(registry, names):
    """Every built-in name of the package's own registries leads to an object."""
    assert set(names) <= set(registry)
    assert all(registry[name] is not None for name in names)


@pytest.mark.parametrize("name", [["red"], None, 5, {"red"}], ids=repr)
def test_what_is_no_text_is_no_name(name):
    """A list or None asked for by mistake is answered like any unknown name, with the known
    ones.
    """
    colours: Registry[int] = Registry("colour")
    colours.register("red", 1)
    with pytest.raises(NotRegisteredError, match="Known: red"):
        colours[name]
