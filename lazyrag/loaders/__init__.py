"""Loaders: a file into text with places and metadata."""

from lazyrag.loaders.base import DataLoader, LoadedFile, load_file, loaders, register_loader
from lazyrag.loaders.limits import LoadLimits

for _suffixes, _target, _extra in (
    (".bmp .gif .jpeg .jpg .png .tif .tiff .webp", "media:ImageLoader", None),
    (".csv .tsv", "delimited:CsvLoader", None),
    (".doc .ppt", "old_office:OldOfficeLoader", None),
    (".docx", "docx:DocxLoader", None),
    (".eml", "mail:EmlLoader", None),
    (".epub", "epub:EpubLoader", None),
    (".flac .m4a .mp3 .ogg .wav", "media:AudioLoader", None),
    (".htm .html", "html:HtmlLoader", None),
    (".ipynb", "notebook:NotebookLoader", None),
    (".json", "json_records:JsonLoader", None),
    (".jsonl .ndjson", "json_records:JsonLinesLoader", None),
    (".markdown .md", "markdown:MarkdownLoader", None),
    (".mbox", "mail:MboxLoader", None),
    (".mkv .mov .mp4 .webm", "media:VideoLoader", None),
    (".msg", "msg:MsgLoader", "office"),
    (".ods", "opendocument:OdsLoader", None),
    (".odt", "opendocument:OdtLoader", None),
    (".pdf", "pdf:PdfLoader", None),
    (".pptx", "pptx:PptxLoader", None),
    (".py .pyi", "source:PythonLoader", None),
    (".rst", "rst:RstLoader", None),
    (".rtf", "rtf:RtfLoader", None),
    (".text .txt", "plain:TextLoader", None),
    (".xls", "xls:XlsLoader", "office"),
    (".xlsm .xlsx", "xlsx:XlsxLoader", "office"),
    (".xml", "markup:XmlLoader", None),
    (".yaml .yml", "yaml_records:YamlLoader", "yaml"),
    (".zip", "zipped:ZipLoader", None),
    (".bash .c .cc .cpp .cs .css .cxx .dart .go .h .hpp .java .jl .js .jsx .kt .lua", "source:SourceLoader", None),
    (".mjs .php .pl .ps1 .r .rb .rs .scala .sh .sql .swift .ts .tsx", "source:SourceLoader", None),
):
    for _suffix in _suffixes.split():
        loaders.declare(_suffix, f"lazyrag.loaders.{_target}", extra=_extra)

__all__ = ["DataLoader", "LoadLimits", "LoadedFile", "load_file", "loaders", "register_loader"]
