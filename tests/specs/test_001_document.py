"""Spec 001, its introduction and `Document`: every test quotes the sentence it checks and says what
is expected.
"""

from __future__ import annotations

import inspect
import os
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import httpx2
import openpyxl
import pptx
import pytest

from lazyrag import DocNode, Document, IngestionWarning, Reranker, Retriever, register_loader
from lazyrag.errors import ConfigError, DatasetPathError, LoadError
from lazyrag.server.jobs import Jobs
from tests.scale import scale_work

CORPUS = Path(__file__).resolve().parents[2] / "cookbook" / "corpus"


class MyEmbeddingModule:
    """A model small enough for tests."""

    def __call__(self, text):
        """How often characters of 16 kinds occur in the text."""
        vector = [0.0] * 16
        for character in text:
            vector[ord(character) % 16] += 1.0
        return vector


def real(*names):
    """Real files of the sample corpus, by name."""
    return {name: (CORPUS / name).read_bytes() for name in names}


def by_path(docs):
    """Whole texts by path."""
    return {node.path: node.text for node in docs.get_nodes()}


def test_a_question_finds_the_text_that_answers_it(folder):
    """「首先会从一个庞大的文档集合中检索出相关的信息」

    Of a mixed collection the best node for a question is the one that holds the answer.
    """
    names = (
        "handbook/tools-and-vehicles.txt",
        "garden/irrigation-and-soil.md",
        "茶园/采摘须知.txt",
    )
    retriever = Retriever(Document(folder(real(*names))), "FineChunk", similarity="bm25", topk=1)
    [node] = retriever("How many kilograms does a three-wheeler carry?")
    assert node.path == "handbook/tools-and-vehicles.txt"
    assert "A three-wheeler carries 300 kilograms at most" in node.text


def test_the_flow_is_document_then_retriever_then_reranker(folder):
    """「根据上面的描述，我们将 RAG 抽象为如下流程」

    What a Document keeps goes through a Retriever and then a Reranker, as nodes from the first to
    the last.
    """
    docs = Document(folder({"茶.txt": "绿茶要低温存放。\n红茶要发酵，绿茶不要。\n咖啡要烘焙。"}))
    docs.create_node_group("block", transform=lambda d: d.split("\n"))
    found = Retriever(docs, "block", similarity="bm25_chinese")("绿茶")
    assert {node.text for node in found} == {"绿茶要低温存放。", "红茶要发酵，绿茶不要。"}
    kept = Reranker("KeywordFilter", required_keys=["存放"], exclude_keys=[])(found, query="绿茶")
    assert [node.text for node in kept] == ["绿茶要低温存放。"]


def test_what_was_found_goes_into_a_prompt(folder):
    """「这些检索到的信息随后会被用于指导生成过程」

    Generation comes later; until then a retriever gives what it found as one text, best first, for
    a prompt.
    """
    docs = Document(
        folder({"茶.txt": "红茶要发酵，红茶要烘干。\n咖啡要烘焙。\n绿茶要低温存放。\n红茶怕潮。"})
    )
    docs.create_node_group("block", transform=lambda d: d.split("\n"))
    retriever = Retriever(
        docs, "block", similarity="bm25_chinese", topk=2, output_format="content", join="\n---\n"
    )
    assert retriever("红茶怕什么") == "红茶怕潮。\n---\n红茶要发酵，红茶要烘干。"


def test_one_collection_mixes_formats(folder):
    """「可以是 DOCX，PDF，PPT 等富文本或者 Markdown 这样的纯文本」

    Word, PDF, Markdown, HTML and plain text files lie in one Document, each as one document of its
    own.
    """
    names = (
        "reports/2024-annual-report.docx",
        "reports/member-meeting-minutes-2025.pdf",
        "shop/brewing-guide.html",
        "workshop/packing-and-labels.md",
        "茶园/采摘须知.txt",
    )
    texts = by_path(Document(folder(real(*names))))
    assert list(texts) == sorted(names)
    for name, words in zip(
        names, ("Pond White", "Qin Ping", "Cold brew", "Best-before", "采摘工"), strict=True
    ):
        assert words in texts[name]


