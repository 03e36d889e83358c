"""Encrypted and signed parts of mails, and blocks of PGP in texts: left out, and noted."""

from __future__ import annotations

import re

SEALED_PARTS = {
    "application/pgp-encrypted": "PGP message left out: it is encrypted",
    "application/pgp-keys": "PGP key left out",
    "application/pgp-signature": "PGP signature left out",
    "application/pkcs7-mime": "S/MIME content left out: it is encrypted or signed",
    "application/pkcs7-signature": "S/MIME signature left out",
    "application/x-pkcs7-mime": "S/MIME content left out: it is encrypted or signed",
    "application/x-pkcs7-signature": "S/MIME signature left out",
    "multipart/encrypted": "PGP message left out: it is encrypted",
}
_CLEAR = re.compile(
    r"^-----BEGIN PGP SIGNED MESSAGE-----[ \t]*\n(?:[A-Za-z]+:.*\n)*\n?", re.MULTILINE
)
_ARMOUR = re.compile(
    r"^[> ]*-----BEGIN (PGP [A-Z ]{3,40}|PKCS7)-----$(?:\n(?![> ]*-----BEGIN ).*)*?\n[> ]*-----END"
    r" \1-----[ \t]*$",
    re.MULTILINE,
)


def without_armour(text: str, notes: list[str]) -> str:
    r"""A body without blocks of PGP and PKCS7, each of which is noted; what is only signed stays.

    Example:
        >>> notes = []
        >>> mail = "Hi\n-----BEGIN PGP MESSAGE-----\n\nhQEMA\n-----END PGP MESSAGE-----"
        >>> without_armour(mail, notes), notes
        ('Hi', ['PGP message left out'])
    """
    if "-----BEGIN P" not in text:
        return text
    names = [block[1] for block in _ARMOUR.finditer(text)]
    notes += [f"{name[:3]}{name[3:].lower()} left out" for name in names]
    clear, signed = _CLEAR.subn("", text)
    without = _ARMOUR.sub("", clear)
    return (re.sub(r"^- (?=-)", "", without, flags=re.MULTILINE) if signed else without).strip()
