"""A document that names places elsewhere makes its reader go nowhere."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from domain.failures import StageFailed
from stages.parse import parse
from tests.stages.office_writer import docx, epub, odt, xlsx, zipped
from tests.stages.pdf_writer import pdf

TEXT = "환불은 7일 안에 신청합니다. Refunds are due within seven days."


class Listener:
    """A server that hears who calls."""

    def __init__(self) -> None:
        heard = self.heard = list[str]()

        class Handler(BaseHTTPRequestHandler):
            def parse_request(self) -> bool:  # of any method
                heard.append(str(getattr(self, "raw_requestline", b"")))
                return super().parse_request()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    thread = threading.Thread(target=listener.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield listener
    listener.server.shutdown()
    listener.server.server_close()
    thread.join()


def documents(url: str) -> dict[str, bytes]:
    """Documents that ask their reader to fetch something, each in the way of its format."""
    drawing = (
        f'<w:p><w:r><w:instrText>INCLUDETEXT "{url}/docx-field"</w:instrText></w:r></w:p>'
        f'<w:p><w:r><w:instrText>INCLUDEPICTURE "file:///etc/passwd"</w:instrText></w:r></w:p>'
    )
    html = (
        f'<html><head><base href="{url}/"><link rel="stylesheet" href="{url}/css"><script src="{url}/js"></script>'
        f'<meta http-equiv="refresh" content="0;url={url}/refresh"></head><body><p>{TEXT}</p><img src="{url}/img">'
        f'<iframe src="{url}/frame"></iframe><object data="file:///etc/passwd"></object>'
        f'<svg><image href="{url}/svg"/></svg></body></html>'
    )
    mail = (
        "From: a@example.com\r\nSubject: x\r\nMIME-Version: 1.0\r\n"
        'Content-Type: multipart/mixed; boundary="b"\r\n\r\n--b\r\nContent-Type: text/plain; charset=utf-8\r\n'
        f"Content-Transfer-Encoding: 8bit\r\n\r\n{TEXT}\r\n--b\r\n"
        f'Content-Type: message/external-body; access-type=URL; URL="{url}/external"\r\n\r\n--b\r\n'
        f'Content-Type: text/html\r\n\r\n<p>x<img src="{url}/mail"></p>\r\n--b--\r\n'
    )
    hostile = f'<!DOCTYPE a [<!ENTITY x SYSTEM "{url}/entity"><!ENTITY % y SYSTEM "{url}/dtd"> %y;]>'
    return {
        "page.html": html.encode(),
        "field.docx": docx([TEXT], body=drawing),
        "formula.xlsx": xlsx({"a": [[TEXT, f'=WEBSERVICE("{url}/formula")', f'=HYPERLINK("{url}/link")']]}),
        "link.odt": odt([TEXT, f"{url}/odt"]),
        "book.epub": epub({"one": f'<p>{TEXT}</p><img src="{url}/epub" alt=""/>'}, title="t"),
        "action.pdf": pdf([[TEXT, f"{url}/pdf"]]),
        "letter.eml": mail.encode(),
        "field.rtf": (
            "{\\rtf1\\ansi " + "Refunds are due within seven days. "
            f'{{\\field{{\\*\\fldinst INCLUDEPICTURE "{url}/rtf"}}{{\\fldrslt x}}}}' + "}"
        ).encode(),
        "entity.xml": f'<?xml version="1.0"?>{hostile}<a>&x; {TEXT}</a>'.encode(),
        "entity.hwpx": zipped(
            {"mimetype": "application/hwp+zip", "Contents/section0.xml": f"{hostile}<a>&x;{TEXT}</a>"}, ("mimetype",)
        ),
    }


def test_no_document_makes_its_reader_call_anyone_or_open_a_file(listener: Listener) -> None:
    for name, content in documents(listener.url).items():
        try:
            text = parse(content, name).text
        except StageFailed:
            continue  # refused for what it is
        assert "root:" not in text, name
    assert listener.heard == []
