"""Small files that ask for much work stay cheap: `tests.small_hostile`, and the budget of work of
each file.
"""

from __future__ import annotations

import sys

import pytest

from lazyrag import Document, IngestionWarning
from lazyrag.errors import LoadError
from lazyrag.loaders import LoadLimits, load_file
from tests.small_hostile import CASES, MOST_BYTES, MOST_CPU_S, MOST_MEBIBYTES, measure, write


@pytest.mark.sample(40)
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("name", CASES)
def test_small_files_stay_cheap(name):
    """Loading, splitting and searching for tables and pictures takes seconds and little memory."""
    cpu, peak, size, found = measure(name)
    assert size < MOST_BYTES
    # a busy or older machine is twice as slow; work that grows faster than the file takes minutes
    assert (cpu < 2 * MOST_CPU_S, peak < MOST_MEBIBYTES) == (True, True), (
        f"{cpu:.1f} s, {peak:.0f} MiB: {found}"
    )


@pytest.mark.parametrize(
    "name", ["far.xlsx", "repeated.ods", "repeated.odt", "sheets.xlsx", "again.pptx", "again.epub"]
)
def test_what_repeats_too_often_is_one_failure(tmp_path, name):
    """The error names the limit and the way out; the other file of the folder is in."""
    write(name, tmp_path)
    (tmp_path / "good.txt").write_text("tea", encoding="utf-8")
    docs = Document(tmp_path)
    with pytest.warns(
        IngestionWarning, match=r"the limit work=2,000,000 is exceeded.*LoadLimits\(work="
    ):
        assert [node.path for node in docs.get_nodes()] == ["good.txt"]


def test_the_budget_of_work_grows_with_the_file_and_can_be_changed(tmp_path):
    """A file may take two steps for each of its bytes, and those of the limit; 0 is no limit."""
    path = write("repeated.ods", tmp_path)
    with pytest.raises(LoadError, match="limit work=2,000,000"):
        load_file(path)
    assert len(load_file(path, limits=LoadLimits(work=0)).text) > 1_000_000
    many = tmp_path / "many.csv"
    many.write_text("a,b\n" + "1,2\n" * 100_000, encoding="utf-8")
    with pytest.raises(LoadError, match="limit work=100"):
        load_file(many, limits=LoadLimits(work=100))
    long = tmp_path / "long.txt"
    long.write_text("tea " * 500_000, encoding="utf-8")
    assert len(load_file(long, limits=LoadLimits(work=1)).text) == 2_000_000


def test_members_share_a_budget_of_work(tmp_path):
    """Many tables in an archive cost as much as the same ones beside each other, and fail
    together.
    """
    path = write("books.zip", tmp_path)
    with pytest.raises(LoadError, match="limit work=2,000,000"):
        load_file(path)


def test_a_wide_header_costs_nothing_in_narrow_rows(tmp_path):
    """The line of a row has no names of columns that the row does not have."""
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{at}" for at in range(500)) + "\n1,2\n", encoding="utf-8")
    assert load_file(path).text == "c0: 1; c1: 2"
