"""Records of paged HTTP APIs: every way of paging, and APIs that do not do what they say."""

from __future__ import annotations

import json

import pytest

from lazyrag.errors import ConfigError, LoadError, UnknownKeywordError
from lazyrag.sources import (
    Cursor,
    CutShort,
    FailedItem,
    HttpRecordsSource,
    LinkHeader,
    NextLink,
    Offset,
    PageNumber,
    SourceItem,
)
from tests.web_server import Web

TEAS = [{"id": number, "name": f"Tea {number}", "from": {"town": "Uji"}} for number in range(1, 8)]


@pytest.fixture
def web():
    """A local server."""
    served = Web()
    yield served
    served.close()


def source_of(web, path="/teas", **options):
    """A source that may ask the server."""
    return HttpRecordsSource(
        web.url + path, **{"allow_private": True, "retries": 0, "backoff_s": 0.01, **options}
    )


def identities(source):
    """Of all records; anything else in their place as it is."""
    return [event.identity if isinstance(event, SourceItem) else event for event in source.items()]


def by_link_header(request):
    """Three records a page, as GitHub's API pages."""
    page = int(request.params.get("page", 1))
    following = f'<http://{request.headers["host"]}/teas?page={page + 1}>; rel="next", </teas?page=9>; rel="last"'
    headers = {"Link": following} if page < 3 else {"Link": '</teas?page=1>; rel="first"'}
    return 200, headers, json.dumps(TEAS[3 * page - 3 : 3 * page]).encode()


def by_next_link(request):
    """A relative URL in the answer."""
    page = int(request.params.get("page", 1))
    return {
        "data": {"items": TEAS[3 * page - 3 : 3 * page]},
        "links": {"next": f"?page={page + 1}" if page < 3 else None},
    }


def by_cursor(request):
    """A cursor that is a number and starts beyond the first page."""
    at = int(request.params.get("after", 0))
    return {"data": {"items": TEAS[at : at + 3]}, "meta": {"next": at + 3 if at + 3 < 7 else ""}}


def by_number(request):
    """An empty page after the last."""
    page = int(request.params["page"])
    return {"data": {"items": TEAS[3 * page : 3 * page + 3]}}


def by_offset(request):
    """Fewer records than were asked for."""
    at = int(request.params["offset"])
    assert request.params["limit"] == "5"
    return {"data": {"items": TEAS[at : at + 3]}}


@pytest.mark.parametrize(
    ("route", "options", "pages"),
    [
        (by_link_header, {}, 3),
        (by_next_link, {"paging": NextLink("links.next"), "records": "data.items"}, 3),
        (by_cursor, {"paging": Cursor("meta.next", "after"), "records": "data.items"}, 3),
        (by_number, {"paging": PageNumber(start=0), "records": "data.items"}, 4),
        (by_offset, {"paging": Offset(limit=5), "records": "data.items"}, 4),
    ],
)
def test_every_way_of_paging(web, route, options, pages):
    """All records, in order, each page asked for once; the parameters of the first page stay where
    they are needed.
    """
    web.routes["/teas"] = route
    assert identities(source_of(web, params={"sort": "name"}, **options)) == [
        str(tea["id"]) for tea in TEAS
    ]
    assert len(web.requests) == pages
    assert web.requests[0].params["sort"] == "name"


def test_the_text_and_metadata_of_a_record(web):
    """Paths in templates and metadata; numbers keep their spelling in the text and their type in
    metadata.
    """
    web.routes["/teas"] = (
        200,
        {},
        '[{"id": "a", "price": 12.50, "tags": ["绿"], "by": {"town": "Uji", "n": 7}}]'.encode(),
    )
    source = source_of(
        web, template="{price} of {by.town}", metadata=["price", "by.n", "tags", "by.town"]
    )
    [item] = source.load()
    assert (item.identity, item.text) == ("a", "12.50 of Uji")
    assert item.metadata == {"price": 12.5, "by.n": 7, "tags": ["绿"], "by.town": "Uji"}
    [item] = source_of(web).load()
    assert item.text == "id: a\nprice: 12.50\ntags: 绿\nby.town: Uji\nby.n: 7"


def test_a_folder_follows_an_api(web, tmp_path):
    """A record that the API has no longer is removed, but not by a run that broke off."""
    web.routes["/teas"] = by_link_header
    source = source_of(web, headers={"Authorization": "Bearer secret-of-the-api"})
    assert len(source.fetch(tmp_path).added) == 7
    web.routes["/teas"] = lambda request: (
        by_link_header(request) if "page" not in request.params else (500, {}, b"")
    )
    report = source.fetch(tmp_path)
    assert (len(report.unchanged), len(report.retained), report.removed) == (3, 4, ())
    assert "answers 500" in report.cut_short
    web.routes["/teas"] = TEAS[1:3]
    assert source.fetch(tmp_path).removed == ("1", "4", "5", "6", "7")
    assert "secret" not in repr(source) + source.name
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())


def by_an_unknown_number(request):
    """Pages for ever."""
    return [{"id": request.params["page"]}]


