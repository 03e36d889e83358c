"""Fingerprints of transforms: what counts, what does not, what is listed as unseen."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import linecache
import logging
import os
import re
import subprocess
import sys
import textwrap
import types
import xml.dom.minidom
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lazyrag import NodeTransform, RetrievalResult, SentenceSplitter
from lazyrag.groups.fingerprint import Fingerprint, fingerprint

_numbers = itertools.count()


@pytest.fixture
def load(tmp_path, monkeypatch):
    """A function that writes a module, imports it under a name of its own and returns it."""
    # Python takes a compiled module for up to date while size and second of its source are the
    # same.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write_and_import(source: str, name: str = ""):
        name = name or f"written_{next(_numbers)}"
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return write_and_import


def _in_no_file(source: str, name: str = "t"):
    """A function whose source cannot be read, as in a shell."""
    namespace: dict = {"__name__": "shell"}
    exec(source, namespace)  # noqa: S102  our own text
    return namespace[name]


SAME = {
    "comments": (
        "def t(d):\n    return d.split('a')",
        "# about t\ndef t(d):  # splits\n    # at a\n    return d.split('a')  # done",
    ),
    "a docstring": (
        "def t(d):\n    return d.split('a')",
        'def t(d):\n    """Splits."""\n    return d.split("a")',
    ),
    "another docstring": (
        'def t(d):\n    """Splits."""\n    return d.split("a")',
        'def t(d):\n    """Cuts\n    in pieces."""\n    return d.split("a")',
    ),
    "line breaks and brackets": (
        "def t(d):\n    return d.split('a', 3)",
        "def t(\n    d,\n):\n\n    return (\n        d.split(\n            'a',\n            3,\n        )\n    )",
    ),
    "where it stands": ("def t(d): return [d]", "import os\n\n\nX = 1\n\n\ndef t(d): return [d]"),
    "quotes and digits": (
        "def t(d): return d.split('a', 1000)",
        'def t(d): return d.split("a", 1_000)',
    ),
    "a lambda's place": (
        "t = lambda d: d.split('a')",
        "\n\nt = (\n    lambda d:\n        d.split('a')\n)",
    ),
    "other functions": (
        "def t(d): return [d]",
        "def u(d): return d\ndef t(d): return [d]\ndef v(d): return d",
    ),
    "how a global came about": (
        "SEP = 'ab'\ndef t(d): return d.split(SEP)",
        "SEP = 'a' + 'b'\ndef t(d): return d.split(SEP)",
    ),
    "a docstring in a helper": (
        "def h(d): return d\ndef t(d): return h(d)",
        "def h(d):\n    'helps'\n    return d\ndef t(d): return h(d)",
    ),
    "a docstring inside": (
        "def t(d):\n    def inner(x):\n        return x\n    return inner(d)",
        "def t(d):\n    def inner(x):\n        'inside'\n        # more\n        return x\n    return inner(d)",
    ),
    "a docstring of a class": (
        "class C:\n    def __call__(self, d):\n        return d\nt = C()",
        "class C:\n    'A class.'\n\n    def __call__(self, d):\n        'Calls.'\n        return d\nt = C()",
    ),
    "an unread global": ("A = 1\ndef t(d): return d", "A = 2\ndef t(d): return d"),
}

# What stands for $ in the source.
OTHER = {
    "a constant": ("'a'", "'b'", "def t(d): return d.split($)"),
    "a constant's type": ("1", "True", "def t(d): return [d, $]"),
    "a float for an int": ("1", "1.0", "def t(d): return [d, $]"),
    "a method": ("split", "rsplit", "def t(d): return d.$('a')"),
    "an operator": ("", "=", "def t(d): return len(d) <$ 3"),
    "a statement": (
        "pass",
        "d = d.strip()",
        """
        def t(d):
            $
            return d
        """,
    ),
    "a string that is no docstring": (
        "'a'",
        "'b'",
        """
        def t(d):
            x = $
            return x
        """,
    ),
    "a default": ("'a'", "'b'", "def t(d, sep=$): return d.split(sep)"),
    "a computed default": (
        "'a'",
        "'b'",
        """
        S = $
        def t(d, s=S + '!'): return d
        """,
    ),
    "a list as default": (
        "'a'",
        "'b'",
        """
        X = [$]
        def t(d, s=X): return d
        """,
    ),
    "a keyword's default": (
        "'a'",
        "'b'",
        """
        S = $
        def t(d, *, s=S): return d
        """,
    ),
    "a global": (
        "'a'",
        "'b'",
        """
        SEP = $
        def t(d): return d.split(SEP)
        """,
    ),
    "a global tuple": (
        "'a', 'b'",
        "'b', 'a'",
        """
        SEP = ($)
        def t(d): return SEP
        """,
    ),
    "a global set": (
        "'ab'",
        "'ac'",
        """
        S = frozenset($)
        def t(d): return d in S
        """,
    ),
    "a global read inside": (
        "'a'",
        "'b'",
        """
        S = $
        def t(d): return [x.strip(S) for x in d]
        """,
    ),
    "a closure": (
        "'a'",
        "'b'",
        """
        def make(s):
            return lambda d: d.split(s)
        t = make($)
        """,
    ),
    "a helper": (
        "d",
        "[d]",
        """
        def h(d): return $
        def t(d): return h(d)
        """,
    ),
    "a helper's helper": (
        "d",
        "[d]",
        """
        def g(d): return $
        def h(d): return g(d)
        def t(d): return h(d)
        """,
    ),
    "a helper's global": (
        "'a'",
        "'b'",
        """
        S = $
        def h(d): return d.split(S)
        def t(d): return h(d)
        """,
    ),
    "a helper in a closure": (
        "'a'",
        "'b'",
        """
        def make(f):
            def t(d): return f(d)
            return t
        t = make(lambda d: d + $)
        """,
    ),
    "a decorated function": (
        "'a'",
        "'b'",
        """
        import functools
        def deco(f):
            @functools.wraps(f)
            def w(d): return f(d)
            return w
        @deco
        def t(d): return $
        """,
    ),
    "its decorator": (
        "f(d)",
        "[f(d)]",
        """
        def deco(f):
            def w(d): return $
            return w
        @deco
        def t(d): return 'a'
        """,
    ),
    "a cached function": (
        "'a'",
        "'b'",
        """
        import functools
        @functools.lru_cache
        def t(d): return $
        """,
    ),
    "a method of a class": (
        "'a'",
        "'b'",
        """
        class C:
            def __call__(self, d): return $
        t = C()
        """,
    ),
    "a method that is called": (
        "'a'",
        "'b'",
        """
        class C:
            def h(self): return $
            def __call__(self, d): return self.h()
        t = C()
        """,
    ),
    "a static method": (
        "'a'",
        "'b'",
        """
        class C:
            @staticmethod
            def h(): return $
            def __call__(self, d): return self.h()
        t = C()
        """,
    ),
    "a property": (
        "'a'",
        "'b'",
        """
        class C:
            @property
            def h(self): return $
            def __call__(self, d): return self.h
        t = C()
        """,
    ),
    "a cached property": (
        "'a'",
        "'b'",
        """
        import functools
        class C:
            @functools.cached_property
            def h(self): return $
            def __call__(self, d): return self.h
        t = C()
        """,
    ),
    "a class attribute": (
        "'a'",
        "'b'",
        """
        class C:
            sep = $
            def __call__(self, d): return d.split(self.sep)
        t = C()
        """,
    ),
    "a list as class attribute": (
        "'a'",
        "'b'",
        """
        class C:
            seps = [$]
            def __call__(self, d): return self.seps
        t = C()
        """,
    ),
    "a pattern as class attribute": (
        "'a'",
        "'b'",
        """
        import re
        class C:
            p = re.compile($)
            def __call__(self, d): return self.p.split(d)
        t = C()
        """,
    ),
    "a base class": (
        "'a'",
        "'b'",
        """
        class B:
            def h(self): return $
        class C(B):
            def __call__(self, d): return self.h()
        t = C()
        """,
    ),
    "an attribute of the instance": (
        "'a'",
        "'b'",
        """
        class C:
            def __init__(self, s): self.s = s
            def __call__(self, d): return self.s
        t = C($)
        """,
    ),
    "a list held by the instance": (
        "1",
        "2",
        """
        class C:
            def __init__(self, s): self.s = s
            def __call__(self, d): return self.s
        t = C(['a', {'b': $}])
        """,
    ),
    "an object held by the instance": (
        "1",
        "2",
        """
        class P:
            def __init__(self, n): self.n = n
        class C:
            def __init__(self): self.p = P($)
            def __call__(self, d): return d
        t = C()
        """,
    ),
    "a method as the transform": (
        "'a'",
        "'b'",
        """
        class C:
            def __init__(self, s): self.s = s
            def cut(self, d): return d.split(self.s)
        t = C($).cut
        """,
    ),
    "another method as the transform": (
        "one",
        "two",
        """
        class C:
            def one(self, d): return d
            def two(self, d): return [d]
        t = C().$
        """,
    ),
    "an argument of a partial": (
        "'a'",
        "'b'",
        """
        import functools
        def cut(d, s): return d.split(s)
        t = functools.partial(cut, s=$)
        """,
    ),
    "the function of a partial": (
        "split",
        "rsplit",
        """
        import functools
        def cut(d, s): return d.$(s)
        t = functools.partial(cut, s='a')
        """,
    ),
    "a pattern whose method is the transform": (
        "'a'",
        "'b'",
        """
        import re
        t = re.compile($).split
        """,
    ),
    "a text whose method is the transform": ("',", "';", "t = $ '.join"),
    "a function's attribute": (
        "1",
        "2",
        """
        def t(d): return d * t.times
        t.times = $
        """,
    ),
    "a function that calls itself": ("'a'", "'b'", "def t(d): return t(d[1:]) + $ if d else ''"),
    "an inner function that calls itself": (
        "'a'",
        "'b'",
        """
        def make(mark):
            def walk(d): return walk(d[1:]) + mark if d else mark
            return walk
        t = make($)
        """,
    ),
    "a cached call of an instance": (
        "split",
        "rsplit",
        """
        import functools
        class Cut:
            @functools.lru_cache
            def __call__(self, d): return d.$('a')
        t = Cut()
        """,
    ),
    "an argument of a partial method": (
        "'a'",
        "'b'",
        """
        import functools
        class Cut:
            def cut(self, sep, d): return d.split(sep)
            at = functools.partialmethod(cut, $)
            def __call__(self, d): return self.at(d)
        t = Cut()
        """,
    ),
    "the setter of a property": (
        "int",
        "str",
        """
        class Cut:
            @property
            def size(self): return self._size
            @size.setter
            def size(self, value): self._size = $(value)
            def __call__(self, d):
                self.size = '7'
                return [d, self.size]
        t = Cut()
        """,
    ),
    "a metaclass": (
        "'a'",
        "'b'",
        """
        class Meta(type):
            @property
            def sep(cls): return $
        class Cut(metaclass=Meta):
            def __call__(self, d): return d.split(type(self).sep)
        t = Cut()
        """,
    ),
    "the default of a dataclass with slots": (
        "'a'",
        "'b'",
        """
        import dataclasses
        @dataclasses.dataclass(slots=True)
        class Cut:
            sep: str = $
            def __call__(self, d): return d.split(self.sep)
        t = Cut()
        """,
    ),
    "the default of a dataclass that is made in a call": (
        "'a'",
        "'b'",
        """
        import dataclasses
        @dataclasses.dataclass(slots=True)
        class Cut:
            sep: str = $
        def t(d): return d.split(Cut().sep)
        """,
    ),
    "a branch of a long chain": (
        "'a'",
        "'b'",
        "def t(d):\n    if d == 'x': return 0\n"
        + "".join(f"    elif d == 'x{n}': return {n}\n" for n in range(600))
        + "    else: return $\n",
    ),
}


@pytest.mark.parametrize("kind", SAME)
def test_what_does_not_decide_about_the_result_does_not_count(load, kind):
    """Comments, docstrings, layout and whatever the transform does not use leave the fingerprint as
    it is.
    """
    one, other = (fingerprint(load(source).t) for source in SAME[kind])
    assert one.value == other.value
    assert not one.tells_apart(other)


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", OTHER)
def test_what_decides_about_the_result_counts(load, kind):
    """Code, parameters, and the plain values and functions that it reaches tell two transforms
    apart.
    """
    *texts, source = OTHER[kind]
    one, other = (fingerprint(load(source.replace("$", text)).t) for text in texts)
    assert one.tells_apart(other)
    assert other.tells_apart(one)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", OTHER)
def test_the_same_definition_again_is_the_same(load, kind):
    """Each of those sources, written twice into two modules, has one value."""
    text, _, source = OTHER[kind]
    one, again = (fingerprint(load(source.replace("$", text)).t) for _ in range(2))
    assert one.value == again.value


def test_a_fingerprint_is_32_digits_and_takes_further_parts():
    """Whatever else decides can be given as text, and where one part ends matters."""

    def transform(d):
        return d

    values = [
        fingerprint(transform).value,
        fingerprint(transform, "2").value,
        fingerprint(transform, "2", "").value,
        fingerprint(transform, "", "2").value,
        fingerprint(transform, "a", "b").value,
        fingerprint(transform, "ab").value,
    ]
    assert len(set(values)) == 6
    assert all(re.fullmatch("[0-9a-f]{32}", value) for value in values)


def test_lambdas_on_one_line_are_told_apart(load):
    """Each has its own code, wherever on the line it stands; equal ones are equal."""
    module = load(
        "a, b, c = (lambda d: d.split('a')), (lambda d: d.split('b')), (lambda d: d.split('a'))"
    )
    assert fingerprint(module.a).tells_apart(fingerprint(module.b))
    assert fingerprint(module.a).value == fingerprint(module.c).value
    nested = load("t = (lambda d: (lambda x: x + 'a')(d))\nu = (lambda d: (lambda x: x + 'b')(d))")
    assert fingerprint(nested.t).tells_apart(fingerprint(nested.u))


def test_a_lambda_in_a_call_is_read(load):
    """The form of spec 001: groups defined inside a call, several arguments on several lines."""
    source = """
        defined = {}
        def define(name, transform): defined[name] = transform
        define(name='block',
               transform=lambda d: d.split('$'))
    """
    one, same, other = (load(source.replace("$", text)).defined["block"] for text in "aab")
    assert fingerprint(one).value == fingerprint(same).value
    assert fingerprint(one).tells_apart(fingerprint(other))


def test_an_object_without_visible_state_is_unseen_and_told_apart_by_identity():
    """A client in a closure is listed by its name; the same client is the same transform, another
    one is not.
    """

    def make(client):
        return lambda d: (client, d)

    first, second = object(), object()
    one, again, other = (
        fingerprint(make(first)),
        fingerprint(make(first)),
        fingerprint(make(second)),
    )
    assert one.unseen == (("client", first),)
    assert one.value == again.value == other.value
    assert not one.tells_apart(again)
    assert one.tells_apart(other)


@pytest.mark.parametrize(
    "value",
    [["a"], {"a": 1}, {"a"}, bytearray(b"a"), np.zeros(2), iter("a"), logging.getLogger("tests")],
    ids=lambda one: type(one).__name__,
)
def test_a_mutable_object_in_a_closure_is_unseen(value):
    """It may change behind our back, so its present value is no fingerprint."""

    def make(held):
        return lambda d: (held, d)

    assert [name for name, _ in fingerprint(make(value)).unseen] == ["held"]


def test_a_mutable_global_is_unseen(load):
    """By the name it is read under."""
    module = load("SEEN = []\ndef h(d): SEEN.append(d)\ndef t(d): return h(d)")
    before = fingerprint(module.t)
    assert before.unseen == (("SEEN", module.SEEN),)
    module.t("a")
    assert not fingerprint(module.t).tells_apart(before)


def test_a_logger_does_not_change_a_fingerprint_by_logging(load):
    """The usual logger of a module may log, and be told to log less, between two definitions of the
    same group.
    """
    module = load(
        "import logging\nlog = logging.getLogger('tests.fingerprint')\ndef t(d):\n    log.debug('x')\n    return d"
    )
    before = fingerprint(module.t)
    module.t("a")
    module.log.setLevel(logging.ERROR)
    module.log.isEnabledFor(logging.INFO)
    try:
        assert not fingerprint(module.t).tells_apart(before)
    finally:
        module.log.setLevel(logging.NOTSET)


def test_what_is_reached_through_a_module_of_ones_own_is_seen_or_listed(load):
    """A changed helper in another module of the user's does not go unnoticed."""
    marks = []
    for helper in ("def clean(d): return d.strip()", "def clean(d): return d.lower()"):
        load(helper, "own_helper")
        marks.append(fingerprint(load("import own_helper\ndef t(d): return own_helper.clean(d)").t))
    assert marks[0].tells_apart(marks[1])


