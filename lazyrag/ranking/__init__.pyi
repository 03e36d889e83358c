# The names of the package, for type checkers and editors.

from lazyrag.ranking.fusion import KeywordSetting as KeywordSetting
from lazyrag.ranking.fusion import ReciprocalRankFusion as ReciprocalRankFusion
from lazyrag.ranking.fusion import VectorSetting as VectorSetting
from lazyrag.ranking.fusion import Weights as Weights
from lazyrag.ranking.fusion import register_fusion as register_fusion
