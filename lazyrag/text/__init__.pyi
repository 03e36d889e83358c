# The names of the package, for type checkers and editors.

from lazyrag.text.tokens import TiktokenCounter as TiktokenCounter
