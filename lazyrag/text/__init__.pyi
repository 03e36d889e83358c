# The names of the package, for type checkers and editors.

from lazyrag.text.analyzers import register_chinese_analyser as register_chinese_analyser
from lazyrag.text.tokens import TiktokenCounter as TiktokenCounter
