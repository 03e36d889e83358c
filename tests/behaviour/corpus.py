"""The project's own sample corpus: Chinese and English, nested headings, duplicates, blank lines,
declared fields.

Nothing here is random and nothing depends on the machine: goldens are computed from these texts.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from lazyrag import DataType, DocField

COOKBOOK = Path(__file__).resolve().parents[2] / "cookbook" / "corpus"
MODIFIED = time.mktime((2024, 5, 1, 12, 0, 0, 0, 0, -1))  # the same day in every time zone

_TEAS = ("green tea", "black tea", "white tea", "oolong", "绿茶", "红茶", "白茶", "乌龙茶")
_TASKS = (
    "pruned",
    "weeded",
    "picked",
    "watered",
    "inspected",
    "采摘",
    "修剪",
    "施肥",
    "灌溉",
    "检查",
)
_PLOTS = (
    "Lower Pond",
    "Stone Ridge",
    "North Terrace",
    "Cloud Gate",
    "下塘",
    "石梁",
    "北坡",
    "云门",
)
_WEATHER = ("frost", "heavy rain", "fog", "bright sun", "hail", "霜冻", "大雨", "雾", "晴", "冰雹")


def _log(year: int, lines: int) -> str:
    """A field log whose lines repeat words in changing combinations."""
    written = []
    for day in range(1, lines + 1):
        step = day * 7 + year
        tea, task = _TEAS[step % 8], _TASKS[(step // 2) % 10]
        plot, weather = _PLOTS[(step // 3) % 8], _WEATHER[(step * 3) % 10]
        written.append(
            f"{year}-{1 + day % 12:02}-{1 + day % 28:02} {plot}: {tea} {task}, {weather}, {step % 37} kg."
        )
    return "\n".join(written) + "\n"


_GREEN = """# Green tea

Green tea is not oxidised. It is fired or steamed on the day it is picked.

## 1 Picking

One bud and two leaves. Pick before eleven; wet leaves are not picked.

### 1.1 Baskets

Baskets are of bamboo. A basket holds four kilograms, no more, or the leaves grow warm.

### 1.2 Weighing

Every basket is weighed twice. The second weight counts.

## 2 Firing

The pan is 220 degrees at first, then 120 degrees. Firing takes 25 minutes.

### 2.1 The pan

The pan is wiped with tea-seed oil. Never use soap.

## 3 Storage

Opened green tea keeps for five weeks. Keep it cool, dark and dry.
"""

_BLACK = """# 红茶

红茶要发酵。发酵的温度是28度，湿度是95%。

## 一、采摘

一芽二叶。雨天采的鲜叶不做红茶。

### （一）竹篓

竹篓装四公斤。鲜叶不能压。

## 二、萎凋

萎凋十六小时。前四个小时不翻，以后每两个小时翻一次。

## 三、发酵

叶子变红，发出花果香，就可以烘焙。Oxidation takes five hours.

## 四、烘焙

第一次烘焙120度，第二次80度。没有开封的红茶可以放三年。
"""

_MIXED = """# 双语须知 Bilingual notice

开放时间 Opening hours: 9:00-17:00, 周一闭馆 closed on Mondays.

## 门票 Tickets

成人 adults 40 yuan; 学生 students 20 yuan; 儿童免费 children free.

## 停车 Parking

停车场在下塘。The car park is at Lower Pond. 大客车请停在石梁 coaches: Stone Ridge.
"""

_SAME = """A line that stands in two files.
同一行出现在两个文件里。
Every basket is weighed twice. The second weight counts.
"""

FILES = {
    "guide/green.md": _GREEN,
    "guide/红茶.md": _BLACK,
    "guide/mixed.md": _MIXED,
    "notes/log-2023.txt": _log(2023, 40),
    "notes/log-2024.txt": _log(2024, 48),
    "notes/same-1.txt": _SAME,
    "notes/same-2.txt": _SAME,
    "notes/blank-lines.txt": "\n\n   \nOnly this line has words.\n\u3000\u3000\n\t\n也有中文。\n\n",
    "shop/page.html": (
        "<html><head><title>Shop</title></head><body><h1>Shop 店铺</h1><p>Green tea, 100 g, 168 yuan.</p>"
        "<table><tr><th>Tea</th><th>Price</th></tr><tr><td>红茶</td><td>128</td></tr></table>"
        "<h2>Returns 退货</h2><p>七天内可以退货。Return it within seven days, unopened.</p></body></html>"
    ),
    "shop/prices.csv": "tea,grade,price\n绿茶,first,168\nblack tea,second,98\nwhite tea,first,188\n",
    "shop/orders.json": (
        '{"orders": [{"id": 7, "tea": "oolong", "kg": 2.5}, {"id": 8, "tea": "白茶", "kg": 1, "gift": true}]}'
    ),
    "shop/one-word.txt": "tea",
}
FILE_METADATA = {
    "guide/green.md": {"author": "Luo Chunmei", "year": 2024, "tags": ["guide", "en"]},
    "guide/红茶.md": {"author": "邓守义", "year": 2025, "tags": ["guide", "zh"]},
    "guide/mixed.md": {"author": 'O\'Brien "x" \\ {y}', "tags": ["guide", "en", "zh"]},
    "notes/log-2023.txt": {"year": 2023, "tags": []},
    "notes/log-2024.txt": {"year": 2024, "tags": ["log"]},
    "shop/prices.csv": {"author": "何莉", "year": 2025},
}
FIELDS = {
    "author": DocField(DataType.VARCHAR, max_size=64, default_value="nobody"),
    "year": DocField(DataType.INT32),
    "tags": DocField(DataType.ARRAY, element_type=DataType.VARCHAR),
}


def write_corpus(folder: Path, only: Sequence[str] = ("",)) -> Path:
    """Write the files whose names begin with one of some texts; all have one time of
    modification.
    """
    for name, text in FILES.items():
        if name.startswith(tuple(only)):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            os.utime(path, (MODIFIED, MODIFIED))
    return folder


def copy_cookbook(folder: Path) -> Path:
    """Copy the cookbook's sample files; all have one time of modification."""
    shutil.copytree(COOKBOOK, folder)
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (MODIFIED, MODIFIED))
    return folder
