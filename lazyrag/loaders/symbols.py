"""Characters of the fonts Symbol and Wingdings, which office files store as codes of the font; and
readings above words.
"""

from __future__ import annotations

_SYMBOL = (
    " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾"
    "αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"
)
_SYMBOL_FROM_A0 = (
    "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓"
    "◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪\uf8ff〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭"
)
_WINGDINGS_CODES = bytes.fromhex(
    "2228292A3F41454647484A4C5152546C6D6E6F71727374757677"
    "789FA1A7A8ABD8DCDFE0E1E2E3E4E5E6E8EFF0F1F2F3F4FBFCFDFE"
)
_WINGDINGS = "✂☎✆✉✍✌☜☞☝☟☺☹✈☼❄●❍■□❑❒⬧⧫◆❖⬥⌧•○▪◻★➢➲←→↑↓↖↗↙↘➔⇦⇨⇧⇩⬄⇳✗✓☒☑"
_WINGDINGS_FROM_80 = "⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿"
_FONTS = {
    "symbol": {
        **dict(enumerate(_SYMBOL, start=0x20)),
        **dict(enumerate(_SYMBOL_FROM_A0, start=0xA0)),
    },
    "wingdings": {
        **dict(zip(_WINGDINGS_CODES, _WINGDINGS, strict=True)),
        **dict(enumerate(_WINGDINGS_FROM_80, start=0x80)),
    },
    "wingdings 2": dict(enumerate("✗✓☒☑☒", start=0x4F)),
}
_PRIVATE = 0xF000
"""Where office programs store codes of such fonts."""


def with_reading(base: str, reading: str) -> str:
    """A word with the reading above it (ruby), which follows it in brackets.

    Example:
        >>> with_reading("漢字", "かんじ")
        '漢字(かんじ)'
    """
    return f"{base}({reading.strip()})" if reading.strip() else base


def is_symbol_font(font: str) -> bool:
    """Whether `symbol_text` supports a font."""
    return font.lower() in _FONTS


def symbol_text(text: str, font: str) -> str:
    r"""Replace the codes of a symbol font by characters; those of other fonts stay.

    Args:
        text: Its characters, as codes of the font or from U+F020 on.
        font: The font's name.

    Example:
        >>> symbol_text("\uf0b3m", "Symbol"), symbol_text("\uf0e0", "Wingdings")
        ('≥μ', '→')
    """
    characters = _FONTS.get(font.lower())
    if characters is None:
        return text
    codes = (ord(character) for character in text)
    return "".join(
        characters.get(code - _PRIVATE if code >= _PRIVATE else code, chr(code)) for code in codes
    )
