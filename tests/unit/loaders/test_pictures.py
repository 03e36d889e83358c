"""Pictures of documents as nodes: the group ``image``, their bytes, and models that see them."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib

import pytest
from PIL import Image
from pypdf import PdfWriter
from pypdf.generic import (
    ArrayObject,
    BooleanObject,
    DictionaryObject,
    NameObject,
    NullObject,
    NumberObject,
    TextStringObject,
)
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen import canvas

from lazyrag import DataType, DocField, DocNode, Document, HttpChatModel, LLMParser, Retriever
from lazyrag.errors import ConfigError, LoadError, StaleNodeError
from lazyrag.loaders import LoadLimits, loaders, read_image, register_media_reader
from lazyrag.transforms.pictures import PictureExtractor, data_url
from tests.model_server import KEY, answered
from tests.picture_files import (
    CUP,
    GARDEN,
    ICON,
    KETTLE,
    address,
    in_open_document,
    in_pdf,
    in_word,
    on_slides,
    packed,
    picture,
)

pytestmark = pytest.mark.usefixtures("quick_endpoints")

FILES = {
    "garden.docx": in_word(
        (GARDEN, "Figure 1: A garden near Uji", "Rows of bushes"), (ICON, "", "")
    ),
    "talk.pptx": on_slides((KETTLE, "Water", "An iron kettle")),
    "open.odt": in_open_document(GARDEN, "Figure 2: A nursery", "Young plants"),
    "page.html": (
        f'<h1>Cups</h1><figure><img src="{address(CUP)}" alt="A white cup"><figcaption>Porcelain from Jingdezhen'
        f'</figcaption></figure><img src="{address(ICON)}" alt="arrow"><img src="img/linked.png" alt="A linked cup">'
        '<img src="../outside.png" alt="Outside"><img src="http://127.0.0.1:9/a.png" alt="Remote">'
        '<img src=".hidden/a.png" alt="Hidden"><img src="/dev/zero" alt="Device"><img src="img" alt="Folder">'
    ),
    "notes.md": '# Notes\n\n![A bowl](img/linked.png "Bowl of a monk")\n\n![](gone.png)\n',
    "book.pdf": in_pdf(
        [(KETTLE, "Fig. 3: Kettle from Nambu."), (GARDEN, "No caption")], [(ICON, "")]
    ),
    "img/linked.png": CUP,
    ".hidden/a.png": CUP,
}
FOUND = {
    ("book.pdf", "Fig. 3: Kettle from Nambu.", "page 1", "image/jpeg"),
    ("book.pdf", "book.pdf, page 1", "page 1", "image/png"),
    ("garden.docx", "Figure 1: A garden near Uji\nRows of bushes", "Gardens, line 3", "image/png"),
    ("notes.md", "Bowl of a monk\nA bowl", "Notes, line 3", "image/png"),
    ("open.odt", "Figure 2: A nursery\nYoung plants", "line 4", "image/png"),
    ("page.html", "Porcelain from Jingdezhen\nA white cup", "Cups, line 4", "image/png"),
    ("page.html", "A linked cup", "Cups, line 6", "image/png"),
    ("talk.pptx", "Water\nAn iron kettle", "slide 1", "image/jpeg"),
}


@pytest.fixture
def docs(folder):
    """A Document of a file of each format."""
    place = folder(FILES)
    (place.parent / "outside.png").write_bytes(CUP)
    docs = Document(place)
    with pytest.warns(match="Skipped 1 of 7 files"):
        docs.get_nodes()
    return docs


def pixel(data):
    """The size of a picture, and one of its pixels."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return image.size, tuple(round(value, -1) for value in image.getpixel((100, 40)))


@pytest.mark.slow
def test_pictures_of_all_formats(docs):
    """Each picture is a node with its caption, its place and its bytes; icons and addresses
    elsewhere are left out.
    """
    nodes = docs.get_nodes("image")
    assert {
        (one.path, one.text, one.location, one.metadata["media_type"]) for one in nodes
    } == FOUND
    for node in nodes:
        expected = {"page.html": CUP, "notes.md": CUP, "talk.pptx": KETTLE}.get(node.path, GARDEN)
        expected = KETTLE if node.text.startswith("Fig. 3") else expected
        assert pixel(node.image()) == pixel(expected)
        assert (node.metadata["width"], node.metadata["height"]) == pixel(expected)[0]
        if node.text != "book.pdf, page 1":  # which the PDF keeps as pixels
            assert node.image() == expected
    assert docs.last_report.notes == {}


