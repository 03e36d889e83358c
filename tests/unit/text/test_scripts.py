"""Terms of words in other scripts and languages than English and Chinese."""

from __future__ import annotations

import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document, Retriever
from lazyrag.text.analyzers import english_terms, query_terms, term_function, term_spans
from lazyrag.text.scripts import cluster_terms, latin_language
from lazyrag.text.term_codes import TermCodes

TEXTS = {
    "ar": "اخترع المهندسون المدرسة الكبيرة في القاهرة، ثم زاروا المدارس.",
    "de": "Die Häuser der Städte wurden von den Bürgern gebaut. Wer hat das größte Haus?",
    "el": "Οι ποταμοί της Ελλάδας είναι μικροί. Πού είναι ο μεγάλος ποταμός;",
    "es": "¿Dónde están las montañas más altas? La montaña está en el norte.",
    "hi": "गंगा नदी हिमालय से निकलती है। नदियाँ पहाड़ों से आती हैं।",
    "ro": "Ce orașe sunt în România? Orașul este pe malul râului și în câmpie.",
    "ru": "Книги лежат на столе. Кто читает книгу о реке Москве?",
    "th": "แม่น้ำเจ้าพระยาไหลผ่านกรุงเทพมหานคร",
    "tr": "İstanbul'un sokakları çok kalabalık. Ne var bu sokaklarda?",
    "vi": "Trà xanh được trồng ở miền bắc. Hà Nội là thủ đô của Việt Nam.",
}


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("Zurich", "Der Zürichsee liegt bei Zürich."),
        ("Zürich", "The lake of Zurich is long."),
        ("cafe", "The café is open."),
        ("İstanbul", "Istanbul is a city."),
        ("istanbul", "İstanbul'un nüfusu çok ve kalabalık."),
        ("reka", "Reka, řeka, rěka."),
        ("die Häuser der Stadt", "Das Haus und die Städte sind alt."),
        ("las montañas", "La montaña está en el norte."),
        ("читает книгу", "Книги лежат на столе."),
        ("μεγάλοι ποταμοί", "Ο μεγάλος ποταμός."),
        ("المدرسة", "مدرسه كبيرة"),
        ("नदियाँ", "गंगा नदी हिमालय से निकलती है।"),
        ("กรุงเทพ", TEXTS["th"]),
        ("l'eau de la mer", "L’eau est dans la mer."),
    ],
)
def test_words_are_compared_without_accents_and_endings(query, text):
    """A query finds other forms of its words, in any of the scripts."""
    assert {*english_terms(query)} & {*english_terms(text)}


@pytest.mark.parametrize("language", ["de", "es", "ro", "tr", "vi"])
def test_the_language_of_a_text_decides_on_its_stems(language):
    """Its function words are no terms."""
    words = TEXTS[language].lower().translate(dict.fromkeys(map(ord, ".?¿,"))).split()
    assert latin_language(words) == language


@pytest.mark.parametrize(
    "text",
    [
        "door handle",
        "die casting",
        "cost per unit",
        "car sale",
        "e-mail@example.com",
        "Los Angeles",
        "Müller and the theory of rings",
        "the role of El Niño in this",
    ],
)
def test_english_texts_stay_english(text):
    """A single word that looks like another language's changes nothing."""
    assert latin_language(text.lower().replace("@", " ").replace("-", " ").split()) == "en"


def test_syllables_of_vietnamese_are_also_terms_in_pairs():
    """Its words are often two syllables with a space between them."""
    assert {"trà_xanh", "hà_nội"} <= {*english_terms(TEXTS["vi"])}
    assert not any("_" in term for term in english_terms(TEXTS["de"]))


def test_terms_of_thai_are_pairs_and_triples_of_clusters():
    """No vowel or tone mark stands alone."""
    terms = cluster_terms("แม่น้ำ")
    assert terms == ["แม่น้ำ"]
    for term in cluster_terms("กรุงเทพมหานคร"):
        assert unicodedata.category(term[0]) != "Mn"


@given(
    st.lists(
        st.sampled_from(
            [*TEXTS.values(), "The Who", "绿茶", " ", "'", "é", "i\u0307", "\u0301", "।"]
        ),
        max_size=5,
    ).map("".join)
)
def test_an_index_has_the_terms_of_the_analyser(text):
    """In every script, with stop words."""
    for name in ("en", "zh"):
        codes = TermCodes(name)
        numbers, _ = codes.encode([text])
        terms = term_function(name, stop_words=True)(text)
        assert Counter(codes.terms(numbers)) == Counter(terms)


@pytest.mark.parametrize("language", [*TEXTS])
def test_each_language_is_searched_and_marked(language):
    """A sentence's last words find it, and are marked."""
    docs = Document()
    docs.add_texts(TEXTS)
    query = TEXTS[language].split()[-1]
    hits = Retriever(docs, "FineChunk", "bm25", topk=1)(query)
    assert [hit.path for hit in hits] == [language]
    text = hits[0].text
    spans = term_spans(text, query_terms(query))
    assert any(text[start:end] in query for start, end, _ in spans)