def test_records_of_a_database_come_in_through_a_loader(folder, tmp_path):
    """「可以是结构化的存储在数据库中的一条条记录」

    A loader registered for a database file makes every record a part of its document, which a
    question finds.
    """
    with closing(sqlite3.connect(tmp_path / "teas.db")) as database, database:
        database.execute("create table tea (name text, steps text)")
        database.executemany("insert into tea values (?, ?)", [("毛尖", "杀青"), ("红茶", "萎凋")])

    @register_loader(".db")
    class TeaLoader:
        def load(self, path):
            with closing(sqlite3.connect(path)) as database:
                for row, (name, steps) in enumerate(database.execute("select * from tea"), start=1):
                    yield DocNode(text=f"{name}：{steps}", metadata={"row": row})

    docs = Document(folder({"teas.db": (tmp_path / "teas.db").read_bytes()}))
    docs.create_node_group("record", transform=lambda d: d.split("\n\n"))
    [node] = Retriever(docs, "record", similarity="bm25_chinese")("哪种茶要萎凋？")
    assert node.text == "红茶：萎凋"
    assert [(location.kind, location.label) for location in node.locations] == [("row", "2")]


def test_loaders_extract_texts_and_tables(folder):
    """「我们需要特定的解析器来提取其中有用的文本，图片，表格，音频和视频等内容」

    The loaders extract running text and, row by row, the tables of Word documents and pages.
    """
    texts = by_path(
        Document(folder(real("reports/2024-annual-report.docx", "shop/会员与退换货.html")))
    )
    report = texts["reports/2024-annual-report.docx"]
    assert "The cooperative made more tea in 2024 than in any year since 2017" in report
    assert "Pond White | 1,040 | 1,260 | +21.2 %" in report
    rows = [line for line in texts["shop/会员与退换货.html"].split("\n") if " | " in line]
    assert any(row.count(" | ") >= 2 for row in rows)


@pytest.mark.parametrize("name", ["茶园.png", "采茶歌.mp3", "tour.mp4"])
def test_pictures_sound_and_video_are_reported(folder, name):
    """「我们需要特定的解析器来提取其中有用的文本，图片，表格，音频和视频等内容」

    A picture, sound or video file is named in the report with what to do about it, and the other
    files are in.
    """
    docs = Document(folder({name: b"\x00\x01", "a.txt": "绿茶"}))
    with pytest.warns(IngestionWarning, match="Skipped 1 of 2 files.*without a media reader"):
        assert by_path(docs) == {"a.txt": "绿茶"}
    [(path, reason)] = docs.last_report.skipped
    assert path == name
    assert "register_media_reader" in reason


def test_a_loader_is_what_extracts_a_format(folder):
    """「这些用于提取特定内容的解析器被抽象成 `DataLoader`」

    A class with load(path) that is registered for a suffix extracts files of a format of one's own.
    """

    @register_loader(".ini")
    class IniLoader:
        def load(self, path):
            return path.read_text(encoding="utf-8").replace("=", "：")

    assert by_path(Document(folder({"settings.ini": "温度=85"}))) == {"settings.ini": "温度：85"}


def test_a_function_is_a_loader_too(folder):
    """「这些用于提取特定内容的解析器被抽象成 `DataLoader`」

    A function of the path that is registered for a suffix is enough.
    """

    @register_loader(".ini")
    def read_ini(path):
        return path.read_text(encoding="utf-8").replace("=", "：")

    assert by_path(Document(folder({"settings.ini": "温度=85"}))) == {"settings.ini": "温度：85"}


def test_word_documents_are_built_in(folder):
    """「目前 `LazyLLM` 内置的 `DataLoader` 可以支持 DOCX，PDF，PPT，EXCEL 等常见的富文本内容提取」

    The text of a real Word document is extracted in the order of its body, with no loader
    registered.
    """
    text = by_path(Document(folder(real("handbook/员工安全手册.docx"))))[
        "handbook/员工安全手册.docx"
    ]
    parts = [
        "员工安全手册",
        "二、防火",
        "险情 | 第一步 | 第二步 | 找谁",
        "表中所列的人不在场时",
        "六、事故报告",
    ]
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)