def test_plain_values_are_seen():
    """Nothing is listed for a function whose closure holds plain values only."""

    def make(*values):
        return lambda d: (values, d)

    assert (
        fingerprint(make(1, "a", None, 2.5, b"x", True, (1, ("a",)), frozenset("a"))).unseen == ()
    )


def test_identity_speaks_for_an_object():
    """A model that names itself is seen: the same name is the same transform, another name
    another.
    """

    class Model:
        def __init__(self, identity):
            self.identity = identity
            self.client = object()

        def __call__(self, d):
            return d

    def make(model):
        return lambda d: [model(d)]

    assert fingerprint(Model("m-1")).value == fingerprint(Model("m-1")).value
    assert fingerprint(Model("m-1")).unseen == ()
    assert fingerprint(Model("m-1")).tells_apart(fingerprint(Model("m-2")))
    assert fingerprint(make(Model("m-1"))).value == fingerprint(make(Model("m-1"))).value
    assert fingerprint(make(Model("m-1"))).tells_apart(fingerprint(make(Model("m-2"))))


def test_node_transforms_count_by_code_and_attributes():
    """A NodeTransform without identity is what its class and its attributes say; the splitter names
    itself.
    """

    class Cut(NodeTransform):
        def __init__(self, sep):
            self.sep = sep

        def transform(self, node):
            return node.get_text().split(self.sep)

    assert fingerprint(Cut("a")).value == fingerprint(Cut("a")).value
    assert fingerprint(Cut("a")).tells_apart(fingerprint(Cut("b")))
    assert fingerprint(Cut("a")).unseen == ()
    assert (
        fingerprint(SentenceSplitter(128, 12)).value == fingerprint(SentenceSplitter(128, 12)).value
    )
    assert fingerprint(SentenceSplitter(128, 12)).tells_apart(
        fingerprint(SentenceSplitter(128, 13))
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (str.split, str.splitlines),
        (len, sorted),
        (str.upper, str.lower),
        (functools.partial(str.split, sep="a"), functools.partial(str.split, sep="b")),
        (textwrap.dedent, textwrap.shorten),
        (dict, list),
    ],
)
def test_functions_of_the_language_and_its_library_count_by_name(one, other):
    """A new Python rebuilds nothing: they are what they are called."""
    assert fingerprint(one).value == fingerprint(one).value
    assert fingerprint(one).tells_apart(fingerprint(other))
    assert fingerprint(one).unseen == ()


