"""Documents of every format whose every passage names its document, and some that nobody can index."""

import random
from dataclasses import dataclass
from email.message import EmailMessage

from tests.end_to_end.conftest import ROOT
from tests.stages.hwp_writer import hwp
from tests.stages.make_samples import rtf
from tests.stages.office_writer import docx, epub, hwpx, odt, pptx, xlsx
from tests.stages.pdf_writer import pdf, pdf_of_a_picture

BROKEN = {
    "CORRUPT": (ROOT / "samples/broken/cut-short.pdf").read_bytes(),
    "PASSWORD_REQUIRED": (ROOT / "samples/broken/password-protected.pdf").read_bytes(),
    "NO_TEXT": pdf_of_a_picture(),
    "EMPTY": b"",
}
SAMPLES = {path.name: path.read_bytes() for path in sorted((ROOT / "samples").iterdir()) if path.is_file()}


@dataclass(frozen=True)
class Made:
    """A document to upload. ``mark`` is in its every passage; ``reason`` is why nobody can index it."""

    name: str
    content: bytes
    mark: str | None = None
    reason: str | None = None


def make(number: int, version: int, chance: random.Random) -> Made:
    """The document of this number: one in ten is a sample, one in twenty is broken, the rest is written here."""
    draw = chance.random()
    if version == 1 and draw < 0.05:
        reason = chance.choice(list(BROKEN))
        return Made(f"broken-{number}.pdf", BROKEN[reason], reason=reason)
    if version == 1 and draw < 0.15:
        name = chance.choice(list(SAMPLES))
        return Made(f"sample-{number}-{name}", SAMPLES[name])
    mark = f"chaos-{number}v{version}"
    form = FORMS[number % len(FORMS)]
    count = chance.choice((3, 10, 30))
    if form == "txt" and chance.random() < 0.3:
        count = 700  # more than one batch
    paragraphs = [
        f"{mark} says in line {line} what was measured and why. {mark} {line}번째 줄은 무엇을 왜 쟀는지 말한다."
        for line in range(count)
    ]
    return Made(f"{number}.{form}", written(form, mark, paragraphs), mark)


FORMS = ("txt", "pdf", "docx", "md", "hwpx", "html", "hwp", "pptx", "txt", "odt", "xlsx", "eml", "epub", "rtf", "csv")


def written(form: str, mark: str, paragraphs: list[str]) -> bytes:
    match form:
        case "pdf":
            return pdf([paragraphs[start : start + 5] for start in range(0, len(paragraphs), 5)], title=mark)
        case "docx":
            return docx([f"# {mark}", *paragraphs])
        case "hwpx":
            return hwpx(paragraphs)
        case "hwp":
            return hwp(paragraphs)
        case "pptx":
            return pptx([[mark, *paragraphs[start : start + 5]] for start in range(0, len(paragraphs), 5)])
        case "odt":
            return odt([f"# {mark}", *paragraphs])
        case "xlsx":
            return xlsx({"sheet": [[str(line), text] for line, text in enumerate(paragraphs)]})
        case "epub":
            return epub({"chapter": "".join(f"<p>{text}</p>" for text in paragraphs)}, title=mark)
        case "eml":
            mail = EmailMessage()
            mail["From"], mail["To"], mail["Subject"] = "a@example.com", "b@example.com", mark
            mail.set_content("\n\n".join(paragraphs))
            return bytes(mail)
        case "rtf":
            return rtf(paragraphs)
        case "html":
            return f"<html><body>{''.join(f'<p>{text}</p>' for text in paragraphs)}</body></html>".encode()
        case "csv":
            return "\n".join(f'{line},"{text}"' for line, text in enumerate(paragraphs)).encode()
        case _:
            return "\n\n".join(paragraphs).encode()