def test_a_retriever_finds_a_picture_by_its_caption(docs):
    """And its bytes are read through the hit."""
    [hit] = Retriever(docs, "image", similarity="bm25", topk=1)("porcelain jingdezhen")
    assert (hit.path, hit.metadata["caption"]) == ("page.html", "Porcelain from Jingdezhen")
    assert hit.image() == CUP


def test_a_vision_model_sees_the_pictures(folder, model):
    """A group of questions below the group of pictures: the model gets each picture as it is."""
    questions = {"questions": [{"question": "Where is the garden?", "answer": "Near Uji."}]}
    model.faults += [
        answered(
            {"choices": [{"message": {"content": json.dumps(questions)}, "finish_reason": "stop"}]}
        )
    ]
    docs = Document(folder({"garden.docx": FILES["garden.docx"]}))
    with HttpChatModel(model.url, "vlm", api_key=KEY) as vlm:
        docs.create_node_group("asked", transform=LLMParser(vlm, "en", "qa_img"), parent="image")
        [hit] = Retriever(docs, "asked", similarity="bm25", topk=1)("garden")
    assert (hit.text, hit.metadata["answer"], hit.parent.image()) == (
        "Where is the garden?",
        "Near Uji.",
        GARDEN,
    )
    text, image = model.bodies[0]["messages"][0]["content"]
    assert "Figure 1: A garden near Uji" in text["text"]
    assert image == {"type": "image_url", "image_url": {"url": address(GARDEN)}}


def test_an_image_embedder_gets_the_pictures(folder):
    """`index_text=data_url` embeds pictures in place of captions, beside a keyword search for
    captions.
    """
    seen = []

    def clip(text):
        seen.append(text)
        return [1.0, 0.0] if text == address(CUP) or "white" in text else [0.0, 1.0]

    docs = Document(
        folder({name: FILES[name] for name in ("garden.docx", "page.html")}), embed=clip
    )
    docs.create_node_group("seen", transform=PictureExtractor, index_text=data_url)
    [hit] = Retriever(docs, "seen", similarity="cosine", topk=1)("something white")
    assert hit.image() == CUP
    assert {address(CUP), address(GARDEN)} <= {*seen}


def test_pictures_follow_their_file(folder):
    """Another picture in a file of the same text is another version; what is deleted is gone, also
    for old hits.
    """
    place = folder(
        {
            "a.docx": in_word((GARDEN, "Figure 1: Tea", "")),
            "b.docx": in_word((KETTLE, "Figure 1: Tea", "")),
        }
    )
    docs = Document(place)
    first, second = docs.get_nodes("image")
    (place / "a.docx").write_bytes(in_word((CUP, "Figure 1: Tea", "")))
    with pytest.raises(LoadError, match="has changed since it was ingested"):
        first.image()
    assert docs.sync().updated == ("a.docx",)
    assert [node.image() for node in docs.get_nodes("image")] == [CUP, KETTLE]
    with pytest.raises(StaleNodeError):
        first.image()
    docs.delete_files(["b.docx"])
    assert [node.path for node in docs.get_nodes("image")] == ["a.docx"]
    with pytest.raises(StaleNodeError):
        second.image()
    (place / "a.docx").unlink()
    with pytest.raises(LoadError, match="cannot be read"):
        docs.get_nodes("image")[0].image()