def test_fingerprints_compare_by_value_and_by_every_unseen_object():
    """Another value, another number of unseen objects, another name or another object tells two
    apart.
    """
    client, other = object(), object()
    mark = Fingerprint("v", (("client", client),))
    assert not mark.tells_apart(Fingerprint("v", (("client", client),)))
    for different in (
        Fingerprint("w", (("client", client),)),
        Fingerprint("v"),
        Fingerprint("v", (("model", client),)),
        Fingerprint("v", (("client", other),)),
        Fingerprint("v", (("client", client), ("client", client))),
    ):
        assert mark.tells_apart(different)


def test_functions_that_call_one_another_have_fingerprints(load):
    """Recursion ends, and a change anywhere in the circle counts."""
    source = """
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n != $ and even(n - 1)
        def t(d): return even(len(d))
    """
    one, same, other = (fingerprint(load(source.replace("$", text)).t) for text in "009")
    assert one.value == same.value
    assert one.tells_apart(other)


def test_work_grows_with_the_number_of_functions_not_of_ways_to_reach_them(load):
    """Helpers that share helpers, as in any parser, are each looked at a bounded number of
    times.
    """

    def calls(layers: int) -> int:
        lines = [
            f"def {name}{layer}(d): return a{layer + 1}(d) + b{layer + 1}(d)"
            for layer in range(layers)
            for name in "ab"
        ]
        transform = load(
            "\n".join([*lines, f"def a{layers}(d): return d", f"def b{layers}(d): return d"])
        ).a0
        count = 0

        def seen(frame, event, argument):
            nonlocal count
            count += event == "call" and frame.f_code.co_filename.endswith("fingerprint.py")

        sys.setprofile(seen)
        try:
            fingerprint(transform)
        finally:
            sys.setprofile(None)
        return count

    assert calls(8) < 4 * calls(4)


