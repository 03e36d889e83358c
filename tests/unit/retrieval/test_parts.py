"""Questions with several parts: every part gets hits, and nothing else changes."""

from __future__ import annotations

import pytest

from lazyrag import DataType, DocField, Document, Hit, RAGPipeline, Retriever
from lazyrag.errors import ConfigError
from lazyrag.generation import ContextBuilder
from lazyrag.retrieval import PartsRetriever, QueryRewriter, register_similarity
from lazyrag.retrieval.base import hits_of
from lazyrag.retrieval.hybrid import default_retriever
from lazyrag.retrieval.inferring import inferred_values
from tests.shelf import Letters

QUESTION = "How is the oven cleaned and where is the ladder?"
TEXTS = {f"oven {number}": f"The oven is cleaned, oven {number}." for number in range(6)}
TEXTS |= {f"ladder {number}": f"A ladder is in barn {number}, with nails." for number in range(6)}
LABELS = {"labels": DocField(DataType.ARRAY, element_type=DataType.VARCHAR)}


@pytest.fixture(params=[None, Letters()], ids=["keyword", "hybrid"])
def docs(request):
    """Texts that match one part better than others match the other."""
    docs = Document(embed=request.param, doc_fields=LABELS)
    docs.add_texts(TEXTS, {name: {"labels": [name[:4]]} for name in TEXTS})
    return docs


def paths(nodes):
    """The documents of some nodes."""
    return [node.path for node in nodes]


def things(nodes):
    """What some nodes are about."""
    return {node.path.split()[0] for node in nodes}


def test_each_part_has_a_hit(docs):
    """The better answers of one part do not take all places."""
    assert things(docs.search(QUESTION, 3, parts="off")) == {"oven"}
    found = docs.search(QUESTION, 3)
    assert things(found) == {"oven", "ladder"}
    assert found[0] == docs.search(QUESTION, 1, parts="off")[0]
    assert [node.score for node in found] == sorted((node.score for node in found), reverse=True)
    assert len(set(paths(found))) == 3


def test_a_question_without_parts_is_searched_as_before(docs):
    """Nodes, scores and stages are the same."""
    question = "Where are oven and ladder?"
    found, plain = (docs.search(question, parts=parts) for parts in ("auto", "off"))
    assert [(node.uid, node.score) for node in found] == [(node.uid, node.score) for node in plain]
    retriever = default_retriever(docs, "MediumChunk")
    plain_retriever = default_retriever(docs, "MediumChunk", parts="off")
    explained = retriever.explain(question)
    assert explained.parts == {}
    assert "covered by" not in str(explained)
    assert [stage.name for stage in explained.stages] == [
        stage.name for stage in plain_retriever.explain(question).stages
    ]


def test_parts_must_be_auto_or_off(docs):
    """A truth value would be taken for one of them."""
    with pytest.raises(ConfigError, match="parts"):
        docs.search(QUESTION, parts=False)


def test_explain_shows_the_hits_of_each_part(docs):
    """And says which part nothing covers."""
    retriever = default_retriever(docs, "MediumChunk", 3)
    explanation = retriever.explain(QUESTION)
    first, second = explanation.parts
    ranks = explanation.parts[second]
    assert {explanation[rank - 1].path.split()[0] for rank in ranks} == {"ladder"}
    assert set(explanation.parts[first]) == {1, 2, 3} - set(ranks)
    assert {"question", "part 1", "part 2"} <= {stage.name for stage in explanation.stages}
    assert explanation.to_dict()["parts"] == {first: [*explanation.parts[first]], second: [*ranks]}
    for hit in explanation:
        assert sum(hit.contributions.values()) == pytest.approx(hit.score)
    nothing = retriever.explain("How is the oven cleaned and who repairs the roof?")
    assert nothing.parts["who repairs the roof?"] == ()
    assert "nothing     who repairs the roof?" in str(nothing)


def test_why_not_has_a_reason_for_each_part(docs):
    """One for the question, and one for each of its parts."""
    retriever = default_retriever(docs, "MediumChunk", 2)
    found = retriever(QUESTION)
    assert retriever.why_not(found[1].uid, QUESTION).rank == 2
    others = [node for node in docs.get_nodes("MediumChunk") if node not in found]
    reasons = [retriever.why_not(node.uid, QUESTION) for node in others]
    assert all(reason.cause in ("inputs", "dropped", "depth") for reason in reasons)


def test_filters_hold_for_each_part(docs):
    """No part finds what the filter hides."""
    only_ladders = {"labels": ["ladd"]}
    assert things(docs.search(QUESTION, filters=only_ladders)) == {"ladder"}
    assert things(docs.search(QUESTION, filters={"labels": ["oven"]})) == {"oven"}


