"""Reads of one state of a Document: nodes, windows, lists of documents, restricted views; and
functions of a Document for what is read more rarely.

from lazyrag.read import grep

grep(docs, "80 degrees")
"""

from lazyrag._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.read.explore": "glob grep near_duplicates outline related",
        "lazyrag.read.markdown": "to_markdown",
        "lazyrag.read.page_marks": "marks page_image",
        "lazyrag.read.supersession": "superseded",
    },
)
