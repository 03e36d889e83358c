"""Pictures of a document as nodes: the built-in group ``image``."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

from lazyrag.data.node import SOURCE_LOCATION, DocNode, describe_span
from lazyrag.data.pictures import PICTURES, FoundPicture, FoundPictures
from lazyrag.data.segment import IMAGE
from lazyrag.transforms.base import NodeTransform
from lazyrag.types import JsonObject


class PictureExtractor(NodeTransform):
    """Makes a node of each picture of a document: its text is its caption and its alternative text.

    A picture without either has the name of its file and its place as text; that of a picture file
    follows its caption. The metadata has ``caption`` and ``alternative_text`` where known,
    ``media_type``, ``width`` and ``height``; ``image`` says where the bytes are, which
    `DocNode.image` reads.
    """

    identity = "PictureExtractor/1"
    reads_source = PICTURES

    def transform(self, node: DocNode) -> None:
        """A text without a file has no pictures."""

    def _transform_source(
        self, node: DocNode, texts: Sequence[tuple[str, str]]
    ) -> Iterator[DocNode]:
        page_text = node.get_text()
        at = 0
        for picture in FoundPictures.parse(texts[0][1]).pictures:
            words = list(dict.fromkeys(filter(None, [picture.caption, picture.alternative])))
            positions = [page_text.find(word, at) for word in words]
            start = next((position for position in positions if position >= 0), -1)
            where = picture.where
            if start >= 0:
                at = start
                where = where or describe_span(node.segment, (at, at + 1))
            file_name = node.path.rpartition("/")[2]
            text = "\n".join(words or [", ".join(filter(None, [file_name, where]))])
            if not picture.place:
                text += f"\n{page_text}"
            yield DocNode(text=text, metadata=_metadata(picture, where))


def _metadata(picture: FoundPicture, where: str) -> JsonObject:
    values = {
        "caption": picture.caption,
        "alternative_text": picture.alternative,
        SOURCE_LOCATION: where,
    }
    return {
        **{name: value for name, value in values.items() if value},
        "media_type": picture.media_type,
        "width": picture.width,
        "height": picture.height,
        IMAGE: {"place": picture.place, "sha256": picture.digest},
    }


def data_url(node: DocNode) -> str:
    """The picture of a node of the group ``image`` as a data URL, as vision models and image
    embedders read it.

    Pass it as ``create_node_group(index_text=data_url)`` to embed pictures instead of captions.

    Raises:
        ConfigError: See `DocNode.image`, as for further errors.
    """
    data = base64.b64encode(node.image()).decode()
    return f"data:{node.metadata['media_type']};base64,{data}"
