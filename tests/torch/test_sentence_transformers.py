"""The sentence-transformers adapters, and ours beside that package, on small random models made
here.

Needs the extras sentence-transformers and onnx: ``pytest tests/torch``. Nothing is fetched.
"""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedTokenizerFast,
)

from lazyrag import OnnxEmbedder
from lazyrag.errors import ConfigError, EmbeddingError, RetrievalError
from lazyrag.models import (
    Embedder,
    OnnxCrossEncoder,
    RerankModel,
    SentenceTransformerCrossEncoder,
    SentenceTransformerEmbedder,
)
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.models.local import local_rerank_model
from lazyrag.models.onnx.pooling import POOLINGS, pooled
from tests.tiny_models import VOCABULARY, write_tokenizer

# of torch and transformers, which are not ours to quieten
pytestmark = pytest.mark.filterwarnings("ignore")

MAX_TOKENS = 16
TEXTS = ["green tea", "late frost early harvest", "a b c d e f a b c d", "cup", "tea " * 30]
SHORT = TEXTS[:4]


INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def write_bert(folder, make, names=INPUTS, **config):
    """A small random model with the tokenizer of `tests.tiny_models`, which gives it inputs of
    these names.
    """
    folder.mkdir()
    write_tokenizer(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        unk_token="[UNK]",  # noqa: S106  words, no passwords
        pad_token="[PAD]",  # noqa: S106
        cls_token="[CLS]",  # noqa: S106
        sep_token="[SEP]",  # noqa: S106
        model_max_length=MAX_TOKENS,
        model_input_names=list(names),
    )
    torch.manual_seed(0)
    described = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.5,  # or else all texts are nearly alike
        attn_implementation="eager",
        **config,
    )
    model = make(described).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


class Positional(torch.nn.Module):
    """A model that takes its inputs in their order and gives its first output, as exporting needs
    it.
    """

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        """Run it."""
        return self.model(**dict(zip(INPUTS, inputs, strict=True)))[0]


