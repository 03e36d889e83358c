"""LazyLLM's programs after a change of their import: the rows of docs/coming-from.md."""

from __future__ import annotations

import pytest
import tiktoken
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import lazyrag
from lazyrag.errors import ConfigError, LazyRAGError, UnknownKeywordError
from lazyrag.interop import lazyllm
from lazyrag.interop.lazyllm import (
    ActionModule,
    CharacterSplitter,
    CodeSplitter,
    ContextRetriever,
    DataType,
    DocField,
    DocNode,
    Document,
    KeywordFilter,
    MetadataMode,
    ModuleReranker,
    NodeGroup,
    NodeTransform,
    PriorityRetriever,
    RecursiveSplitter,
    Reranker,
    Retriever,
    SentenceSplitter,
    TempDocRetriever,
    WeightedRetriever,
    XMLSplitter,
    _0,
    _1,
    bind,
    parallel,
    pipeline,
)

TEXTS = {
    "green.txt": "Green tea is steeped at 80 degrees.\nIt is not fermented.\nGreen tea keeps a year.",
    "black.txt": "Black tea is steeped in boiling water.\nBlack tea is fermented.",
    "coffee.txt": "Coffee is roasted.",
}


@pytest.fixture
def folder(tmp_path):
    """A folder of three files."""
    path = tmp_path / "drinks"
    path.mkdir()
    for name, text in TEXTS.items():
        (path / name).write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def docs(folder):
    """Its Document, with its lines as a group."""
    with Document(str(folder), embed=embed) as made:
        made.create_node_group("line", transform=lambda text: text.split("\n"))
        yield made


def embed(text):
    """No model: it counts four words."""
    return [float(text.lower().count(word)) for word in ("green", "black", "tea", "coffee")] + [0.1]


def by_length(query, documents, top_n):
    """A rerank model: short texts first."""
    order = sorted(range(len(documents)), key=lambda index: len(documents[index]))
    return [(index, 1.0 / (rank + 1)) for rank, index in enumerate(order[:top_n])]


def test_the_program_of_the_readme(docs):
    """Its pipeline of two retrievers, a reranker, a formatter and a model runs as it is there."""
    docs.create_node_group(
        name="sentences", transform=lazyllm.SentenceSplitter, chunk_size=1024, chunk_overlap=100
    )
    with lazyllm.pipeline() as ppl:
        with parallel().sum as ppl.prl:
            prl.retriever1 = Retriever(  # noqa: F821  LazyLLM's programs write it so
                docs, group_name="sentences", similarity="cosine", topk=3
            )
            prl.retriever2 = Retriever(docs, "CoarseChunk", "bm25_chinese", 0.003, topk=3)  # noqa: F821

        ppl.reranker = Reranker("ModuleReranker", model=by_length, topk=1) | bind(query=ppl.input)
        ppl.formatter = (
            lambda nodes, query: {
                "context_str": "".join([node.get_content() for node in nodes]),
                "query": query,
            }
        ) | bind(query=ppl.input)
        ppl.llm = lambda prompt: f"{prompt['query']} {prompt['context_str']}"

    rag = ActionModule(ppl)
    rag.start()
    assert rag("coffee?") == "coffee? Coffee is roasted."


def test_filters_reach_the_first_step(folder):
    """The keywords of a call are those of the first step, as in the cookbook."""
    fields = {"season": DocField(data_type=DataType.VARCHAR, max_size=32, default_value=" ")}
    docs = Document(str(folder), doc_fields=fields)
    with pipeline() as ppl:
        ppl.retriever = Retriever(docs, "MediumChunk", "bm25", topk=3)
        ppl.paths = lambda nodes: [node.path for node in nodes]
    assert set(ppl("tea")) == {"green.txt", "black.txt"}
    assert ppl("tea", filters={"file_name": ["black.txt"]}) == ["black.txt"]