def test_pdf_documents_are_built_in(folder):
    """「目前 `LazyLLM` 内置的 `DataLoader` 可以支持 DOCX，PDF，PPT，EXCEL 等常见的富文本内容提取」

    The text of a real PDF is extracted page after page, with no loader registered, and the pages
    are kept as places.
    """
    [node] = Document(folder(real("reports/2024年茶叶质量检验报告.pdf"))).get_nodes()
    pages = [location for location in node.locations if location.kind == "page"]
    assert [location.label for location in pages] == ["1", "2"]
    first, second = (node.text[location.start : location.end] for location in pages)
    assert "QS-24-M1-0405-A" in first
    assert second.strip()


def test_slides_and_sheets_are_read(folder):
    """「目前 `LazyLLM` 内置的 `DataLoader` 可以支持 DOCX，PDF，PPT，EXCEL 等常见的富文本内容提取」

    Slides and sheets are read with no loader registered, and are kept as places.
    """
    root = folder({"a.txt": "绿茶"})
    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = "采摘"
    deck.save(root / "slides.pptx")
    book = openpyxl.Workbook()
    book.active.title = "价格"
    book.active.append(["品名", "价格"])
    book.active.append(["绿茶", 180])
    book.save(root / "表格.xlsx")
    _, *nodes = Document(root).get_nodes()
    assert {
        node.path: (node.text, node.locations[0].kind, node.locations[0].label) for node in nodes
    } == {
        "slides.pptx": ("采摘", "slide", "1"),
        "表格.xlsx": ("价格\n品名 | 价格\n品名: 绿茶; 价格: 180", "sheet", "价格"),
    }


@pytest.mark.parametrize("name", ["slides.pptx", "slides.ppt", "表格.xlsx", "表格.xls"])
def test_what_cannot_be_read_is_reported(folder, name):
    """「目前 `LazyLLM` 内置的 `DataLoader` 可以支持 DOCX，PDF，PPT，EXCEL 等常见的富文本内容提取」

    A damaged file of these formats, and PPT of before 2007, is named in the report with what to do;
    the rest is in.
    """
    docs = Document(folder({name: b"PK\x03\x04", "a.txt": "绿茶"}))
    with pytest.warns(IngestionWarning, match="1 of 2 files failed to load"):
        assert by_path(docs) == {"a.txt": "绿茶"}
    [failure] = docs.last_report.failed
    assert failure.path == name
    assert isinstance(failure.error, LoadError)
    assert re.search("Save it |Save the file as .pptx", str(failure.error))


def test_a_document_keeps_what_the_loader_extracted(folder):
    """「使用 `DataLoader` 提取到的文档内容会被存储在 `Document` 中」

    The root node of a text file holds the file's text, character by character.
    """
    text = "第一段。\n\n第二段，with English,\ttabs and  spaces.\n"
    assert by_path(Document(folder({"a.txt": text}))) == {"a.txt": text}


def test_a_document_loads_a_local_folder(folder):
    """「`Document` 支持本地目录加载及通过API上传两种方式实现文档解析」

    All files of a local folder and of the folders in it are loaded.
    """
    docs = Document(folder({"a.txt": "一", "b/c.txt": "二", "b/d/e.md": "三"}))
    assert by_path(docs) == {"a.txt": "一", "b/c.txt": "二", "b/d/e.md": "三"}


def test_the_sample_makes_a_document(folder):
    """「用户可以直接用以下语句从本地目录构建一个文档集合 `docs`」

    The sample makes a Document that answers by its embedding: the line that equals the query comes
    first.
    """
    path = folder({"a.txt": "绿茶低温存放\n红茶发酵\ncold brew"})
    docs = Document(dataset_path=path, embed=MyEmbeddingModule(), manager=False)
    docs.create_node_group("line", transform=lambda d: d.split("\n"))
    best = Retriever(docs, "line")("红茶发酵")[0]
    assert best.text == "红茶发酵"
    assert best.score == pytest.approx(1.0)


def test_dataset_path_says_which_folder(folder):
    """「`dataset_path`：指定从哪个文件目录构建」

    Only the files beneath the folder that is named are in the Document, not those beside it.
    """
    path = folder({"in/a.txt": "里面", "out/b.txt": "外面"})
    assert by_path(Document(dataset_path=str(path / "in"))) == {"a.txt": "里面"}


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    """「`dataset_path`：指定从哪个文件目录构建」

    A path that does not exist is a configuration mistake, refused at once and by name.
    """
    with pytest.raises(DatasetPathError, match="does not exist") as caught:
        Document(dataset_path=tmp_path / "missing")
    assert isinstance(caught.value, ConfigError)
    assert "missing" in str(caught.value)


