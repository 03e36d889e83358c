"""Groups that a chat model writes: summaries, keywords, and questions that find their answers.

    python cookbook/11_llm_parser.py [URL MODEL]

URL and MODEL name an endpoint that speaks OpenAI's protocol, http://localhost:11434/v1 qwen3 for example; that needs
the extra openai. Without them a function stands for the model, so that nothing leaves the machine: it summarises by
first sentences and asks about the longest words.
"""

import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

from lazyrag import Document, HttpChatModel, LLMParser, Retriever

CORPUS = Path(__file__).resolve().parent / "corpus" / "handbook"
FILES = sorted(CORPUS.glob("*.txt"))
asked = Counter()


def words_and_sentences(prompt):
    """Answers as a model would, in the form that the prompt asks for."""
    text = re.search(r"<text>\n(.*)\n</text>", prompt, re.DOTALL)[1]
    sentences = re.findall(r"[^.。!?]{20,}[.。]", " ".join(text.split())) or [text[:80]]
    words = re.findall(r"[A-Za-z]{7,}", text)
    if "Q:" in prompt:
        asked["questions"] += 1
        told = [(max(re.findall(r"\w+", one), key=len), one.strip()) for one in sentences[:3]]
        return "<think>Three will do.</think>\n" + "\n".join(f"Q: What about {word}?\nA: {one}" for word, one in told)
    if "JSON" in prompt:
        asked["keywords"] += 1
        rare = sorted({*map(str.lower, words)}, key=lambda word: (-len(word), word))[:4]
        return f"Here they are:\n```json\n{rare or ['nothing']}\n```"  # single quotes, as models write them
    asked["summaries"] += 1
    return f"**Summary:** {sentences[0].strip()}"


words_and_sentences.identity = "words-and-sentences-1"
model = HttpChatModel(*sys.argv[1:3]) if len(sys.argv) == 3 else words_and_sentences


def opened(dataset, store):
    """A Document with three groups that the model writes; the same settings are the same groups in every program."""
    docs = Document(dataset, store_conf={"segment_store": {"type": "map", "kwargs": {"uri": store}}})
    for name, task in (("summary", "summary"), ("keyword", "keywords"), ("qa", "qa")):
        docs.create_node_group(name, transform=LLMParser(model, "en", task), parent="MediumChunk")
    docs.activate_group("summary", "keyword", "qa")
    return docs


with tempfile.TemporaryDirectory() as temporary:
    dataset, store = Path(temporary, "dataset"), str(Path(temporary, "store.db"))
    dataset.mkdir()
    for file in FILES[:3]:
        Path(dataset, file.name).write_bytes(file.read_bytes())

    with opened(dataset, store) as docs:
        chunks = docs.get_nodes("MediumChunk")
        print(docs.get_nodes("summary")[0].text)
        print(", ".join(node.text for node in docs.get_nodes("keyword")[:4]))
        question = docs.get_nodes("qa")[0]
        [hit] = Retriever(docs, "qa", similarity="bm25", topk=1)(question.text)
        print(f"{hit.get_content()}\n  from {hit.path}, {hit.parent.place}")
    first = dict(asked)

    # A new start asks nothing; a new paragraph costs the chunks that it touches.
    opened(dataset, store).close()
    restarted = dict(asked)
    with Path(dataset, FILES[0].name).open("a", encoding="utf-8") as file:
        file.write("\n\nThe kettle in the office belongs to everybody. Descale it monthly with vinegar.\n")
    with opened(dataset, store) as docs:
        print(docs.last_report)
        kettle = [node.text for node in docs.get_nodes("summary")]
    after = dict(asked)

print(f"asked at first {first}, after a restart {restarted}, after an edit {after}, of {len(chunks)} chunks")
assert question.metadata["answer"] in hit.get_content()
assert len(kettle) >= len(chunks)
assert restarted == first
assert model is not words_and_sentences or first == dict.fromkeys(first, len(chunks))
assert model is not words_and_sentences or 0 < after["summaries"] - first["summaries"] <= 2