def test_flows():
    """Results are several arguments, or one; placeholders and outputs are bound."""
    assert parallel(str.upper, str.title)("tea") == ("TEA", "Tea")
    assert pipeline(parallel(len, str.upper), lambda size, text: f"{text} {size}")("tea") == "TEA 3"
    assert parallel(str.upper, str.title).aslist("tea") == ["TEA", "Tea"]
    with parallel().asdict as both:
        both.upper = str.upper
        both.size = len
    assert both("tea") == {"upper": "TEA", "size": 3}
    with pipeline() as ppl:
        ppl.words = lambda query: query["text"].split()
        ppl.last = lambda words: words[-1]
        ppl.all = bind(lambda *values: values, ppl.input["text"], _0, ppl.output("words"))
    assert ppl({"text": "green tea"}) == ("green tea", "tea", ["green", "tea"])
    assert ((lambda first, second: first - second) | bind(_1, _0))(1, 5) == 4
    with pipeline() as nested:  # the input of the outer one, in a thread of the inner one
        nested.both = parallel(bind(lambda *values: values, _0, nested.input), str.upper).aslist
    assert nested("tea") == [("tea", "tea"), "TEA"]
    with pytest.raises(AttributeError, match="no step"):
        _ = ppl.firts
    with pytest.raises(ConfigError, match="step of the pipeline"):
        ppl.output("none")


def test_a_document_starts_and_stops(folder):
    """It ingests, activates groups, walks between them and closes."""
    docs = Document(str(folder))
    assert isinstance(docs, lazyrag.Document)
    docs.create_node_group("line", transform=lambda text: text.split("\n"))
    docs.activate_groups(groups=["line"])
    docs.activate_group("CoarseChunk")
    assert docs.start() is docs
    assert len(docs.documents()) == 3
    lines = docs.get_nodes("line")
    [root] = docs.find_parent(lazyllm.LAZY_ROOT_NAME)(lines[:1])
    assert docs.find_children("line")([root])[0] == lines[0]
    group = docs.node_groups["line"]
    assert isinstance(group, NodeGroup)
    assert group.parent == lazyllm.LAZY_ROOT_NAME
    assert group.user_transform("a\nb") == ["a", "b"]
    docs.stop()
    with pytest.raises(lazyrag.LazyRAGError, match="closed"):
        docs.get_nodes("line")


def test_a_flat_store_conf(folder, tmp_path):
    """One store by its type, as LazyLLM's earlier releases wrote it."""
    path = tmp_path / "tea.db"
    with Document(str(folder), store_conf={"type": "map", "kwargs": {"uri": str(path)}}) as docs:
        docs.start()
    assert path.exists()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda docs: Retriever(docs, "FineChunk", priority="hihg"), "priority"),
        (lambda docs: Retriever(docs, "FineChunk", weight=-1), "weight"),
        (lambda docs: SentenceSplitter(100, 10, 5), "sizes"),
        (lambda docs: bind(str.upper, pipeline().input)("tea"), "running pipeline"),
    ],
)
def test_mistakes_name_their_argument(docs, make, words):
    """At once, not by missing hits or a KeyError."""
    with pytest.raises(LazyRAGError, match=words):
        make(docs)


def test_metadata_modes(docs):
    """A text may be read with its metadata, but for the keys that are excluded."""
    node = DocNode(text="Pick it.", metadata={"author": "Li", "date": "2024"})
    node.excluded_embed_metadata_keys = ["author"]
    node.excluded_llm_metadata_keys = ["date"]
    assert node.get_metadata_str() == "author: Li\ndate: 2024"
    assert node.get_metadata_str(mode=MetadataMode.EMBED) == "date: 2024"
    assert node.get_metadata_str(MetadataMode.NONE) == ""
    assert node.get_text(MetadataMode.LLM) == "author: Li\n\nPick it."
    assert node.get_content() == node.get_text() == "Pick it."
    [hit, *_] = Retriever(docs, "line", "bm25")("coffee")
    assert isinstance(hit, DocNode)
    assert hit.similarity_score == hit.score > 0
    assert hit.get_text(MetadataMode.ALL) == "Coffee is roasted."
    assert hit.parent.path == "coffee.txt"


