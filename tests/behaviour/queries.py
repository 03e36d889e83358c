"""Five hundred queries and the filters, made by arithmetic."""

from __future__ import annotations

import datetime as dt
from itertools import islice
from typing import Any

from lazyrag import And, Condition, Not, Or

BLOCK = 20

_SPECIAL = (
    "How long does opened green tea keep?",
    "红茶发酵的温度",
    "Every basket is weighed twice. The second weight counts.",
    "Stone Ridge frost",
    "停车场 car park",
    "tea",
    "茶",
    "退货 return within seven days",
    "no such words zebra quagga",
    "",
    "   ",
    "!?。，",
    "the of and",
    "2024-05-06",
    "GREEN TEA green tea Green Tea",
    "采摘" * 40,
    "é̀ ﬁring ＴＥＡ",
    'O\'Brien "x" \\ {y}',
    "怎么采摘绿茶？",
    "oolong 2.5 kg",
)
_WORDS = (
    "tea green black white oolong pan firing basket bamboo weighed twice bud leaves pick pruned weeded "
    "watered inspected frost rain fog sun hail Lower Pond Stone Ridge North Terrace Cloud Gate yuan price "
    "open closed Mondays storage keep 绿茶 红茶 白茶 乌龙茶 采摘 修剪 施肥 灌溉 检查 下塘 石梁 北坡 云门 "
    "霜冻 大雨 雾 晴 冰雹 发酵 萎凋 烘焙 竹篓 公斤 温度 湿度 门票 学生 停车 退货 小时 雨天 鲜叶 unknown "
    "不存在"
).split()


def _drawn(count: int) -> list[str]:
    """Queries of one to five words each."""
    found = []
    for number in range(count):
        length = 1 + number % 5
        picked = [
            _WORDS[(number * 31 + position * (7 + number % 11)) % len(_WORDS)]
            for position in range(length)
        ]
        found.append(" ".join(picked))
    return found


QUERIES = (*_SPECIAL, *_drawn(500 - len(_SPECIAL)))
BLOCKS = tuple(
    tuple(islice(QUERIES, start, start + BLOCK)) for start in range(0, len(QUERIES), BLOCK)
)

FILTERS: dict[str, Any] = {
    "none": None,
    "values": {"author": ["邓守义", "nobody"], "file_type": [".md", "txt"]},
    "range": Condition("year", ">=", 2024)
    & Condition("last_modified_date", "<=", dt.date(2024, 6, 1)),
    "not": Not(Condition("author", "contains", "o")) | Condition("year", "exists", False),
    "array": Or(
        Condition("tags", "in", ["zh", "log"]),
        And(Condition("tags", "exists"), Condition("year", "<", 2024)),
    ),
    "narrow": {"file_name": ["mixed.md"]},
    "never": Or(),
}