def by_a_circle(request):
    """The second page leads back to itself, and is another one each time."""
    return {"data": [{"id": 1, "n": len(request.target)}], "next": "/teas?x"}


@pytest.mark.parametrize(
    ("route", "options", "reason"),
    [
        (
            {"data": TEAS, "next": "?page=1"},
            {"paging": NextLink(), "records": "data"},
            "repeats an earlier",
        ),
        (by_a_circle, {"paging": NextLink(), "records": "data"}, "leads back"),
        (TEAS, {"paging": PageNumber()}, "does not take this paging"),
        (by_an_unknown_number, {"paging": PageNumber(), "max_pages": 5}, "max_pages=5"),
        (by_an_unknown_number, {"paging": PageNumber(), "max_seconds": 0.05}, "max_seconds"),
        (
            by_an_unknown_number,
            {"paging": PageNumber(), "max_total_bytes": 99},
            "max_total_bytes=99",
        ),
    ],
)
def test_pages_without_end_end(web, route, options, reason):
    """A circle of links, a parameter that is not known, and pages for ever: the run is cut short
    and says why.
    """
    web.routes["/teas"] = route
    *_, last = source_of(web, **options).items()
    assert isinstance(last, CutShort)
    assert reason in last.reason


def test_a_next_page_may_not_lead_inside(web):
    """A link to a closed address, or to what is no URL, ends the run; credentials go nowhere
    else.
    """
    for following in ("http://169.254.169.254/latest", "file:///etc/passwd", {"to": 1}):
        web.routes["/teas"] = {"data": TEAS, "next": following}
        source = source_of(web, paging=NextLink(), records="data")
        if following == "http://169.254.169.254/latest":
            *_, last = source.items()
            assert "cloud" in last.reason
        else:
            with pytest.raises(LoadError, match="invalid URL"):
                list(source.items())


def test_records_that_are_none(web):
    """A record without identity, or that is no object, is one failure; the others are there."""
    web.routes["/teas"] = [
        {"id": 1, "name": "a"},
        {"name": "b"},
        "tea",
        {"id": None},
        {"id": 2, "name": "c"},
    ]
    first, *failed, last = source_of(web, fields=["name"]).items()
    assert (first.identity, last.identity) == ("1", "2")
    assert all(isinstance(one, FailedItem) for one in failed)
    assert [one.identity for one in failed] == [
        "page 1, record 2",
        "page 1, record 3",
        "page 1, record 4",
    ]


@pytest.mark.parametrize(
    ("answer", "options", "message"),
    [
        (b"tea", {}, "is no JSON"),
        (b"[" * 100_000, {}, "is no JSON"),
        (b'"\xff"', {}, "is no JSON"),
        (b'{"data": []}', {"records": "dta"}, "Did you mean 'data'"),
        (b'{"data": {}}', {"records": "data"}, "no list at 'data'"),
        (b'[{"id": 1, "name": "x"}]', {"template": "{nme}"}, "Did you mean 'name'"),
        (b'[{"id": 1, "name": "x"}]', {"metadata": ["nme"]}, "No record has the field 'nme'"),
        (b'[{"key": 1, "name": "x"}]', {}, "No record has the field 'id'"),
    ],
)
def test_answers_that_cannot_be_used(web, answer, options, message):
    """What was found, and what to give."""
    web.routes["/teas"] = (200, {}, answer)
    with pytest.raises(LoadError, match=message):
        list(source_of(web, **options).items())


def test_an_empty_api(web):
    """No records are no error: the folder is empty then."""
    web.routes["/teas"] = []
    assert list(source_of(web, template="{name}").items()) == []


def test_the_first_page_must_be_there(web):
    """Its error goes up."""
    with pytest.raises(LoadError, match="answers 404"):
        list(source_of(web).items())


@pytest.mark.parametrize(
    "options",
    [
        {"url": "ftp://example.com/"},
        {"identity": []},
        {"records": 7},
        {"paging": "page"},
        {"params": "a=b"},
        {"max_pages": 0},
        {"max_seconds": -1},
        {"template": "x"},
    ],
)
def test_values_are_checked(options):
    """Before anything is asked."""
    with pytest.raises(ConfigError):
        HttpRecordsSource(**{"url": "http://example.com/", **options})


def test_unknown_keywords():
    """A misspelt keyword names the nearest."""
    with pytest.raises(UnknownKeywordError, match="Did you mean 'headers'"):
        HttpRecordsSource("http://example.com/", header={})
    with pytest.raises(UnknownKeywordError, match="Did you mean 'path'"):
        NextLink(pth="x")


@pytest.mark.parametrize(
    "make",
    [
        lambda: NextLink(""),
        lambda: Cursor(param=" "),
        lambda: PageNumber(start=-1),
        lambda: Offset(limit=0),
    ],
)
def test_paging_is_checked(make):
    """Names are not blank, numbers in their range; a class is no paging."""
    with pytest.raises(ConfigError):
        make()
    with pytest.raises(ConfigError, match=r"LinkHeader"):
        HttpRecordsSource("http://example.com/", paging=LinkHeader)
    assert LinkHeader() == LinkHeader()