@pytest.mark.slow
def test_pictures_by_processes(folder, tmp_path):
    """Processes that load files find the same pictures."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    with Document(
        folder(FILES | {"img/linked.png": ICON}), store_conf=conf, limits=LoadLimits(processes=1)
    ) as docs:
        with pytest.warns(match="Skipped 1 of"):
            hits = Retriever(docs, "image", similarity="bm25", topk=9)("figure kettle young cup")
        assert {
            (hit.path, hit.text, hit.location, hit.metadata["media_type"]) for hit in hits
        } <= FOUND
        assert {hit.path: hit.image() for hit in hits}["open.odt"] == GARDEN
        assert len(hits) == 5


def test_only_nodes_of_pictures_have_bytes(docs):
    """Another node says so."""
    with pytest.raises(ConfigError, match="group 'image'"):
        docs.get_nodes("FineChunk")[0].image()
    with pytest.raises(ConfigError, match="group 'image'"):
        DocNode(text="tea").image()


def test_a_restricted_document_shows_its_pictures_only(folder):
    """Ranks and bytes are those of a Document without the others; a node that is passed on does not
    help.
    """
    place = folder({name: FILES[name] for name in ("garden.docx", "talk.pptx", "open.odt")})
    every, some = (
        Document(doc_fields={"label": DocField(DataType.VARCHAR)}, name=name)
        for name in ("all", "some")
    )
    labels = {"garden.docx": "staff", "talk.pptx": "guest", "open.odt": "guest"}
    for docs in (every, some):
        names = [name for name, label in labels.items() if docs is every or label == "guest"]
        docs.add_files(
            {name: place / name for name in names},
            {name: {"label": labels[name]} for name in names},
        )
    query, guest = "kettle figure", every.restricted({"label": "guest"})
    found = [
        [
            (one.path, one.text, one.score, one.image())
            for one in Retriever(docs, "image", similarity="bm25")(query)
        ]
        for docs in (guest, some)
    ]
    assert found[0] == found[1] != []
    [hidden] = [node for node in every.get_nodes("image") if node.path == "garden.docx"]
    assert hidden.image() == GARDEN
    with pytest.raises(StaleNodeError):
        guest.reader.image(hidden.segment)
    with pytest.raises(StaleNodeError):  # a node with the uid of one that is hidden
        DocNode.from_segment(hidden.segment, guest.reader).image()


def test_pictures_beside_uploads_are_not_theirs(folder, tmp_path):
    """A page from elsewhere reads no file beside it; a page of the dataset none that is a document
    of its own.
    """
    place = folder({"page.html": FILES["page.html"], "img/linked.png": CUP})
    docs = Document()
    docs.add_files({"page.html": place / "page.html"})
    assert [node.metadata["alternative_text"] for node in docs.get_nodes("image")] == [
        "A white cup"
    ]
    with loaders.isolated():
        register_media_reader("image", read_image)
        nodes = Document(place).get_nodes("image")
        assert [(one.path, one.metadata.get("alternative_text")) for one in nodes] == [
            ("img/linked.png", None),
            ("page.html", "A white cup"),
        ]
        assert (nodes[0].text, nodes[0].image()) == ("linked.png\nlinked.png", CUP)
    docs = Document(place)
    docs.add_reader("img/*.png", read_image)
    assert {
        one.path
        for one in docs.get_nodes("image")
        if one.metadata.get("alternative_text") == "A linked cup"
    } == set()


def test_a_linked_picture_is_the_one_that_was_found(folder):
    """Another file in its place is refused; so is metadata of a user by the name of the picture's
    place.
    """
    place = folder(
        {
            "page.html": FILES["page.html"],
            "img/linked.png": CUP,
            "blog.md": "---\nimage: a.png\n---\nTea",
        }
    )
    docs = Document(place)
    with pytest.warns(match="Skipped 1 of 3 files"):
        docs.sync()
    linked = docs.get_nodes("image")[-1]
    assert linked.image() == CUP
    (place / "img/linked.png").write_bytes(GARDEN)
    with pytest.raises(LoadError, match="not the one that was ingested"):
        linked.image()
    [blog] = [one for one in docs.get_nodes() if one.path == "blog.md"]
    with pytest.raises(ConfigError, match="has no picture"):
        blog.image()
    upload = Document()
    upload.add_files(
        [place / "page.html"], metadata={"page.html": {"image": {"place": "link:img/linked.png"}}}
    )
    with pytest.raises(LoadError, match="not the one that was ingested"):
        upload.get_nodes()[0].image()


def png_header(width, height):
    """A picture that claims a size."""
    body = b"IHDR" + struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    chunks = struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    return b"\x89PNG\r\n\x1a\n" + chunks + b"\0\0\0\0IEND\xaeB`\x82"


LEFT_OUT = [
    (png_header(50_000, 50_000), "50,000 x 50,000 pixels"),
    (GARDEN[:-40], "damaged"),
    (KETTLE[: len(KETTLE) // 2], "damaged"),
    (b"\xff\xd8\xff", "damaged"),
    (b"GIF89a", "damaged"),
    (b"RIFF\0\0\0\0WEBPVP8X", "damaged"),
    (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "format that vision models do not read"),
    (b"", "format that vision models do not read"),
]


def test_pictures_that_are_left_out_are_noted(folder):
    """Bombs, damage and formats that no model sees cost only themselves; the report names file and
    reason.
    """
    every = [picture((number, 0, 0)) for number in range(len(LEFT_OUT))]
    slides = on_slides(
        *((data, f"Slide {number}", "") for number, data in enumerate([*every, GARDEN]))
    )
    with zipfile.ZipFile(io.BytesIO(slides)) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    replaced = dict(zip(every, (data for data, _ in LEFT_OUT), strict=True))
    docs = Document(
        folder({"a.pptx": packed({name: replaced.get(data, data) for name, data in parts.items()})})
    )
    assert [node.text for node in docs.get_nodes("image")] == [f"Slide {len(LEFT_OUT)}"]
    notes = docs.last_report.notes["a.pptx"]
    for number, (noted, (_, note)) in enumerate(zip(notes, LEFT_OUT, strict=True), start=1):
        assert noted.startswith(f"picture ppt/media/image{number}.png left out: ")
        assert note in noted


def test_logos_are_left_out(folder):
    """A picture in three places is a decoration; one in two is not."""
    logo, twice = picture("orange"), picture("purple")
    slides = [
        (one, f"Slide {number}", "")
        for number, one in enumerate([logo, twice, logo, twice, logo, GARDEN])
    ]
    docs = Document(folder({"a.pptx": on_slides(*slides)}))
    assert [node.location for node in docs.get_nodes("image")] == ["slide 2", "slide 4", "slide 6"]


def test_notes_are_few(folder):
    """Of many damaged pictures the first are named, the others counted."""
    page = "".join(f'<img src="data:image/png;base64,{number:04}">' for number in range(30))
    docs = Document(folder({"a.html": f"Tea{page}"}))
    assert docs.get_nodes("image") == []
    noted = docs.last_report.notes["a.html"]
    assert (len(noted), noted[-1]) == (21, "10 more notes of pictures")


def test_a_tagged_pdf_has_alternative_texts(folder):
    """The tags of a page name its pictures."""
    target = io.BytesIO()
    page = canvas.Canvas(target, (400, 300))
    page.drawString(30, 250, "Tea")
    for number, data in enumerate([GARDEN, CUP]):
        page._code.append(f"/Figure <</MCID {number}>> BDC")
        page.drawImage(ImageReader(io.BytesIO(data)), 30 + 150 * number, 100, 120, 90)
        page._code.append("EMC")
    page.save()
    writer = PdfWriter(clone_from=target)
    [page] = writer.pages
    page[NameObject("/StructParents")] = NumberObject(0)
    root = writer._add_object(DictionaryObject())
    tag = {
        "/S": "/Figure",
        "/P": root,
        "/Pg": page.indirect_reference,
        "/K": 1,
        "/Alt": TextStringObject("白瓷杯"),
    }
    figure = writer._add_object(dictionary(tag))
    numbers = dictionary(
        {"/Nums": ArrayObject([NumberObject(0), ArrayObject([NullObject(), figure])])}
    )
    root.get_object().update(
        dictionary(
            {"/Type": "/StructTreeRoot", "/K": ArrayObject([figure]), "/ParentTree": numbers}
        )
    )
    marked = dictionary({"/Marked": BooleanObject(True)})
    writer.root_object.update(dictionary({"/StructTreeRoot": root, "/MarkInfo": marked}))
    writer.write(tagged := io.BytesIO())
    docs = Document(folder({"a.pdf": tagged.getvalue()}))
    assert [node.text for node in docs.get_nodes("image")] == ["a.pdf, page 1", "白瓷杯"]


def dictionary(values):
    """Values as those of a PDF."""
    kinds = {int: NumberObject, str: NameObject}
    return DictionaryObject(
        {
            NameObject(name): kinds.get(type(value), lambda one: one)(value)
            for name, value in values.items()
        }
    )


def test_a_page_that_is_a_scan_is_no_picture(folder):
    """What covers the page is the page."""
    target = io.BytesIO()
    page = canvas.Canvas(target, (400, 300))
    page.drawImage(ImageReader(io.BytesIO(GARDEN)), 0, 0, 400, 300)
    page.drawString(30, 30, "Read by a scanner")
    page.save()
    docs = Document(folder({"a.pdf": target.getvalue()}))
    assert docs.get_nodes("image") == []