def export(model, path, output, axes):
    """The model as ONNX."""
    example = torch.ones(2, 5, dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Positional(model).eval(),
            (example, example, 0 * example),
            str(path),
            input_names=list(INPUTS),
            output_names=[output],
            dynamic_axes={**{name: {0: "batch", 1: "tokens"} for name in INPUTS}, output: axes},
            dynamo=False,
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An embedding model as the package saves it, with its ONNX file beside."""
    path = tmp_path_factory.mktemp("models")
    model = write_bert(path / "bert", BertModel)
    modules = [
        Transformer(str(path / "bert"), max_seq_length=MAX_TOKENS),
        Pooling(16, "mean"),
        Normalize(),
    ]
    prompts = {"query": "query: ", "document": "passage: "}
    SentenceTransformer(modules=modules, prompts=prompts, device="cpu").save(str(path / "tiny"))
    export(model, path / "tiny" / "model.onnx", "last_hidden_state", {0: "batch", 1: "tokens"})
    return path / "tiny"


@pytest.fixture(scope="module", params=[INPUTS, INPUTS[:2]], ids=["types", "no types"])
def classifier(tmp_path_factory, request):
    """A cross-encoder as the package saves it, with its ONNX file beside; not every tokenizer tells
    texts apart.
    """
    path = tmp_path_factory.mktemp("models")
    model = write_bert(path / "bert", BertForSequenceClassification, request.param, num_labels=1)
    CrossEncoder(str(path / "bert"), device="cpu").save(str(path / "tiny"))
    export(model, path / "tiny" / "model.onnx", "logits", {0: "batch"})
    return path / "tiny"


@pytest.fixture(scope="module")
def embedder(folder):
    """The adapter."""
    return SentenceTransformerEmbedder(folder, device="cpu")


def test_vectors_are_the_packages_own(folder, embedder):
    """With the prompt of each type, of length 1."""
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    for input_type in ("query", "document"):
        expected = model.encode(SHORT, prompt_name=input_type, normalize_embeddings=True)
        np.testing.assert_allclose(np.array(embedder.embed(SHORT, input_type)), expected, atol=1e-6)
    assert isinstance(embedder, Embedder)
    assert (embedder.dimension, embedder.max_tokens, embedder.normalised) == (16, MAX_TOKENS, True)
    assert len(embedder.embed([])) == 0


def test_a_long_text_fails_alone(folder, embedder):
    """The package would cut it off silently; that must be asked for."""
    found = CheckedEmbedder(embedder).embed_each([*TEXTS, " "])
    assert [isinstance(one, EmbeddingError) for one in found] == [
        False,
        False,
        False,
        False,
        True,
        True,
    ]
    assert "has 33 tokens" in str(found[4])
    cuts = SentenceTransformerEmbedder(folder, device="cpu", too_long="cut")
    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, prompt_name="document")
    np.testing.assert_allclose(np.array(cuts.embed(TEXTS)), expected, atol=1e-6)


def test_a_model_may_be_given_as_an_object(folder, embedder):
    """It is used as it is; what it was made of is not known."""
    model = SentenceTransformer(str(folder), device="cpu")
    given = SentenceTransformerEmbedder(model)
    assert given.model is model
    assert given.identity == ""
    np.testing.assert_array_equal(np.array(given.embed(SHORT)), np.array(embedder.embed(SHORT)))


def test_an_identity_is_of_the_files_and_settings(folder, embedder):
    """The same for the same; another for each setting that changes vectors."""
    assert embedder.identity.startswith("sentence-transformers:tiny:")
    assert SentenceTransformerEmbedder(folder, batch_size=2).identity == embedder.identity
    others = [{"normalise": False}, {"too_long": "cut"}]
    assert (
        len(
            {SentenceTransformerEmbedder(folder, **one).identity for one in others}
            | {embedder.identity}
        )
        == 3
    )


@pytest.mark.parametrize("adapter", [SentenceTransformerEmbedder, SentenceTransformerCrossEncoder])
def test_what_is_not_there_is_an_error(adapter, tmp_path):
    """It is looked for on this machine only; other arguments are checked."""
    with pytest.raises(ConfigError, match="pass download=True"):
        adapter("nobody/no-such-model")
    with pytest.raises(ConfigError, match="must be a folder"):
        adapter(7)
    with pytest.raises(ConfigError, match="too_long 'split'"):
        adapter(tmp_path, too_long="split")


def test_scores_are_the_packages_own(classifier):
    """Best first, equal documents tied by index."""
    rerank = SentenceTransformerCrossEncoder(classifier, device="cpu")
    documents = [*SHORT, SHORT[0], ""]
    expected = CrossEncoder(str(classifier), device="cpu").predict(
        [("cup", document) for document in documents]
    )
    ranked = rerank("cup", documents)
    assert dict(ranked) == pytest.approx(dict(enumerate(map(float, expected))), abs=1e-6)
    assert ranked == sorted(ranked, key=lambda pair: (-pair[1], pair[0]))
    assert dict(ranked)[0] == dict(ranked)[4]
    assert rerank("cup", documents, top_n=2) == ranked[:2]
    assert rerank("cup", []) == []
    assert isinstance(rerank, RerankModel)
    assert rerank.identity.startswith("sentence-transformers:tiny:")


def test_a_long_pair_fails(classifier):
    """Unless cutting is asked for."""
    with pytest.raises(RetrievalError, match="has 34 tokens"):
        SentenceTransformerCrossEncoder(classifier, device="cpu")("cup", TEXTS)
    assert len(
        SentenceTransformerCrossEncoder(classifier, device="cpu", too_long="cut")("cup", TEXTS)
    ) == len(TEXTS)


def test_several_labels_are_refused(tmp_path):
    """A rerank model has one score for a pair."""
    write_bert(tmp_path / "bert", BertForSequenceClassification, num_labels=3)
    with pytest.raises(ConfigError, match="has 3 labels"):
        SentenceTransformerCrossEncoder(tmp_path / "bert", device="cpu")


def test_our_pooling_is_the_packages():
    """All six, and several at once, on random token vectors."""
    torch.manual_seed(1)
    hidden = torch.randn(1, 7, 16)
    for names in (*([one] for one in POOLINGS), ["mean", "cls", "max"]):
        theirs = Pooling(16, names)(
            {"token_embeddings": hidden, "attention_mask": torch.ones(1, 7, dtype=torch.long)}
        )
        np.testing.assert_allclose(
            pooled(hidden[0].numpy(), names),
            theirs["sentence_embedding"][0].numpy(),
            rtol=1e-5,
            atol=1e-6,
        )


def test_our_embedder_gives_what_the_package_gives(folder):
    """From the same folder: length, pooling, normalising and prompts are read as the package reads
    them.
    """
    ours = OnnxEmbedder(folder, too_long="cut")
    model = SentenceTransformer(str(folder), device="cpu")
    assert (ours.dimension, ours.max_tokens) == (16, MAX_TOKENS)
    for input_type in ("query", "document"):
        expected = model.encode(TEXTS, prompt_name=input_type)
        np.testing.assert_allclose(ours.embed(TEXTS, input_type), expected, atol=1e-5)


@pytest.mark.parametrize(
    "names", [*([one] for one in POOLINGS), ["max", "lasttoken"]], ids="+".join
)
def test_our_embedder_pools_as_the_package_does(folder, tmp_path, names):
    """Whatever modules.json says, as the package writes it, without a Normalize."""
    modules = [Transformer(str(folder), max_seq_length=MAX_TOKENS), Pooling(16, names)]
    model = SentenceTransformer(modules=modules, device="cpu")
    model.save(str(tmp_path / "m"))
    (tmp_path / "m" / "model.onnx").write_bytes((folder / "model.onnx").read_bytes())
    ours = OnnxEmbedder(tmp_path / "m", too_long="cut")
    assert not ours.normalised
    np.testing.assert_allclose(ours.embed(TEXTS), model.encode(TEXTS), rtol=1e-4, atol=1e-5)


def test_our_cross_encoder_gives_what_the_package_gives(classifier):
    """Pairs that fit; the activation is the one that the package has written."""
    ours = OnnxCrossEncoder(classifier)
    pairs = [("cup", document) for document in SHORT]
    expected = CrossEncoder(str(classifier), device="cpu").predict(pairs)
    assert dict(ours("cup", SHORT)) == pytest.approx(
        dict(enumerate(map(float, expected))), abs=1e-5
    )
    raw = CrossEncoder(str(classifier), device="cpu", activation_fn=torch.nn.Identity())
    expected = dict(enumerate(map(float, raw.predict(pairs))))
    assert dict(OnnxCrossEncoder(classifier, activation="identity")("cup", SHORT)) == pytest.approx(
        expected, abs=1e-4
    )


def test_a_folder_without_onnx_file_is_read_by_the_package(classifier, tmp_path):
    """Where a rerank model is named by its folder; with the ONNX file it is read by ours."""
    folder = shutil.copytree(classifier, tmp_path / "m", ignore=shutil.ignore_patterns("*.onnx"))
    model = local_rerank_model(folder)
    assert isinstance(model, SentenceTransformerCrossEncoder)
    assert model("cup", SHORT) == SentenceTransformerCrossEncoder(classifier)("cup", SHORT)
    assert isinstance(local_rerank_model(classifier), OnnxCrossEncoder)
