"""Korean or English, as the caller's Accept-Language prefers; Korean where it says nothing."""

from typing import Annotated, Literal

from fastapi import Depends, Header

from domain.explanations import explain

Language = Literal["ko", "en"]

PROCESSING: dict[Language, str] = {
    "ko": "일부 파일이 처리 중입니다. 잠시 후 다시 시도해주세요.",
    "en": "Some files are still being processed. Please try again in a moment.",
}


def preferred(accept_language: str) -> Language:
    """The better of the two by RFC 9110 12.5.4; a language that is neither says nothing."""
    best: tuple[float, Language] = (0.0, "ko")
    for part in accept_language.split(",")[:50]:
        tag, _, parameters = part.strip().partition(";")
        name, _, weight = parameters.strip().partition("=")
        try:
            quality = float(weight) if name.strip() == "q" else 1.0
        except ValueError:
            continue
        for language in ("ko", "en"):
            if tag.strip().lower().split("-")[0] == language and quality > best[0]:
                best = (quality, language)
    return best[1]


async def _language(accept_language: Annotated[str, Header()] = "") -> Language:
    return preferred(accept_language)


PreferredLanguage = Annotated[Language, Depends(_language)]


def explanation(language: Language, failure_type: str, failure_reason: str | None) -> str:
    """What a failure means to the document's owner."""
    words = explain(failure_type, failure_reason)
    return words.korean if language == "ko" else words.english


def spoken(language: Language) -> dict[str, str]:
    """Headers of an answer with words in it."""
    return {"Content-Language": language, "Vary": "Accept-Language"}
