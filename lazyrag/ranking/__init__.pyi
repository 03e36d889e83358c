# The names of the package, for type checkers and editors.

from lazyrag.ranking.fusion import ReciprocalRankFusion as ReciprocalRankFusion
from lazyrag.ranking.fusion import register_fusion as register_fusion
from lazyrag.ranking.scores import KeywordSetting as KeywordSetting
from lazyrag.ranking.scores import VectorSetting as VectorSetting
from lazyrag.ranking.scores import Weights as Weights
