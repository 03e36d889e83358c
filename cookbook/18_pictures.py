"""Pictures of documents: find one by its caption, read its bytes, and ask a vision model about
each. No model.

A page has a photograph with a caption. A stand-in for a vision model answers with the size of the
picture that it gets; with `HttpChatModel("http://localhost:8000/v1", "a-vision-model")` in its
place the questions are about what is seen.
"""

import base64
import json
import tempfile
from pathlib import Path

from lazyrag import Document, LLMParser, Retriever
from lazyrag.models import ChatChoice, ChatCompletion

PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000140000000f00802000000fe4f2a3c0000000049454e44ae426082"
)
PAGE = f"""<h1>Gardens</h1><figure>
<img alt="Rows of bushes in fog" src="data:image/png;base64,{base64.b64encode(PICTURE).decode()}">
<figcaption>The north slope in April</figcaption></figure>"""


class Viewer:
    """Answers with the number of bytes that it sees."""

    identity = "viewer"

    def chat(self, prompt, options=None):
        """Answer with a question."""
        [message] = prompt
        address = message.content[1]["image_url"]["url"]
        seen = base64.b64decode(address.partition(",")[2])
        asked = {
            "question": "What grows on the north slope?",
            "answer": f"Tea, in {len(seen)} bytes.",
        }
        return ChatCompletion((ChatChoice(json.dumps({"questions": [asked]})),))

    def stream(self, prompt, options=None):
        """Nothing streams here."""
        raise NotImplementedError

    achat = astream = stream


with tempfile.TemporaryDirectory() as folder:
    Path(folder, "gardens.html").write_text(PAGE, encoding="utf-8")
    docs = Document(folder)

    [hit] = Retriever(docs, "image", similarity="bm25", topk=1)("north slope")
    print(f"{hit.path}, {hit.location}: {hit.text!r}, {hit.metadata['width']} pixels wide")
    assert hit.image() == PICTURE

    docs.create_node_group("asked", transform=LLMParser(Viewer(), "en", "qa_img"), parent="image")
    [hit] = Retriever(docs, "asked", similarity="bm25", topk=1)("what grows there")
    print(f"{hit.text} {hit.metadata['answer']}")
    assert hit.metadata["answer"] == f"Tea, in {len(PICTURE)} bytes."
    shown = hit.parent.image()

assert shown == PICTURE
