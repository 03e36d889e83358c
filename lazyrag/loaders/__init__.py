"""Loaders: a file into text with places and metadata."""

from lazyrag.loaders.base import (
    DataLoader,
    LoadedFile,
    LoadLimits,
    load_file,
    loaders,
    register_loader,
)
from lazyrag.loaders.media import read_image, register_media_reader

SOURCE_SUFFIXES = frozenset(
    (
        ".bash .c .cc .cpp .cs .css .cxx .dart .go .h .hpp .java .jl .js .jsx .kt .lua .mjs .php"
        " .pl .ps1 .py .pyi .r .rb .rs .scala .sh .sql .swift .ts .tsx"
    ).split()
)
"""Suffixes of source code."""

for _suffixes, _target, _extra in (
    (" ".join(SOURCE_SUFFIXES - {".py", ".pyi"}), "base:SourceLoader", None),
    (".bmp .gif .jpeg .jpg .png .tif .tiff .webp", "media:ImageLoader", None),
    (".adoc .asciidoc", "markup:AsciidocLoader", None),
    (".csv .tsv", "records:CsvLoader", None),
    (".doc .ppt", "old_office:OldOfficeLoader", None),
    (".docm .docx .dotx", "word:DocxLoader", None),
    (".eml", "mail:EmlLoader", None),
    (".epub", "html:EpubLoader", None),
    (".flac .m4a .mp3 .ogg .wav", "media:AudioLoader", None),
    (".htm .html", "html:HtmlLoader", None),
    (".ipynb", "text:NotebookLoader", None),
    (".json", "records:JsonLoader", None),
    (".jsonl .ndjson", "records:JsonLinesLoader", None),
    (".markdown .md", "text:MarkdownLoader", None),
    (".mbox", "mail:MboxLoader", None),
    (".mkv .mov .mp4 .webm", "media:VideoLoader", None),
    (".msg", "msg:MsgLoader", "office"),
    (".ods", "opendocument:OdsLoader", None),
    (".odp", "opendocument:OdpLoader", None),
    (".odt", "opendocument:OdtLoader", None),
    (".org", "markup:OrgLoader", None),
    (".pdf", "pdf:PdfLoader", None),
    (".pptx", "slides:PptxLoader", None),
    (".py .pyi", "base:PythonLoader", None),
    (".rst", "text:RstLoader", None),
    (".rtf", "rtf:RtfLoader", None),
    (".srt .vtt", "media:SubtitleLoader", None),
    (".tex", "latex:LatexLoader", None),
    (".text .txt", "text:TextLoader", None),
    (".xls", "spreadsheets:XlsLoader", None),
    (".xlsb", "spreadsheets:XlsbLoader", None),
    (".xlsm .xlsx", "spreadsheets:XlsxLoader", None),
    (".xml", "records:XmlLoader", None),
    (".yaml .yml", "yaml_records:YamlLoader", None),
    (".zip", "archives:ZipLoader", None),
):
    for _suffix in _suffixes.split():
        loaders.declare(_suffix, f"lazyrag.loaders.{_target}", extra=_extra)

__all__ = [
    "DataLoader",
    "LoadLimits",
    "LoadedFile",
    "load_file",
    "loaders",
    "read_image",
    "register_loader",
    "register_media_reader",
]
