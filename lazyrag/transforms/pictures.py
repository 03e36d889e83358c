"""Pictures of a document as nodes: the built-in group ``image``."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

from lazyrag.data.node import SOURCE_LOCATION, DocNode, describe_span
from lazyrag.data.pictures import PICTURES, FoundPicture, FoundPictures
from lazyrag.data.segment import IMAGE
from lazyrag.transforms.base import NodeTransform


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
        whole = node.get_text()
        at = 0
        for one in FoundPictures.parse(texts[0][1]).pictures:
            words = list(dict.fromkeys(filter(None, [one.caption, one.alternative])))
            start = next((found for word in words if (found := whole.find(word, at)) >= 0), -1)
            at = max(start, at)
            where = one.where or (
                "" if start < 0 else describe_span(node.segment, (start, start + 1))
            )
            text = "\n".join(
                words or [", ".join(filter(None, [node.path.rpartition("/")[2], where]))]
            )
            yield DocNode(
                text=text if one.place else f"{text}\n{whole}", metadata=_metadata(one, where)
            )


def _metadata(one: FoundPicture, where: str) -> dict[str, Any]:
    known = {"caption": one.caption, "alternative_text": one.alternative, SOURCE_LOCATION: where}
    return {
        **{name: value for name, value in known.items() if value},
        "media_type": one.media_type,
        "width": one.width,
        "height": one.height,
        IMAGE: {"place": one.place, "sha256": one.digest},
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
