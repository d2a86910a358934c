"""Bytes of a text file to text.

UTF-8 and byte order marks are certain. What is left is a guess, and the Korean, Japanese and Chinese
encodings accept nearly each other's every byte: a short Korean file read as Shift-JIS is valid half-width
katakana, read as GBK it is valid rare hanzi. So each candidate is judged by how common its characters are in
the language it would be: Hangul of the 2,350 syllables of KS X 1001, kana, kanji and hanzi of the first
level, accented and Cyrillic letters. The rest is left to charset_normalizer.
"""

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass

from .invalid import Reason, content_invalid

SAMPLE_BYTES = 128 * 1024
# Below this share of characters that are usual for a language, the text is not in that language.
USUAL_SHARE = 0.6
# A log file with one broken byte is still that log file. Where the document names its encoding, more may be broken.
BROKEN_SHARE = 0.004
BROKEN_SHARE_DECLARED = 0.02

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# What pages and mails declare, and what they mean by it: the superset that Windows writes.
_MEANT = {
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "ks_c_5601-1989": "cp949",
    "ksc5601": "cp949",
    "windows-949": "cp949",
    "shift_jis": "cp932",
    "shift-jis": "cp932",
    "sjis": "cp932",
    "x-sjis": "cp932",
    "windows-31j": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso-8859-1": "cp1252",
    "us-ascii": "cp1252",
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """Text, the name of its encoding, and how many broken bytes became U+FFFD."""

    text: str
    encoding: str
    broken: int = 0


def decode(content: bytes, declared: str | None = None) -> Decoded:
    """Decode a text file.

    Args:
        declared: the encoding that the document itself names, as an HTML page does. It is believed unless
            the content is UTF-8, or cannot be in it.

    Raises:
        StageFailed: UNSUPPORTED_TYPE when it is no text, ENCODING_UNKNOWN when no encoding fits.
    """
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            plain_name = encoding.removesuffix("-sig")
            if (marked := _strict(content, encoding)) is not None:
                return Decoded(marked, plain_name)
            raise content_invalid(
                Reason.ENCODING_UNKNOWN,
                f"the file begins with the byte order mark of {plain_name.upper()} but does not go on in it: "
                "save it as UTF-8",
            )

    if wide := _utf16_without_mark(content):
        return wide
    if b"\x1b$" in content:  # seven bits with escape sequences: valid UTF-8, but not meant so
        for seven_bit in ("iso2022_jp_2", "iso2022_kr"):
            if (escaped := _strict(content, seven_bit)) is not None:
                return Decoded(escaped, seven_bit)
    text = _strict(content, "utf-8")
    _refuse_binary(content, share=0.02 if text is None else 0.1)
    if text is not None:
        return Decoded(text, "utf-8")

    believed = known_encoding(declared) if declared else None
    if believed and (found := _tolerant(content, believed, BROKEN_SHARE_DECLARED)):
        return found
    for likely in _by_likelihood(_sample(content)):
        if found := _tolerant(content, likely, BROKEN_SHARE):
            return found
    raise content_invalid(
        Reason.ENCODING_UNKNOWN,
        "the text is in none of the encodings that could be recognised (UTF-8, UTF-16, CP949/EUC-KR, "
        "Shift-JIS, EUC-JP, GB18030, Big5, Windows code pages): save it as UTF-8",
    )


def known_encoding(declared: str) -> str | None:
    """Python's name of an encoding as pages and mails write it; None if there is no such encoding."""
    name = declared.strip().strip("\"'").lower()
    try:
        info = codecs.lookup(_MEANT.get(name, name))
    except (LookupError, ValueError):
        return None
    return info.name if info._is_text_encoding else None


def _strict(content: bytes, encoding: str) -> str | None:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        return None


def _tolerant(content: bytes, encoding: str, share: float) -> Decoded | None:
    """Decode with broken bytes as U+FFFD, if they are few; None if they are not."""
    text = content.decode(encoding, errors="replace")
    broken = text.count("\ufffd")
    return Decoded(text, encoding, broken) if broken <= len(text) * share else None


def _utf16_without_mark(content: bytes) -> Decoded | None:
    """UTF-16 gives itself away by the zero byte of each space, digit and Latin letter."""
    sample = content[: SAMPLE_BYTES & ~1]
    zeros = sample.count(0) / max(1, len(sample))
    if len(content) % 2 or zeros < 0.02:
        return None
    if zeros < 0.2 and _usual_blocks(sample.replace(b"\0", b"").decode("ascii", errors="replace")) > 0.98:
        return None  # plain text in which some zeros were left behind
    shares = {
        encoding: _usual_blocks(sample.decode(encoding, errors="replace")) for encoding in ("utf-16-le", "utf-16-be")
    }
    likelier = max(shares, key=lambda encoding: shares[encoding])
    text = _strict(content, likelier)
    return Decoded(text, likelier) if text is not None and shares[likelier] >= 0.98 else None


def _usual_blocks(text: str) -> float:
    """The share of characters from the blocks that living languages use most: a guard against chance."""
    return len(_USUAL_BLOCK.findall(text)) / max(1, len(text))


_USUAL_BLOCK = re.compile(
    "[\\t\\n\\f\\r -~\u00a0-\u052f\u2010-\u206f\u2100-\u22ff\u2460-\u27bf"
    "\u3000-\u33ff\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef]"
)


def _refuse_binary(content: bytes, share: float) -> None:
    """Refuse what has more controls than ``share``; random bytes have a tenth."""
    sample = content[:SAMPLE_BYTES]
    controls = sum(sample.count(code) for code in _CONTROLS)
    if controls > max(4, len(sample) * share):
        raise content_invalid(Reason.UNSUPPORTED_TYPE, "the file is neither a document of a known format nor text")


_CONTROLS = [bytes([code]) for code in range(0x20) if code not in (0x09, 0x0A, 0x0C, 0x0D, 0x1B)]
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffe\uffff]")


