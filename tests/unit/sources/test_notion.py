"""Pages of Notion as Markdown, from a server that speaks its protocol."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lazyrag.errors import ConfigError, LoadError
from lazyrag.sources import CutShort, FailedItem, NotionSource, SourceItem
from lazyrag.sources.notion import markdown_of
from tests.notion_server import TOKEN, Notion, notion_id, text


@pytest.fixture
def notion():
    """The server, empty."""
    served = Notion()
    yield served
    served.close()


def source_of(notion, **options):
    """A source that may ask the server."""
    own = {"base_url": notion.url, "allow_private": True, "retries": 0, "backoff_s": 0.01}
    return NotionSource(options.pop("token", TOKEN), **{**own, **options})


def test_a_page_is_markdown(notion):
    """Every kind of block, in order, with what lies beneath; more blocks than one answer holds."""
    block = notion.block
    linked = [
        text("See "),
        text("Uji", href="https://uji.example"),
        text(", ", bold=True),
        text("x", code=True),
    ]
    cells = [[[text("tea")], [text("a|b", bold=True)]], [[text("Sencha")], [text("7")]]]
    page = notion.page(
        1,
        "Tea",
        block("heading_1", "Green"),
        block("paragraph", linked),
        block("bulleted_list_item", "one", block("bulleted_list_item", "inner", block("paragraph", "deep"))),
        block("bulleted_list_item", "two"),
        block("numbered_list_item", "first"),
        block("numbered_list_item", "second", block("numbered_list_item", "below")),
        block("to_do", "open", checked=False),
        block("to_do", "done", checked=True),
        block("heading_2", "Foldable", block("paragraph", "unfolded"), is_toggleable=True),
        block("toggle", "fold", block("paragraph", "hidden")),
        block("quote", "line 1\nline 2", block("paragraph", "more")),
        block("callout", "mind", icon={"type": "emoji", "emoji": "💡"}),
        block("code", "a = 1\n```\n", language="python", caption=[text("how")]),
        block("table", None, *(block("table_row", None, cells=row) for row in cells), has_column_header=True),
        block("equation", None, expression="E=mc^2"),
        block("paragraph", [{"type": "equation", "plain_text": "x", "equation": {"expression": "x_1"}}]),
        block("divider", None),
        block("image", None, type="external", external={"url": "https://e.example/i.png"}, caption=[text("leaf")]),
        block("file", None, type="file", file={"url": "https://e.example/f.pdf?Signature=x"}, name="f.pdf", caption=[]),
        block("bookmark", None, url="https://e.example", caption=[]),
        block("column_list", None, *(block("column", None, block("paragraph", side)) for side in ("left", "right"))),
        block("unsupported", None),
        block("paragraph", ""),
    )  # fmt: skip
    [item] = source_of(notion, pages=[page]).items()
    assert (
        item.content.decode()
        == """\
# Tea

# Green