def test_a_function_without_source_counts_by_its_bytecode():
    """In a shell there is no file to read: equal code is equal, other code is not."""
    one, same, other = (_in_no_file(f"def t(d): return d.split({sep!r})") for sep in "aab")
    assert fingerprint(one).value == fingerprint(same).value
    assert fingerprint(one).tells_apart(fingerprint(other))


def test_bytecode_does_not_count_where_it_stands_nor_its_docstring():
    """Lines, comments and the words of a docstring are no code."""
    one = _in_no_file("def t(d):\n    'Splits.'\n    return d.split('a')")
    other = _in_no_file(
        "\n\n\ndef t(d):\n    'Cuts.'\n    # at a\n    return (\n        d.split('a'))"
    )
    assert fingerprint(one).value == fingerprint(other).value


def test_bytecode_counts_what_is_inside():
    """Inner functions, closures, defaults and globals of a function without source count like those
    of others.
    """
    pairs = [
        ("def t(d): return [x + 'a' for x in d]", "def t(d): return [x + 'b' for x in d]"),
        ("def t(d, s='a'): return s", "def t(d, s='b'): return s"),
        ("S = 'a'\ndef t(d): return S", "S = 'b'\ndef t(d): return S"),
        ("def m(s): return lambda d: s\nt = m('a')", "def m(s): return lambda d: s\nt = m('b')"),
        ("def t(d): return d.upper()", "def t(d): return d.lower()"),
    ]
    for one, other in pairs:
        assert fingerprint(_in_no_file(one)).tells_apart(fingerprint(_in_no_file(other)))


