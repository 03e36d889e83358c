"""Specification 004, section 2: ExtractSetting. Each docstring quotes the sentence that it
tests.
"""

from __future__ import annotations

import inspect
import io
from types import SimpleNamespace

import pytest

from lazyrag import IngestionWarning
from lazyrag.errors import ConfigError, LoadError, UnknownKeywordError
from lazyrag.sources import ExtractSetting, extract
from tests.notion_server import TOKEN, Notion, notion_id
from tests.web_server import Web


@pytest.mark.parametrize(
    ("datasource_type", "needed", "nothing"),
    [
        ("upload_file", "upload_file", ""),
        ("notion_import", "notion_info", {}),
        ("website_crawl", "url", ""),
    ],
)
def test_validation(datasource_type, needed, nothing):
    """「raise ValueError("upload_file is required for datasource_type 'upload_file'")」 and the
    others, literally.
    """
    message = f"{needed} is required for datasource_type '{datasource_type}'"
    for given in ({}, {needed: None}, {needed: nothing}):
        with pytest.raises(ValueError, match="required") as caught:
            ExtractSetting(datasource_type, **given)
        assert str(caught.value) == message
        assert isinstance(caught.value, ConfigError)


def test_the_types():
    """「`datasource_type` | 是 | `"upload_file"` / `"notion_import"` / `"website_crawl"`」"""
    ExtractSetting("upload_file", upload_file="tea.txt")
    ExtractSetting("notion_import", notion_info={"notion_obj_id": "x"})
    ExtractSetting("website_crawl", url="https://example.com/")
    for wrong in ("upload", "", None, "website"):
        with pytest.raises(ValueError, match="Known: notion_import, upload_file, website_crawl"):
            ExtractSetting(wrong, upload_file="x", notion_info={"x": 1}, url="x")


def test_fields_and_defaults():
    """「`document_model` | str | 否 | 默认 `"parse_by_server"`」; the order of the fields, and None for
    the others.
    """
    parameters = inspect.signature(ExtractSetting).parameters.values()
    assert [(one.name, one.default) for one in parameters] == [
        ("datasource_type", inspect.Parameter.empty), ("upload_file", None), ("notion_info", None),
        ("document_model", "parse_by_server"), ("url", None),
    ]  # fmt: skip
    setting = ExtractSetting("website_crawl", None, None, None, "https://example.com/")
    assert (setting.document_model, setting.url) == (None, "https://example.com/")
    assert setting == ExtractSetting(
        "website_crawl", document_model=None, url="https://example.com/"
    )


def test_an_uploaded_file(tmp_path):
    """「`upload_file` | 仅 `upload_file` 时必填 | 上传文件对象」: a path, or an object of a web framework."""
    path = tmp_path / "茶.md"
    path.write_text("# Tea\n\nSencha", encoding="utf-8")

    class UploadFile:  # as Starlette's
        filename = "C:\\files\\茶.md"
        file = io.BytesIO(path.read_bytes())

    with path.open("rb") as opened:
        for given in (path, str(path), UploadFile(), opened):
            [item] = extract(ExtractSetting("upload_file", upload_file=given))
            assert (item.identity, item.text, item.locations[0].label) == (
                "茶.md",
                "# Tea\n\nSencha",
                "Tea",
            )


def test_an_upload_in_a_storage():
    """「upload_file | UploadFile | 上传文件对象」 as Dify has it: an object with a key, and a storage that
    loads it.
    """
    files = {"upload_files/tenant/茶.md": b"# Tea"}
    storage = SimpleNamespace(load=files.__getitem__)
    for upload, name in (
        (SimpleNamespace(key="upload_files/tenant/茶.md", name="我的茶.md"), "我的茶.md"),
        (SimpleNamespace(key="upload_files/tenant/茶.md"), "茶.md"),
    ):
        setting = ExtractSetting("upload_file", upload_file=upload)
        [item] = extract(setting, storage=storage)
        assert (item.identity, item.text) == (name, "# Tea")
        with pytest.raises(ConfigError, match=r"storage must be .*extract\(setting, storage="):
            extract(setting)