def test_splitters_have_defaults():
    """Defaults are those of one class, and explicit arguments take precedence."""
    CharacterSplitter.set_default(chunk_size=4, overlap=0, separator=",")
    try:
        assert CharacterSplitter.get_default()["chunk_size"] == 4
        assert CharacterSplitter().split_text("green tea,coffee") == ["green tea,", "coffee"]
        assert CharacterSplitter(chunk_size=9).split_text("green tea,coffee") == [
            "green tea,coffee"
        ]
        assert RecursiveSplitter().chunk_size == 1024
    finally:
        CharacterSplitter.reset_default()
    assert CharacterSplitter().chunk_size == 1024
    with pytest.raises(UnknownKeywordError, match="keep_trace"):
        XMLSplitter(keep_trace=True)


def test_splitters_count_by_tokenizers():
    """Sizes are those of a vocabulary of tiktoken, or of a tokenizer of Hugging Face."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding("bytes", pat_str=".", mergeable_ranks=ranks, special_tokens={})
    splitter = SentenceSplitter(chunk_size=8, chunk_overlap=0)
    assert splitter.from_tiktoken_encoder(encoding) is splitter
    assert splitter.split_text("Tea. Coffee.") == ["Tea. ", "Coffee."]
    words = Tokenizer(WordLevel({"[UNK]": 0}, "[UNK]"))
    words.pre_tokenizer = Whitespace()
    splitter = SentenceSplitter(chunk_size=4, chunk_overlap=0).from_huggingface_tokenizer(words)
    assert splitter.split_text("Green tea keeps. Coffee.") == ["Green tea keeps. ", "Coffee."]
    assert splitter.split_text("Tea. Coffee.", metadata_size=2) == ["Tea. ", "Coffee."]


def test_splitters_take_functions():
    """Functions split in the place of separators, until they are cleared."""
    splitter = CharacterSplitter(chunk_size=4, overlap=0, separator=",")
    text = "green tea;coffee,milk tea"
    plain = splitter.split_text(text)
    splitter.set_split_fns(lambda text, separator: text.split(separator))
    assert splitter.split_text("green tea,coffee") == ["green tea,", "coffee"]
    splitter.set_split_fns([lambda text: text.split(";"), lambda text: text.split(",")])
    assert splitter.split_text(text) == ["green tea;", "coffee,", "milk tea"]
    splitter.clear_split_fns()
    assert splitter.split_text(text) == plain


def test_a_group_of_a_splitter_of_functions(docs):
    """A splitter makes the same group as that of the package, and one of functions its own."""
    docs.create_node_group("part", transform=SentenceSplitter, chunk_size=16, chunk_overlap=0)
    docs.create_node_group(
        "part", transform=lazyrag.SentenceSplitter, chunk_size=16, chunk_overlap=0
    )
    splitter = CharacterSplitter(chunk_size=14, overlap=0)
    splitter.set_split_fns([lambda text: text.split("\n")])
    docs.create_node_group("split", transform=splitter, parent="CoarseChunk")
    assert docs.get_nodes("split")[0].text == ("Black tea is steeped in boiling water.\n")


def test_a_code_splitter_is_that_of_the_file_type(docs):
    """It makes the splitter of a format or of a language."""
    assert type(CodeSplitter(filetype="xml")) is XMLSplitter
    [chunk] = CodeSplitter(chunk_size=100, overlap=0, filetype="json").split_text('{"tea": 80}')
    assert (chunk.text, chunk.metadata["filetype"]) == ('{"tea": 80}', "json")
    assert CodeSplitter(filetype="python").language == "python"
    docs.create_node_group("xml", transform=CodeSplitter, filetype="xml")
    assert type(docs.node_groups["xml"].user_transform) is XMLSplitter


def groups(nodes):
    """Names of their groups."""
    return [node.group for node in nodes]


def test_weights_and_priorities(docs):
    """Weights say how many nodes of each retriever, priorities in which order."""
    with WeightedRetriever(topk=3) as weighted:
        weighted.lines = Retriever(docs, "line", "bm25", weight=2)
        weighted.chunks = Retriever(docs, "MediumChunk", "bm25", weight=1)
    weighted.start()
    assert groups(weighted("tea")) == ["line", "line", "MediumChunk"]
    assert groups(weighted("tea", topk=2)) == ["line", "line"]
    weighted.lines.weight = 0
    assert groups(weighted("tea")) == ["MediumChunk", "MediumChunk"]
    ordered = PriorityRetriever(
        Retriever(docs, "line", "bm25", topk=2, priority="low"),
        Retriever(docs, "MediumChunk", "bm25", priority=Retriever.Priority.high),
        topk=2,
    )
    assert groups(ordered("tea")) == ["MediumChunk", "MediumChunk"]
    assert groups(ordered("tea", topk=3)) == ["MediumChunk", "MediumChunk", "line", "line"]
    ignoring = PriorityRetriever(Retriever(docs, "line", "bm25", priority="ignore"))
    assert ignoring("tea") == []


def test_files_and_texts_with_the_query(folder):
    """Temporary retrievers search what they are passed, in groups of their own."""
    retriever = TempDocRetriever(output_format="content")
    retriever.create_node_group("line", transform=lambda text: text.split("\n"))
    retriever.add_subretriever("CoarseChunk", topk=1).add_subretriever("line", topk=1)
    found = retriever([str(folder / "green.txt"), str(folder / "coffee.txt")], "roasted coffee")
    assert found == ["Coffee is roasted.", "Coffee is roasted."]
    [hit, *_] = TempDocRetriever(embed=embed)(str(folder / "green.txt"), "green tea")
    assert hit.path == "green.txt"
    assert ContextRetriever(output_format="content")("Green tea.", "tea") == ["Green tea."]
    [node, *_] = ContextRetriever()(["大学之道，在明明德。", "学而时习之。"], "大学之道")
    assert node.global_metadata["file_name"] == "context-1"


def test_rerankers(docs):
    """Both functions of the specification, and rerankers whose batch mode is that of their
    parameter.
    """
    nodes = Retriever(docs, "line", "bm25")("tea")
    assert ModuleReranker(nodes, by_length, "tea", topk=1)[0].text == "Black tea is fermented."
    assert KeywordFilter(nodes[0], ["tea"], ["iced"]) == nodes[0]
    assert KeywordFilter(nodes[0], ["coffee"], []) is None

    @lazyllm.tools.rag.register_reranker(replace=True)
    def reversed_order(nodes, **kwargs):
        return nodes[::-1]

    @lazyllm.tools.rag.register_reranker(replace=True)
    def about_black(node, **kwargs):
        return node if "Black" in node.text else None

    assert Reranker("reversed_order")(nodes) == nodes[::-1]
    assert {node.path for node in Reranker("about_black")(nodes)} == {"black.txt"}


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("OnlineChatModule", "any callable, or lazyrag.HttpChatModel"),
        ("TrainableModule", "any callable, or lazyrag.HttpChatModel"),
        ("WebModule", "lazyrag serve"),
        ("warp", "Python"),
        ("SchemaExtractor", "docs.tables"),
        ("register_index", "register_similarity"),
    ],
)
def test_what_does_not_exist_says_what_takes_its_place(name, instead):
    """As docs/coming-from.md does."""
    with pytest.raises(AttributeError, match=rf"{name} is not in .*: .*{instead}"):
        getattr(lazyllm, name)
    with pytest.raises(AttributeError, match="has no attribute 'no_such'"):
        _ = lazyllm.no_such


@pytest.mark.parametrize("filetype", ["py", "python", "rs", "js", None])
def test_code_of_a_language_is_named_by_it_or_by_its_suffix(filetype):
    """And code of no name is split by that of its file."""
    assert isinstance(lazyllm.CodeSplitter(filetype=filetype), lazyllm.GeneralCodeSplitter)


def test_a_similarity_and_a_transform(docs):
    """Functions and classes of a user's own run as on LazyLLM's pages."""

    @lazyllm.tools.rag.register_similarity(mode="text", batch=True, replace=True)
    def equal(query, nodes, **kwargs):
        return [(node, 1.0) for node in nodes]

    class Words(NodeTransform):
        """Words."""

        def forward(self, node, **kwargs):
            return [DocNode(text=word) for word in node.get_text().split()]

    docs.create_node_group("word", transform={"f": Words}, parent="line")
    assert len(Retriever(docs, "word", similarity="equal", topk=4)("tea")) == 4
    with pytest.raises(ConfigError, match="must override transform"):

        class Nothing(NodeTransform):
            """A transform without its method."""