def test_a_restricted_document_equals_one_of_the_visible_texts(docs):
    """Hidden texts change no hit, score or coverage."""
    alone = Document(embed=Letters() if docs.reader.embed_keys else None, doc_fields=LABELS)
    alone.add_texts({name: text for name, text in TEXTS.items() if "oven" in name})
    view = docs.restricted({"labels": ["oven"]})
    assert [(node.path, node.score) for node in view.search(QUESTION)] == [
        (node.path, node.score) for node in alone.search(QUESTION)
    ]
    explanation = default_retriever(view, "MediumChunk").explain(QUESTION)
    assert explanation.parts["where is the ladder?"] == ()


def test_documents_are_inferred_for_each_part():
    """Each part prefers the documents that it names itself."""
    docs = Document()
    names = [f"{company} {year}" for company in ("Acme", "Bond") for year in (2017, 2018, 2019)]
    docs.add_texts(dict.fromkeys(names, "The margins of sales grew."))
    question = "How do the margins of Acme in 2018 and Bond in 2019 differ?"
    assert {"Acme 2018", "Bond 2019"} <= set(paths(docs.search(question, 3)))
    values = inferred_values(default_retriever(docs, "MediumChunk"), question)
    assert set(values["name"]) == {"Acme", "Bond"}
    assert set(values["year"]) == {"2018", "2019"}


def test_a_model_may_split(docs):
    """It is asked once a question."""
    asked = []

    def write(prompt):
        asked.append(prompt)
        return "- the oven\n- the ladder"

    retriever = PartsRetriever(
        Retriever(docs, "MediumChunk", "bm25"), QueryRewriter(write, task="split")
    )
    assert things(retriever("Two things, please: oven, ladder", topk=3)) == {"oven", "ladder"}
    assert len(asked) == 1


def test_smaller_scores_that_are_better_are_left_as_they_are(docs):
    """Their order could not be kept."""

    def find_rare(query, node, **_):
        return float("ladder" not in node.text)

    plain = Retriever(docs, "MediumChunk", find_rare, topk=2)
    assert plain.higher_is_better
    register_similarity(find_rare, name="rare", descend=False, replace=True)
    descending = Retriever(docs, "MediumChunk", "rare", topk=2)
    assert PartsRetriever(descending).queries(QUESTION) == [QUESTION]
    assert paths(PartsRetriever(descending)(QUESTION)) == paths(descending(QUESTION))


def test_the_limit_is_the_retrievers_own(docs):
    """It holds for the merged hits."""
    retriever = PartsRetriever(Retriever(docs, "MediumChunk", "bm25", topk=2))
    assert len(retriever(QUESTION)) == 2
    assert len(retriever(QUESTION, topk=5)) == 5


@pytest.mark.parametrize("refine", [True, False])
def test_the_context_has_passages_of_each_part(refine):
    """Where there is no room for all hits, sentences of each part are in it."""
    docs = Document()
    others = " ".join(f"Sentence {number} is about the weather." for number in range(9))
    docs.add_texts({name: f"{text} {others}" for name, text in TEXTS.items()})
    builder = ContextBuilder(counter="utf8", refine=refine)
    hits = default_retriever(docs, "MediumChunk", 4)(QUESTION)
    context = builder.build(QUESTION, hits_of(hits), 400)
    assert context.metadata["dropped"]["tokens"]
    assert {hit.source.split()[0] for hit in context.sources} == {"oven", "ladder"}
    for hit in context.sources:
        assert hit.source.split()[0] in hit.text


def test_parts_take_turns_for_room():
    """Three good sentences for one part leave room for the other."""
    oven = "The oven is cleaned in May. The oven is cleaned by Ann. The oven is cleaned with soap."
    texts = [oven, "Hammers and ladders are in the barn."]
    hits = [Hit(name, text, 1.0, name) for name, text in zip("ab", texts, strict=True)]
    context = ContextBuilder(counter="utf8", template="{sources}").build(QUESTION, hits, 34)
    assert [hit.id for hit in context.sources] == ["a", "b"]


def test_pipelines_search_parts():
    """`RAGPipeline.over` without settings has the default retriever."""
    docs = Document()
    docs.add_texts(TEXTS)
    pipeline = RAGPipeline.over(docs, "MediumChunk", generator=lambda _: "In the barn [2].")
    context = pipeline.sync.retrieve_with_context(QUESTION, top_k=3)
    assert {hit.source.split()[0] for hit in context.sources} == {"oven", "ladder"}