@pytest.mark.parametrize("name", ["茶", "a.xyz", "a." + "x" * 300, "a.\0txt", "a.b:c"])
def test_an_upload_that_cannot_be_read_names_itself(name):
    """「上传文件对象」: whatever it is called, the error names it, not a file of ours."""
    file = io.BytesIO(bytes(range(256)))
    file.name = name
    with pytest.raises(LoadError) as caught:
        extract(ExtractSetting("upload_file", upload_file=file))
    assert caught.value.path == name


def test_notion_import():
    """「`notion_info` | dict | 仅 `notion_import` 时必填 | Notion 页面信息」, with Dify's keys."""
    notion = Notion()
    try:
        page = notion.page(1, "Tea", notion.block("paragraph", "Sencha"))
        notion.databases[notion_id(9)] = [page, notion.page(2, "Empty")]
        info = {
            "notion_access_token": TOKEN,
            "notion_obj_id": page,
            "notion_page_type": "page",
            "base_url": notion.url,
        }
        info["notion_workspace_id"] = "not needed"
        setting = ExtractSetting("notion_import", notion_info=info)
        [item] = extract(setting, allow_private=True)
        assert (item.identity, item.text) == (page, "# Tea\n\nSencha")
        assert TOKEN not in repr(setting)
        info.update(notion_obj_id=notion_id(9), notion_page_type="database")
        assert (
            len(extract(ExtractSetting("notion_import", notion_info=info), allow_private=True)) == 2
        )
        with pytest.raises(LoadError, match="loopback"):
            extract(setting)
    finally:
        notion.close()


def test_website_crawl():
    """「`url` | str | 仅 `website_crawl` 时必填 | 网页 URL」"""
    web = Web()
    try:
        web.routes["/"] = "<h1>Tea</h1><a href='/a'>A</a> <a href='/gone'>B</a>"
        web.routes["/a"] = "<p>Sencha"
        with pytest.warns(IngestionWarning, match="answers 404"):
            items = extract(ExtractSetting("website_crawl", url=web.url), allow_private=True)
        assert [(item.identity, item.text) for item in items] == [
            (f"{web.url}/", "Tea\n\nA B"),
            (f"{web.url}/a", "Sencha"),
        ]
        with pytest.raises(LoadError, match="loopback"):
            extract(ExtractSetting("website_crawl", url=web.url))
    finally:
        web.close()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"datasource_type": "upload_file", "upload_file": 7}, "path"),
        ({"datasource_type": "upload_file", "upload_file": io.StringIO("x")}, "path"),
        ({"datasource_type": "upload_file", "upload_file": "x", "document_model": "other"}, "Leave it out"),
        ({"datasource_type": "notion_import", "notion_info": ["x"]}, "mapping"),
        ({"datasource_type": "notion_import", "notion_info": {"token": "x"}}, "Known: base_url"),
        ({"datasource_type": "notion_import", "notion_info": {"notion_page_type": "x"}}, "Known: data_source, dat"),
        ({"datasource_type": "notion_import", "notion_info": {"notion_access_token": "x"}}, "notion_obj_id"),
        ({"datasource_type": "website_crawl", "url": "ftp://example.com"}, "has the scheme 'ftp'"),
    ],
)  # fmt: skip
def test_what_cannot_be_extracted(setting, message):
    """What the specification leaves open is checked when it is used: an error that says what to
    give.
    """
    with pytest.raises(ConfigError, match=message):
        extract(ExtractSetting(**setting))


def test_others_are_refused(tmp_path):
    """A mapping is no setting, a misspelt keyword names the nearest, and a text stream is told to
    be binary.
    """
    with pytest.raises(ConfigError, match="ExtractSetting"):
        extract({"datasource_type": "upload_file"})
    with pytest.raises(UnknownKeywordError, match="Did you mean 'upload_file'"):
        ExtractSetting("upload_file", upload_fil="x")
    (tmp_path / "tea.txt").write_text("tea")
    with (tmp_path / "tea.txt").open() as opened, pytest.raises(ConfigError, match="binary mode"):
        extract(ExtractSetting("upload_file", upload_file=opened))
