"""What people see of a result: one line in a terminal, HTML that opens the quoted text in a
notebook.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

from lazyrag import (
    Answer,
    Citation,
    DataType,
    DocField,
    Document,
    GenerationResult,
    Hit,
    RAGContext,
    RetrievalResult,
    Retriever,
)

HOSTILE = "<script>alert(1)</script> & 'water'"


def make_answer(
    text: str = "80 degrees [1].", snippet: str = "Water of 80 degrees", source: str = "tea.md"
) -> Answer:
    """An answer with one citation."""
    hit = Hit("n", snippet, 0.9, source, metadata={"location": "page 3"})
    context = RAGContext("How hot?", f"[1] {snippet}", RetrievalResult.from_hits([hit]), 9)
    citation = Citation(1, source, "d", 1, snippet, "n", "page 3")
    return Answer("How hot?", text, (citation,), context, GenerationResult(text))


def make_documents() -> Document:
    """Two texts, one of them hostile."""
    docs = Document(doc_fields={"topic": DocField(DataType.VARCHAR)})
    docs.create_node_group("line", transform=lambda text: text.splitlines())
    docs.create_node_group("word", transform=lambda text: text.split(), parent="line")
    docs.add_texts(
        {"tea": f"Green tea {HOSTILE}\nBlack tea", "<b>bold</b>": "coffee"},
        {"tea": {"topic": "tea"}},
    )
    return docs


class Tags(HTMLParser):
    """Collects the tags of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Collect one."""
        self.tags.add(tag)


def test_an_answer_is_its_text_with_footnotes() -> None:
    """``str()`` is what a person reads; ``repr()`` is one line."""
    answer = make_answer()
    assert str(answer) == "80 degrees [1].\n\n[1] tea.md, page 3: “Water of 80 degrees”"
    assert repr(answer) == "<Answer '80 degrees [1].': 1 citation>"


def test_reprs_are_one_line_of_at_most_200_characters() -> None:
    """Of long texts, too."""
    answer = make_answer("80 degrees\n" * 500, "Water\n" * 500)
    docs = make_documents()
    retriever = Retriever(docs, "line", similarity="bm25", topk=2)
    explanation = retriever.explain("tea")
    report = docs.sync()
    many = [
        answer,
        answer.context,
        answer.context.sources,
        answer.context.sources[0],
        docs,
        retriever,
        explanation,
    ]
    for one in [*many, report, *retriever("tea")]:
        assert re.fullmatch(r".{10,200}", repr(one)), repr(one)
    assert repr(retriever) == "Retriever('line', similarity='bm25', topk=2)"
    assert "2 documents" in repr(docs)
    view = docs.restricted({"topic": "tea"})
    assert "1 document" not in repr(view)
    docs.close()
    for closed in (docs, view):
        assert repr(closed) == "<Document 'default', closed>"
        assert "closed" in closed._repr_html_()


def test_notebooks_show_escaped_html() -> None:
    """No text of a file or a model becomes a tag."""
    docs = make_documents()
    retriever = Retriever(docs, "line", similarity="bm25", topk=2)
    answer = make_answer(HOSTILE, HOSTILE, HOSTILE)
    nodes = retriever("tea")
    shown = [
        answer,
        answer.context.sources,
        docs,
        docs.restricted({"topic": "tea"}),
        docs.last_report,
        *nodes,
    ]
    for one in [*shown, retriever.explain(HOSTILE)]:
        tags = Tags(one._repr_html_()).tags
        assert tags
        assert tags <= {"p", "b", "ul", "li", "details", "summary", "blockquote", "pre"}


def test_a_citation_opens_the_quoted_text() -> None:
    """Folded under its number, file and location."""
    html = make_answer()._repr_html_()
    folded = re.search(
        r"<details><summary>(.*?)</summary><blockquote[^>]*>(.*?)</blockquote></details>", html
    )
    assert folded is not None
    assert folded.groups() == ("[1] tea.md, page 3", "Water of 80 degrees")


def test_a_document_shows_its_tree_of_groups() -> None:
    """Each group under its parent, with its nodes where it is built."""
    docs = make_documents()
    docs.get_nodes(group="word")
    html = docs._repr_html_()
    assert "<li>line: 3 nodes<ul><li>word: 8 nodes</li></ul></li>" in html
