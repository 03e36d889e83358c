"""Permissions: every user searches, reads and asks with only the documents that this user may see.

A declared field lists who may read a file. A request gets a view of the Document: nothing that
it returns depends on a hidden document, neither a hit nor a score, a neighbour, an explanation or
an error.
"""

from pathlib import Path

from lazyrag import DataType, DocField, Document, HybridRetriever, RAGPipeline, Retriever

CORPUS = Path(__file__).resolve().parent / "corpus"
READERS = {"reports": ["board"], "office": ["board", "staff"], "handbook": ["board", "staff"]}
EVERYONE = ["board", "staff", "guest"]
QUESTION = "By what percentage did the output of Pond White grow in 2024?"
FIELDS = {"readers": DocField(DataType.ARRAY, element_type=DataType.VARCHAR)}

docs = Document(
    CORPUS,
    # a model: see 04_models.py
    embed=lambda text: [1.0 + text.lower().count(letter) for letter in "aeioust"],
    doc_fields=FIELDS,
    file_metadata=lambda path: {"readers": READERS.get(path.parent.name, EVERYONE)},
)


def view_of(roles):
    """The view of a user. Roles come from the session or the token, never from the text of a
    request.
    """
    return docs.restricted({"readers": list(roles)})


def answers(roles):
    """Keyword hits, hybrid hits and a cited answer, as this user gets them."""
    view = view_of(roles)
    keyword = Retriever(view, "MediumChunk", similarity="bm25", topk=5)
    hybrid = HybridRetriever.over(view, "MediumChunk", topk=5)
    answer = RAGPipeline(retriever=keyword).sync.answer(QUESTION)
    return keyword(QUESTION), hybrid(QUESTION), answer


found = {role: answers([role]) for role in EVERYONE}
for role, (hits, _, answer) in found.items():
    print(
        f"{role:6} {len(view_of([role]).get_nodes()):3} documents; {[node.path for node in hits][:2]}"
    )
    print(f"       {answer.text[:90]}")

# Scores are those of a Document that never held the hidden files: nobody can count words in them.
guest = [(node.path, node.score) for node in found["guest"][0]]
paths = [node.path for node in view_of(["guest"]).get_nodes()]
alone = Document(doc_files={path: CORPUS / path for path in paths})
same = [
    (node.path, node.score)
    for node in Retriever(alone, "MediumChunk", similarity="bm25", topk=5)(QUESTION)
]
print(f"\nScores of a Document with the guest's files alone are equal: {guest == same}")

# A query's own filter only narrows the view; an unknown node and a hidden one give the same error.
secret = found["board"][0][0]
view = view_of(["guest"])
asked = Retriever(view, "MediumChunk", similarity="bm25")(
    QUESTION, filters={"readers": ["board", "guest"]}
)
errors = []
for uid in (secret.uid, "0" * 32):
    try:
        Retriever(view, "MediumChunk", similarity="bm25").why_not(uid, QUESTION)
    except LookupError as error:
        errors.append(str(error).replace(uid, "UID"))
    else:
        errors.append("")

# A permission changes: it counts from the next query, and nothing is embedded again.
docs.update_metadata({secret.path: {"readers": EVERYONE}})
now = Retriever(view_of(["guest"]), "MediumChunk", similarity="bm25", topk=5)(QUESTION)
print(f"After the report was opened to everyone, a guest finds {now[0].path}.")

assert found["board"][0][0].path == "reports/2024-annual-report.docx"
hidden = {
    role: [folder for folder, readers in READERS.items() if role not in readers]
    for role in EVERYONE
}
for role, (hits, fused, answer) in found.items():
    seen = {node.path for node in [*hits, *fused]} | {
        citation.source for citation in answer.citations
    }
    assert not any(path.startswith(tuple(f"{folder}/" for folder in hidden[role])) for path in seen)
assert guest == same
assert {node.path for node in asked} <= set(paths)
assert errors[0] == errors[1]
assert now[0].path == secret.path