See [Uji](https://uji.example)**,** `x`

- one
  - inner

    deep
- two

1. first
2. second
   1. below

- [ ] open
- [x] done

## Foldable

unfolded

- fold

  hidden

> line 1
> line 2
>
> more

> 💡 mind

````python
a = 1
```

````

how

| tea | **a\\|b** |
| --- | --- |
| Sencha | 7 |

$$
E=mc^2
$$

$x_1$

---

![leaf](https://e.example/i.png)

[f.pdf](https://e.example/f.pdf)

[https://e.example](https://e.example)

left

right"""
    )
    assert (item.identity, item.suffix) == (page, ".md")
    assert item.metadata["title"] == "Tea"
    assert item.metadata["last_edited_time"] == "2026-04-02T00:00:00.000Z"


def test_properties_become_metadata(notion):
    """Of every kind that has a value."""
    properties = {
        "Price": {"type": "number", "number": 12.5},
        "Kind": {"type": "select", "select": {"name": "green"}},
        "Tags": {"type": "multi_select", "multi_select": [{"name": "a"}, {"name": "b"}]},
        "Day": {"type": "date", "date": {"start": "2026-04-01", "end": None}},
        "Notes": {
            "type": "rich_text",
            "rich_text": [text("from "), text("Uji", href="https://u.example")],
        },
        "Done": {"type": "checkbox", "checkbox": False},
        "Sum": {"type": "formula", "formula": {"type": "number", "number": 7}},
        "None": {"type": "number", "number": None},
        "Rel": {"type": "relation", "relation": [{"id": "x"}]},
        "By": {"type": "people", "people": [{"name": "Li"}, {"object": "user"}]},
    }
    page = notion.page(1, "Tea", **properties)
    [item] = source_of(notion, pages=[page]).items()
    said = {name: item.metadata[name] for name in properties if name in item.metadata}
    assert said == {
        "Price": 12.5, "Kind": "green", "Tags": ["a", "b"], "Day": "2026-04-01",
        "Notes": "from [Uji](https://u.example)", "Done": False, "Sum": 7, "By": ["Li"],
    }  # fmt: skip


def test_databases_and_child_pages(notion):
    """All pages of a database, over several answers, and what lies beneath them; each page once."""
    child = notion.page(50, "Child", notion.block("paragraph", "tea"))
    rows = [notion.page(number, f"Row {number}") for number in range(1, 6)]
    notion.children[rows[0]] = [notion.block("child_page", None, id=child, title="Child")]
    inner = notion.page(60, "Inner")
    notion.databases[notion_id(9)] = rows
    notion.databases[notion_id(8)] = [inner, rows[1]]
    notion.children[rows[1]] = [
        notion.block("child_database", None, id=notion_id(8), title="Table"),
        notion.block("child_database", None, id=notion_id(7), title="Only linked"),
    ]
    source = source_of(notion, databases=[notion_id(9)])
    assert [item.identity for item in source.items()] == [*rows, child, inner]
    source = source_of(notion, databases=[notion_id(9)], child_pages=False)
    assert [item.identity for item in source.items()] == rows
    notion.data_sources[notion_id(6)] = rows[:3]
    assert len(list(source_of(notion, data_sources=[notion_id(6)], child_pages=False).items())) == 3


def test_pages_in_the_bin_are_gone(notion):
    """Archived pages are no items."""
    page = notion.page(1, "Tea")
    notion.pages[page]["archived"] = True
    assert list(source_of(notion, pages=[page]).items()) == []


@pytest.mark.parametrize(
    "given",
    [
        "00000000000000000000000000000001",
        "https://www.notion.so/team/Tea-00000000000000000000000000000001?v=1#x",
    ],
)
def test_ids_are_taken_from_urls(notion, given):
    """As they stand in a browser's address."""
    notion.page(1, "Tea")
    [item] = source_of(notion, pages=[given]).items()
    assert item.identity == notion_id(1)


def test_a_folder_follows_notion(notion, tmp_path):
    """Edited pages are updated, pages in the bin removed, and a page that fails for now is kept."""
    pages = [notion.page(number, f"Page {number}") for number in (1, 2, 3)]
    notion.databases[notion_id(9)] = pages
    source = source_of(notion, databases=[notion_id(9)])
    assert len(source.fetch(tmp_path).added) == 3
    notion.children[pages[0]] = [notion.block("paragraph", "new")]
    notion.databases[notion_id(9)] = pages[:2]
    del notion.children[pages[1]]
    report = source.fetch(tmp_path)
    assert (report.updated, report.removed) == ((pages[0],), (pages[1], pages[2]))
    assert [one.gone for one in report.failed] == [True]
    query = {"results": [notion.pages[pages[0]]], "has_more": False}
    notion.faults = [query, (502, {}, b"")]
    report = source.fetch(tmp_path)
    assert (report.retained, report.removed) == ((pages[0],), ())


def test_rate_limits_are_waited_for(notion):
    """429 with Retry-After, and the request is sent again."""
    page = notion.page(1, "Tea")
    notion.faults = [(429, {"Retry-After": "0"}, b"{}"), (503, {}, b"")]
    assert len(list(source_of(notion, pages=[page], retries=2).items())) == 1


def test_a_page_that_was_named_must_be_there(notion):
    """Its error goes up, and says what Notion says; the token is not shown though Notion repeats
    it.
    """
    with pytest.raises(LoadError, match="object_not_found"):
        list(source_of(notion, pages=[notion_id(1)]).items())
    source = source_of(notion, pages=[notion_id(1)], token="ntn-a-wrong-one")  # noqa: S106
    with pytest.raises(LoadError, match="401") as caught:
        list(source.items())
    assert "ntn-a-wrong-one" not in str(caught.value) + repr(source) + source.name
    assert "***" in str(caught.value)


def test_limits(notion):
    """max_pages cuts the run short."""
    notion.databases[notion_id(9)] = [notion.page(number, "Tea") for number in (1, 2, 3)]
    *items, last = source_of(notion, databases=[notion_id(9)], max_pages=2).items()
    assert all(isinstance(item, SourceItem) for item in items)
    assert isinstance(last, CutShort)


@pytest.mark.parametrize(
    "answer",
    [
        b"tea",
        b"[]",
        b'{"results": 7}',
        b'{"results": [], "has_more": true, "next_cursor": "again"}',
    ],
)
def test_answers_that_cannot_be_used(notion, answer):
    """Another server, or a circle of cursors, is an error of ours."""
    notion.page(1, "Tea")
    notion.databases[notion_id(9)] = [notion_id(1)]
    notion.faults = [(200, {}, answer)] * 5
    with pytest.raises(LoadError, match=r"base_url|circle"):
        list(source_of(notion, databases=[notion_id(9)]).items())


def test_a_page_that_fails_alone(notion, monkeypatch):
    """One that is too long, holds a table that fails for now, or has no id of its own, is one
    failure among others.
    """
    rows = [
        notion.page(number, f"Row {number}", notion.block("paragraph", "x")) for number in (1, 2, 3)
    ]
    notion.databases[notion_id(9)] = rows
    long = [notion.block("paragraph", "x") for _ in range(5)]
    notion.children[rows[0]] = long
    notion.children[rows[1]] = [{"type": "child_page", "id": "odd"}, notion.block("paragraph", "x")]
    monkeypatch.setattr("lazyrag.sources.notion._MAX_BLOCKS", 4)
    *failed, item = source_of(notion, databases=[notion_id(9)]).items()
    assert [type(one) for one in failed] == [FailedItem, FailedItem]
    assert "more than 4 blocks" in failed[0].error
    assert "'odd'" in failed[1].error
    assert item.identity == rows[2]


def test_blocks_in_a_circle_end(notion):
    """A block that lies beneath itself is not followed for ever."""
    page = notion.page(1, "Tea")
    loop = notion.block("synced_block", None, notion.block("paragraph", "x"))
    notion.children[loop["id"]] = [loop, loop]
    notion.children[page] = [loop]
    [item] = source_of(notion, pages=[page]).items()
    assert item.content == b"# Tea"
    assert len(notion.requests) < 10


_NAMES = st.sampled_from("rich_text plain_text type icon url cells annotations".split())
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)


@example("image", {"type": []})
@given(
    st.sampled_from(
        "paragraph heading_1 to_do callout code table image embed child_page xyz".split()
    ),
    _JSON,
)
def test_odd_blocks_are_no_error(kind, said):
    """Whatever a block holds, it is Markdown or nothing."""
    assert isinstance(
        markdown_of([{"type": kind, kind: said, "id": "x", "has_children": False}], lambda _: ()),
        str,
    )


@pytest.mark.parametrize(
    "options",
    [
        {"token": ""},
        {"token": None},
        {"pages": []},
        {"pages": "x"},
        {"pages": ["tea"]},
        {"base_url": "file:///"},
        {"max_pages": 0},
        {"child_pages": "no"},
        {"headers": {"X": "ü"}},
    ],
)
def test_values_are_checked(options):
    """Before anything is asked; the token is not shown."""
    with pytest.raises(ConfigError) as caught:
        NotionSource(**{"token": TOKEN, "pages": [notion_id(1)], **options})
    assert TOKEN not in str(caught.value)


def test_what_is_nested_too_deep_is_told(notion):
    """A page of which some text would be left out is a failure, not a shorter page."""
    block = notion.block("paragraph", "innermost")
    for _ in range(51):
        block = notion.block("toggle", "fold", block)
    page = notion.page(1, "Tea", block)
    [failed] = source_of(notion, pages=[page]).items()
    assert isinstance(failed, FailedItem)
    assert "deeper than 50 levels" in failed.error