def test_embed_is_the_model_of_semantic_search(folder):
    """「`embed`：期望在语义检索中使用的向量模型」

    The callable given as embed decides the order of a search by embedding: another model gives
    another order.
    """
    path = folder({"a.txt": "long long text", "b.txt": "tea"})
    by_length = Document(path, embed=lambda text: [1.0, float(len(text) > 5)])
    by_word = Document(path, embed=lambda text: [1.0, float("tea" in text)])
    query = "a tea that is longer"
    assert Retriever(by_length, "lazyllm_root")(query)[0].path == "a.txt"
    assert Retriever(by_word, "lazyllm_root")(query)[0].path == "b.txt"


def test_several_models_are_given_by_name(folder):
    """「如果需要对文本生成多个向量模型，此处需要通过字典的方式指定，key 标识 embedding 的名字，
    value 为对应的 embedding 模型」

    With a dict every node has one vector for each key, made by that key's model.
    """
    embed = {"letters": MyEmbeddingModule(), "length": lambda text: [float(len(text)), 1.0]}
    docs = Document(folder({"a.txt": "绿茶低温存放"}), embed=embed)
    [node] = Retriever(docs, "lazyllm_root")("绿茶")
    assert set(node.embeddings) == {"letters", "length"}
    assert node.embeddings["length"].tolist() == [6.0, 1.0]
    assert node.embeddings["letters"].tolist() == MyEmbeddingModule()("绿茶低温存放")


def test_several_models_without_names_are_refused(folder):
    """「如果需要对文本生成多个向量模型，此处需要通过字典的方式指定」

    A list of models, which have no names, is a configuration mistake.
    """
    with pytest.raises(ConfigError, match="callable"):
        Document(folder({"a.txt": "茶"}), embed=[MyEmbeddingModule(), MyEmbeddingModule()])


def test_manager_is_off_by_default(folder):
    """「`manager`：是否使用 ui 界面会影响 `Document` 内部的处理逻辑，默认为 `False`」

    manager is False where it is left out, and False given by hand makes the same Document.
    """
    assert inspect.signature(Document).parameters["manager"].default is False
    path = folder({"a.txt": "茶"})
    assert by_path(Document(path)) == by_path(Document(path, manager=False)) == {"a.txt": "茶"}


def test_manager_serves_the_document(folder):
    """「`manager`：是否使用 ui 界面会影响 `Document` 内部的处理逻辑，默认为 `False`」

    manager=True serves the Document over HTTP until it is closed; it answers in the program as it
    did.
    """
    with Document(folder({"a.txt": "茶"}), manager=True) as docs:
        assert httpx2.get(f"{docs.status().url}/healthz", timeout=60).status_code == 200
        assert by_path(docs) == {"a.txt": "茶"}


def test_one_machine_needs_no_launcher(folder):
    """「`launcher`：启动服务的方式，集群应用会用到这个参数，单机应用可以忽略」

    Left out or None, launcher changes nothing on one machine.
    """
    path = folder({"a.txt": "茶"})
    assert by_path(Document(path)) == by_path(Document(path, launcher=None)) == {"a.txt": "茶"}


@pytest.mark.slow
def test_launcher_says_where_the_service_ingests(folder, tmp_path, monkeypatch):
    """「`launcher`：启动服务的方式，集群应用会用到这个参数，单机应用可以忽略」

    The launcher starts what ingests for the Document and its service, here a process, which embeds
    a text that is added. Nodes are what they are without one.
    """
    monkeypatch.setenv("SCALE_LOG", str(tmp_path))
    with Document(
        folder({"a.txt": "茶"}), embed=scale_work.embed, manager=True, launcher=1
    ) as docs:
        docs.activate_group("FineChunk", embed_keys=docs.reader.embed_keys)
        job = Jobs(docs).submit("add_texts", {"texts": {"b": "coffee"}}, key="b")
        while Jobs(docs).get(job.id).state in ("WAITING", "WORKING"):
            time.sleep(0.02)
        assert by_path(docs) == {"a.txt": "茶", "b": "coffee"}
    workers = {int(line.split()[0]) for line in (tmp_path / "embed").read_text().splitlines()}
    assert len(workers) == 1
    assert os.getpid() not in workers