def _sample(content: bytes) -> bytes:
    """The beginning, cut where no character can be cut: at the end of a line, or behind a space."""
    if len(content) <= SAMPLE_BYTES:
        return content
    sample = content[:SAMPLE_BYTES]
    end = max(sample.rfind(b"\n"), sample.rfind(b" "))
    return sample[: end + 1] or sample


def _by_likelihood(sample: bytes) -> list[str]:
    """The encodings that ``sample`` may be in, the likeliest first."""
    # A long UTF-8 file with one broken byte: nothing else looks like it.
    if len(sample) - len(sample.decode("utf-8", errors="ignore").encode()) <= len(sample) * BROKEN_SHARE:
        return ["utf-8"]
    shares = {encoding: _usual_share(sample, encoding, share) for encoding, share in _CANDIDATES.items()}
    likely = [encoding for encoding, share in shares.items() if share >= USUAL_SHARE]
    likely.sort(key=lambda encoding: -shares[encoding])  # stable: of two alike, the first of _CANDIDATES
    return likely or _guess(sample)


def _usual_share(sample: bytes, encoding: str, share: Callable[[str], float]) -> float:
    text = sample.decode(encoding, errors="replace")
    return share(text) if text.count("\ufffd") <= len(text) * BROKEN_SHARE else 0.0


def _of_characters(weight: Callable[[str], float], factor: float = 1.0) -> Callable[[str], float]:
    def share(text: str) -> float:
        beyond_ascii = [character for character in text if character > "\x7f"]
        return factor * sum(map(weight, beyond_ascii)) / max(1, len(beyond_ascii))

    return share


def _lead(character: str, encoding: str) -> int:
    """The first of the two bytes of a character in ``encoding``; 0 if it is not of two bytes there."""
    try:
        raw = character.encode(encoding)
    except UnicodeEncodeError:
        return 0
    return raw[0] if len(raw) == 2 else 0


def _korean(character: str) -> float:
    if "가" <= character <= "힣":
        # The 8,822 syllables that only CP949 has are rare, and what other encodings turn into.
        return 1.0 if _lead(character, "euc_kr") else 0.3
    if _is_ideograph(character):
        return 0.4
    if "ㄱ" <= character <= "ㆎ":
        return 0.85 if character in "ㄱㄴㄷㅇㅋㅎㅜㅠㅡ" else 0.2  # people type ㅋㅋ and ㅠㅠ; the rest is EUC-JP kana
    return 0.65 if 0xA1 <= _lead(character, "euc_kr") <= 0xA9 else 0.0  # units, punctuation


def _japanese(character: str) -> float:
    if "ぁ" <= character <= "ヿ":
        return 1.0
    if _is_ideograph(character):
        return 0.9 if 0x88 <= _lead(character, "shift_jis") <= 0x97 else 0.4
    if "｡" <= character <= "ﾟ":
        return 0.3  # half-width katakana: what CP949 turns into
    return 0.6 if 0x81 <= _lead(character, "shift_jis") <= 0x84 else 0.0


def _simplified(character: str) -> float:
    common = 0xA1 <= _lead(character, "gb2312") <= 0xD7
    return 0.75 if common and _is_ideograph(character) else 0.5 if common else 0.2


def _traditional(character: str) -> float:
    common = 0xA1 <= _lead(character, "big5") <= 0xC6
    return 0.7 if common and _is_ideograph(character) else 0.5 if common else 0.2


def _western(text: str) -> float:
    """Accented letters stand among plain ones; without those it is something else."""
    beyond_ascii = sum(character > "\x7f" for character in text)
    plain = sum(character.isascii() and character.isalpha() for character in text)
    return _of_characters(lambda character: character in _WESTERN)(text) if beyond_ascii < plain else 0.0


def _cyrillic(text: str) -> float:
    """Words are small letters after at most one capital: KOI8-R read as CP1251 comes out the other way."""
    words = re.findall(r"[А-яЁё]{2,}", text)
    letters = sum(len(word) for word in words if word[1:].islower() or (word.isupper() and len(word) < 6))
    return letters / max(1, sum(character > "\x7f" for character in text))


def _is_ideograph(character: str) -> bool:
    return "一" <= character <= "鿿" or "豈" <= character <= "﫿"


_WESTERN = frozenset("àâäáãåæçéèêëíìîïñóòôöõøœúùûüýÿßÀÂÄÁÃÅÆÇÉÈÊËÍÎÏÑÓÔÖÕØŒÚÙÛÜ€£§©®°·«»¿¡“”„‘’–—…•ºª½²³\u00a0")

# EUC-JP, GBK and Big5 read most Korean text as their own, so they must be that much likelier.
_CANDIDATES: dict[str, Callable[[str], float]] = {
    "cp949": _of_characters(_korean),
    "cp932": _of_characters(_japanese),
    "cp1252": _western,
    "koi8_r": _cyrillic,
    "cp1251": _cyrillic,
    "euc_jp": _of_characters(_japanese, 0.8),
    "gb18030": _of_characters(_simplified),
    "big5hkscs": _of_characters(_traditional),
}
_LEFT_TO_GUESS = ["cp1250", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp874"]


def _guess(sample: bytes) -> list[str]:
    from charset_normalizer import from_bytes  # 40 ms to import, and seldom needed

    best = from_bytes(sample[: 32 * 1024], cp_isolation=_LEFT_TO_GUESS, threshold=0.1).best()
    if best is None or _CONTROL.search(sample.decode(best.encoding, errors="replace")):
        return []
    return [best.encoding]
