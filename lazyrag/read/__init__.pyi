# The names of the package, for type checkers and editors.

from lazyrag.read.explore import glob as glob
from lazyrag.read.explore import grep as grep
from lazyrag.read.explore import near_duplicates as near_duplicates
from lazyrag.read.explore import outline as outline
from lazyrag.read.explore import related as related
from lazyrag.read.markdown import to_markdown as to_markdown
from lazyrag.read.page_marks import marks as marks
from lazyrag.read.page_marks import page_image as page_image
from lazyrag.read.supersession import superseded as superseded