@pytest.mark.slow
def test_a_fingerprint_does_not_depend_on_the_run():
    """Python hashes texts anew in every process; a stored fingerprint has to be found again."""
    codes = [
        "lambda d: [d, 'a', 2]",
        "lambda d, s=frozenset('abcdef'): d in s",
        "lambda d: d in {'a', 'b', 'c', 'd', 'e'}",
    ]
    program = (
        "from lazyrag.groups.fingerprint import fingerprint\n"
        f"for code in {codes!r}:\n"
        "    print(fingerprint(eval(code, {'__name__': 'shell'})).value)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert len(runs[0]) == 3
    assert [code for code, one, other in zip(codes, *runs, strict=True) if one != other] == []


def test_a_file_that_was_edited_after_its_import_is_not_believed(load, tmp_path):
    """What runs is what was imported: the new text on disk neither becomes its fingerprint nor
    hides a change.
    """
    old = load("def t(d):\n    return d.split('a')\n", "edited")
    old_t = old.t
    (tmp_path / "edited.py").write_text("def t(d):\n    return d.split('b')\n", encoding="utf-8")
    linecache.checkcache(str(tmp_path / "edited.py"))
    stale = fingerprint(old_t)
    fresh = fingerprint(load("def t(d):\n    return d.split('b')\n", "edited").t)
    assert stale.tells_apart(fresh)
    assert fingerprint(load("def t(d):\n    return d.split('b')\n").t).value == fresh.value


def test_a_file_that_is_gone_leaves_the_bytecode(load, tmp_path):
    """Deleting the source is no error, and two functions stay two."""
    module = load(
        "def t(d):\n    return d.split('a')\ndef u(d):\n    return d.split('b')\n", "gone"
    )
    (tmp_path / "gone.py").unlink()
    linecache.checkcache(str(tmp_path / "gone.py"))
    assert fingerprint(module.t).tells_apart(fingerprint(module.u))
    assert fingerprint(module.t).value == fingerprint(module.t).value


def test_text_put_above_a_function_after_its_import_is_no_change(load, tmp_path):
    """A file whose lines have moved is read wrong by nobody: the value falls back to code, not to
    another function.
    """
    module = load(
        "def t(d):\n    return d.split('a')\n\n\ndef u(d):\n    return d.split('b')\n", "moved"
    )
    (tmp_path / "moved.py").write_text(
        "def u(d):\n    return d.split('b')\n\n\ndef t(d):\n    return d.split('a')\n"
    )
    linecache.checkcache(str(tmp_path / "moved.py"))
    assert fingerprint(module.t).tells_apart(fingerprint(module.u))


def _same(one, other) -> bool:
    """Whether two fingerprints tell nothing apart, in either direction."""
    return one.value == other.value and not one.tells_apart(other) and not other.tells_apart(one)


class Evasive:
    """Answers any question for an attribute with an error that is no AttributeError."""

    def __init__(self, mark):
        self.mark = mark

    def __getattr__(self, name):
        msg = f"do not ask for {name}"
        raise RuntimeError(msg)

    def __call__(self, text):
        """The text in front of the mark."""
        return text.partition(self.mark)[0]


def test_an_object_whose_attributes_raise_has_a_fingerprint():
    """What an object's own __getattr__ does is not asked for; its class and attributes count as
    ever.
    """
    assert _same(fingerprint(Evasive("a")), fingerprint(Evasive("a")))
    assert fingerprint(Evasive("a")).tells_apart(fingerprint(Evasive("b")))


@pytest.mark.parametrize("kind", ["tree", "namespace", "parser", "list"])
def test_circular_objects_have_a_fingerprint(kind):
    """Objects that lead back to themselves come to an end, are the same as themselves and no other
    ones.
    """

    def make():
        if kind == "tree":
            held = xml.dom.minidom.parseString("<a><b/><c/></a>")  # noqa: S318  our own text
        elif kind == "namespace":
            held = types.SimpleNamespace(opaque=object())
            held.itself = held
        elif kind == "parser":
            held = argparse.ArgumentParser()
            held.add_subparsers().add_parser("tea").set_defaults(parser=held)
        else:
            held = []
            held.append(held)
        return held, lambda text: [text, held]

    held, transform = make()
    first = fingerprint(transform)
    assert _same(first, fingerprint(transform))
    assert [obj for _, obj in first.unseen] == [held]
    assert first.tells_apart(fingerprint(make()[1]))


class Remembering:
    """Computes its mark once."""

    def __init__(self, mark):
        self.given = mark

    @functools.cached_property
    def mark(self):
        """The mark."""
        return self.given.strip()

    def __call__(self, text):
        """The pieces between marks."""
        return text.split(self.mark)


def test_what_a_cached_property_remembers_is_no_change():
    """An instance is the same before and after it was used; another argument is another
    instance.
    """
    used, new = Remembering(" a "), Remembering(" a ")
    before = fingerprint(used)
    assert used("1a2") == ["1", "2"]
    assert "mark" in vars(used)
    assert _same(before, fingerprint(used))
    assert _same(fingerprint(used), fingerprint(new))
    assert fingerprint(used).tells_apart(fingerprint(Remembering(" b ")))


def test_a_path_is_its_text(tmp_path):
    """A pathlib.Path counts by what it names, and the same after it was used; it caches what it was
    asked.
    """
    (tmp_path / "stop.txt").write_text("tea", encoding="utf-8")

    def over(path):
        return lambda text: [text, path.read_text(encoding="utf-8")]

    path = tmp_path / "stop.txt"
    before = fingerprint(over(path))
    assert path.read_text(encoding="utf-8") == "tea"
    assert (hash(path), path.parts[-1], path.suffix) == (hash(path), "stop.txt", ".txt")
    assert _same(before, fingerprint(over(path)))
    assert _same(before, fingerprint(over(tmp_path / "stop.txt")))
    assert before.unseen == ()
    assert before.tells_apart(fingerprint(over(tmp_path / "other.txt")))


@pytest.mark.slow
def test_a_library_s_method_is_the_same_after_its_first_use():
    """jieba.lcut loads its dictionary at its first use, which is no other transform."""
    program = """
import warnings
warnings.simplefilter("ignore")
import jieba, logging
jieba.setLogLevel(logging.ERROR)
from lazyrag.groups.fingerprint import fingerprint
def cut(text):
    return jieba.lcut(text)
before = [fingerprint(one) for one in (jieba.lcut, cut)]
assert not jieba.dt.initialized
assert jieba.lcut("绿茶") and jieba.dt.initialized
after = [fingerprint(one) for one in (jieba.lcut, cut)]
print([one.value for one in before] == [one.value for one in after])
print([one.tells_apart(other) for one, other in zip(before, after)])
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["True", "[False, False]"]


def test_a_splitter_of_one_s_own_is_another_transform():
    """A subclass of a built-in class that overrides transform counts by its own code."""

    class Same(SentenceSplitter):
        """Changes nothing."""

    class Shouting(SentenceSplitter):
        """Capitals."""

        def transform(self, node):
            """Capitals."""
            return node.text.upper()

    class Whispering(SentenceSplitter):
        """Small letters."""

        def transform(self, node):
            """Small letters."""
            return node.text.lower()

    shouting = fingerprint(Shouting(64, 8))
    assert _same(shouting, fingerprint(Shouting(64, 8)))
    for other in (SentenceSplitter(64, 8), Same(64, 8), Whispering(64, 8), Shouting(32, 8)):
        assert shouting.tells_apart(fingerprint(other))


@pytest.mark.parametrize("base", [SentenceSplitter, RetrievalResult])
def test_a_module_of_lazyrag_may_move(monkeypatch, base):
    """A class counts by its name, so that what users derive from it keeps its fingerprint."""

    def derived():
        return base

    before = fingerprint(derived)
    monkeypatch.setattr(base, "__module__", "lazyrag.elsewhere")
    assert _same(fingerprint(derived), before)


def test_tuples_within_tuples_are_looked_at_once():
    """A value that is shared at every level counts in time, not once for each way to reach it."""

    def make(value):
        return lambda d: (value, d)

    def nested(core):
        for _ in range(200):
            core = (core, core)
        return core

    assert fingerprint(make(nested(1))).value == fingerprint(make(nested(1))).value
    assert fingerprint(make(nested(1))).tells_apart(fingerprint(make(nested(2))))


def test_a_function_that_reads_hundreds_of_names(load):
    """Also where the interpreter needs wider arguments, what is read of another module counts."""
    marks = []
    for value in "12":
        load(f"K = {value}", "own_constants")
        reads = " + ".join(f"g{number}" for number in range(300))
        source = "\n".join(f"g{number} = 0" for number in range(300))
        marks.append(
            fingerprint(
                load(f"import own_constants as h\n{source}\ndef t(d): return {reads} + h.K").t
            )
        )
    assert marks[0].value != marks[1].value
    assert marks[0].unseen == ()


@pytest.mark.slow
def test_threads_take_fingerprints_at_once(load):
    """Python 3.11 fails where garbage is collected while two threads parse: a thread that meets
    this tries again.
    """

    class Garbage:
        def __init__(self):
            self.itself = self

        def __del__(self):
            sum(range(50))

    def among_garbage(function):
        _ = [Garbage() for _ in range(200)]
        return fingerprint(function)

    body = "\n".join(f"    d = [d, ({number}, d)]" for number in range(500))
    functions = [
        load(f"def t(d):\n    k = {number}\n{body}\n    return d", f"large{number}").t
        for number in range(8)
    ]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            marks = list(pool.map(among_garbage, functions))
    finally:
        sys.setswitchinterval(interval)
    assert len({mark.value for mark in marks}) == len(functions)
