"""Small office documents, written by hand: DOCX, PPTX, XLSX, ODT, EPUB, HWPX. All are XML in a ZIP archive."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

Rows = Sequence[Sequence[str]]

_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_VENDOR = "application/vnd.openxmlformats-officedocument"


def zipped(entries: Mapping[str, str | bytes], stored: Sequence[str] = ()) -> bytes:
    """A ZIP archive; every time in it is the same, so that the same content gives the same bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in entries.items():
            info = zipfile.ZipInfo(name, (2025, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_STORED if name in stored else zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return out.getvalue()


def docx(paragraphs: Sequence[str], table: Rows = (), title: str = "", body: str = "") -> bytes:
    """A Word document; ``# `` and ``## `` before a paragraph make it a heading.

    Args:
        body: XML to put behind the paragraphs.
    """
    parts = []
    for text in paragraphs:
        level = len(text) - len(text.lstrip("#"))
        style = f'<w:pPr><w:pStyle w:val="Heading{level}"/></w:pPr>' if level else ""
        parts.append(f"<w:p>{style}{_run(text.lstrip('# '))}</w:p>")
    if table:
        rows = "".join(
            "<w:tr>" + "".join(f"<w:tc><w:tcPr/><w:p>{_run(cell)}</w:p></w:tc>" for cell in row) + "</w:tr>"
            for row in table
        )
        parts.append(f"<w:tbl><w:tblPr/><w:tblGrid/>{rows}</w:tbl><w:p/>")
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    headings = "".join(
        f'<w:style w:type="paragraph" w:styleId="Heading{level}"><w:name w:val="heading {level}"/>'
        f'<w:pPr><w:outlineLvl w:val="{level - 1}"/></w:pPr><w:rPr><w:b/><w:sz w:val="{36 - 4 * level}"/></w:rPr>'
        "</w:style>"
        for level in (1, 2)
    )
    return zipped(
        {
            "[Content_Types].xml": _types(
                {
                    "/word/document.xml": f"{_VENDOR}.wordprocessingml.document.main+xml",
                    "/word/styles.xml": f"{_VENDOR}.wordprocessingml.styles+xml",
                    "/docProps/core.xml": "application/vnd.openxmlformats-package.core-properties+xml",
                }
            ),
            "_rels/.rels": _relations([("officeDocument", "word/document.xml")], core=True),
            "word/_rels/document.xml.rels": _relations([("styles", "styles.xml")]),
            "word/document.xml": f'{_XML}<w:document xmlns:w="{word}"><w:body>'
            f"{''.join(parts)}{body}</w:body></w:document>",
            "word/styles.xml": f'{_XML}<w:styles xmlns:w="{word}">{headings}</w:styles>',
            "docProps/core.xml": _core(title),
        }
    )


def _run(text: str) -> str:
    pieces = [f'<w:t xml:space="preserve">{escape(piece)}</w:t>' for piece in text.split("\t")]
    return f"<w:r>{'<w:tab/>'.join(pieces)}</w:r>"


def pptx(slides: Sequence[Sequence[str]], notes: Mapping[int, str] | None = None, title: str = "") -> bytes:
    """A presentation; the first text of a slide is its title. ``notes``: by slide, from 1."""
    main = "http://schemas.openxmlformats.org/presentationml/2006/main"
    names = f'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:r="{_OFFICE}" xmlns:p="{main}"'
    group = (
        '<p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr><a:xfrm/></p:grpSpPr>'
    )

    def shape(number: int, kind: str, texts: Sequence[str], top: int) -> str:
        paragraphs = "".join(f"<a:p><a:r><a:t>{escape(text)}</a:t></a:r></a:p>" for text in texts)
        return (
            f'<p:sp><p:nvSpPr><p:cNvPr id="{number}" name="{kind} {number}"/><p:cNvSpPr/>'
            f'<p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>'
            f'<p:spPr><a:xfrm><a:off x="600000" y="{top}"/><a:ext cx="7900000" cy="1200000"/></a:xfrm></p:spPr>'
            f"<p:txBody><a:bodyPr/>{paragraphs}</p:txBody></p:sp>"
        )

    entries: dict[str, str | bytes] = {}
    types = {"/ppt/presentation.xml": f"{_VENDOR}.presentationml.presentation.main+xml"}
    relations = []
    for number, texts in enumerate(slides, 1):
        shapes = shape(2, "title", texts[:1], 400_000) + shape(3, "body", texts[1:], 1_800_000)
        entries[f"ppt/slides/slide{number}.xml"] = (
            f"{_XML}<p:sld {names}><p:cSld><p:spTree>{group}{shapes}</p:spTree></p:cSld></p:sld>"
        )
        types[f"/ppt/slides/slide{number}.xml"] = f"{_VENDOR}.presentationml.slide+xml"
        relations.append(("slide", f"slides/slide{number}.xml"))
        if notes and number in notes:
            entries[f"ppt/notesSlides/notesSlide{number}.xml"] = (
                f"{_XML}<p:notes {names}><p:cSld><p:spTree>{group}{shape(2, 'body', [notes[number]], 0)}"
                "</p:spTree></p:cSld></p:notes>"
            )
            types[f"/ppt/notesSlides/notesSlide{number}.xml"] = f"{_VENDOR}.presentationml.notesSlide+xml"
            entries[f"ppt/slides/_rels/slide{number}.xml.rels"] = _relations(
                [("notesSlide", f"../notesSlides/notesSlide{number}.xml")]
            )
    listed = "".join(f'<p:sldId id="{255 + n}" r:id="rId{n}"/>' for n in range(1, len(slides) + 1))
    return zipped(
        {
            "[Content_Types].xml": _types(types),
            "_rels/.rels": _relations([("officeDocument", "ppt/presentation.xml")], core=True),
            "ppt/presentation.xml": f"{_XML}<p:presentation {names}><p:sldIdLst>{listed}</p:sldIdLst>"
            '<p:sldSz cx="9144000" cy="6858000"/><p:notesSz cx="6858000" cy="9144000"/></p:presentation>',
            "ppt/_rels/presentation.xml.rels": _relations(relations),
            "docProps/core.xml": _core(title),
            **entries,
        }
    )


def xlsx(sheets: Mapping[str, Rows], formats: Sequence[str] = (), cells: str = "") -> bytes:
    """A spreadsheet; cells that look like numbers are numbers, all others share their strings.

    Args:
        formats: number formats for cells written as ``{format}number``: ``{0}45901`` has the first.
        cells: XML of further rows of the first sheet.
    """
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    strings: dict[str, int] = {}

    def cell(value: str, reference: str) -> str:
        style, number = "", value
        if value.startswith("{"):
            index, _, number = value[1:].partition("}")
            style = f' s="{int(index) + 1}"'
        if number.replace(".", "", 1).replace("-", "", 1).isdigit():
            return f'<c r="{reference}"{style}><v>{number}</v></c>'
        return f'<c r="{reference}" t="s"><v>{strings.setdefault(value, len(strings))}</v></c>'

    entries: dict[str, str | bytes] = {}
    types = {
        "/xl/workbook.xml": f"{_VENDOR}.spreadsheetml.sheet.main+xml",
        "/xl/sharedStrings.xml": f"{_VENDOR}.spreadsheetml.sharedStrings+xml",
        "/xl/styles.xml": f"{_VENDOR}.spreadsheetml.styles+xml",
    }
    for number, rows in enumerate(sheets.values(), 1):
        data = "".join(
            f'<row r="{r}">' + "".join(cell(value, f"{chr(64 + c)}{r}") for c, value in enumerate(row, 1)) + "</row>"
            for r, row in enumerate(rows, 1)
        )
        data += cells if number == 1 else ""
        entries[f"xl/worksheets/sheet{number}.xml"] = (
            f'{_XML}<worksheet xmlns="{main}"><sheetData>{data}</sheetData></worksheet>'
        )
        types[f"/xl/worksheets/sheet{number}.xml"] = f"{_VENDOR}.spreadsheetml.worksheet+xml"
    listed = "".join(f'<sheet name={quoteattr(n)} sheetId="{i}" r:id="rId{i}"/>' for i, n in enumerate(sheets, 1))
    shared = "".join(f"<si><t>{escape(text)}</t></si>" for text in strings)
    own = "".join(f'<numFmt numFmtId="{164 + i}" formatCode={quoteattr(f)}/>' for i, f in enumerate(formats))
    styled = "".join(f'<xf numFmtId="{164 + i}" xfId="0" applyNumberFormat="1"/>' for i in range(len(formats)))
    plain = "<fonts><font/></fonts><fills><fill/></fills><borders><border/></borders><cellStyleXfs><xf/></cellStyleXfs>"
    relations = [("worksheet", f"worksheets/sheet{n}.xml") for n in range(1, len(sheets) + 1)]
    return zipped(
        {
            "[Content_Types].xml": _types(types),
            "_rels/.rels": _relations([("officeDocument", "xl/workbook.xml")]),
            "xl/workbook.xml": f'{_XML}<workbook xmlns="{main}" xmlns:r="{_OFFICE}">'
            f"<sheets>{listed}</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": _relations(
                [*relations, ("sharedStrings", "sharedStrings.xml"), ("styles", "styles.xml")]
            ),
            "xl/sharedStrings.xml": f'{_XML}<sst xmlns="{main}">{shared}</sst>',
            "xl/styles.xml": f'{_XML}<styleSheet xmlns="{main}"><numFmts>{own}</numFmts>{plain}'
            f'<cellXfs><xf numFmtId="0" xfId="0"/>{styled}</cellXfs></styleSheet>',
            **entries,
        }
    )


def odt(paragraphs: Sequence[str], table: Rows = (), manifest: str = "") -> bytes:
    """An OpenDocument text; ``# `` before a paragraph makes it a heading."""
    space = "urn:oasis:names:tc:opendocument:xmlns"
    body = "".join(
        f'<text:h text:outline-level="1">{escape(text[2:])}</text:h>'
        if text.startswith("# ")
        else f"<text:p>{escape(text)}</text:p>"
        for text in paragraphs
    )
    if table:
        rows = "".join(
            "<table:table-row>"
            + "".join(f"<table:table-cell><text:p>{escape(c)}</text:p></table:table-cell>" for c in row)
            + "</table:table-row>"
            for row in table
        )
        columns = f'<table:table-column table:number-columns-repeated="{len(table[0])}"/>'
        body += f'<table:table table:name="t">{columns}{rows}</table:table>'
    kind = "application/vnd.oasis.opendocument.text"
    return zipped(
        {
            "mimetype": kind,
            "content.xml": f'{_XML}<office:document-content xmlns:office="{space}:office:1.0" '
            f'xmlns:text="{space}:text:1.0" xmlns:table="{space}:table:1.0" office:version="1.2">'
            f"<office:body><office:text>{body}</office:text></office:body></office:document-content>",
            "META-INF/manifest.xml": f'{_XML}<manifest:manifest xmlns:manifest="{space}:manifest:1.0" '
            f'manifest:version="1.2"><manifest:file-entry manifest:full-path="/" manifest:media-type="{kind}"/>'
            '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/>'
            f"{manifest}</manifest:manifest>",
        },
        stored=["mimetype"],
    )


def epub(chapters: Mapping[str, str], title: str, extra: Mapping[str, str] | None = None) -> bytes:
    """A book; ``chapters``: heading and HTML."""
    manifest = "".join(
        f'<item id="c{n}" href="text/c{n}.xhtml" media-type="application/xhtml+xml"/>'
        for n in range(1, len(chapters) + 1)
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(1, len(chapters) + 1))
    contents = "".join(f'<li><a href="text/c{n}.xhtml">{escape(h)}</a></li>' for n, h in enumerate(chapters, 1))
    html = 'html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"'
    pages = {
        f"OEBPS/text/c{n}.xhtml": f"{_XML}<!DOCTYPE html><{html}><head><title/></head><body><h1>{escape(heading)}</h1>"
        f"{content}</body></html>"
        for n, (heading, content) in enumerate(chapters.items(), 1)
    }
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": f'{_XML}<container version="1.0" '
            'xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile '
            'full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
            "OEBPS/content.opf": f'{_XML}<package xmlns="http://www.idpf.org/2007/opf" version="3.0" '
            'unique-identifier="id"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
            f'<dc:identifier id="id">holdfast</dc:identifier><dc:title>{escape(title)}</dc:title>'
            '<dc:language>ko</dc:language><meta property="dcterms:modified">2025-01-01T00:00:00Z</meta></metadata>'
            '<manifest><item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
            f"{manifest}</manifest><spine>{spine}</spine></package>",
            "OEBPS/nav.xhtml": f"{_XML}<!DOCTYPE html><{html}><head><title>nav</title></head><body>"
            f'<nav epub:type="toc"><ol>{contents}</ol></nav></body></html>',
            **pages,
            **(extra or {}),
        },
        stored=["mimetype"],
    )


def hwpx(paragraphs: Sequence[str], table: Rows = (), title: str = "", manifest: str = "") -> bytes:
    """A document of Hangul's open format."""
    hancom = "http://www.hancom.co.kr/hwpml/2011"
    names = f'xmlns:hp="{hancom}/paragraph" xmlns:hs="{hancom}/section" xmlns:hh="{hancom}/head"'

    def paragraph(text: str) -> str:
        return (
            '<hp:p id="0" paraPrIDRef="0" styleIDRef="0"><hp:run charPrIDRef="0"><hp:t>'
            + escape(text).replace("\t", "<hp:tab/>")
            + "</hp:t></hp:run></hp:p>"
        )

    body = "".join(map(paragraph, paragraphs))
    if table:
        rows = "".join(
            "<hp:tr>"
            + "".join(
                f'<hp:tc><hp:subList>{paragraph(cell)}</hp:subList><hp:cellAddr colAddr="{c}" rowAddr="{r}"/>'
                '<hp:cellSpan colSpan="1" rowSpan="1"/><hp:cellSz width="20000" height="1000"/></hp:tc>'
                for c, cell in enumerate(row)
            )
            + "</hp:tr>"
            for r, row in enumerate(table)
        )
        shape = f'rowCnt="{len(table)}" colCnt="{len(table[0])}"'
        body += f'<hp:p id="0"><hp:run><hp:tbl {shape}>{rows}</hp:tbl><hp:t/></hp:run></hp:p>'
    return zipped(
        {
            "mimetype": "application/hwp+zip",
            "version.xml": f'{_XML}<hv:HCFVersion xmlns:hv="{hancom}/version" tagetApplication="WORDPROCESSOR" '
            'major="5" minor="1" micro="0" buildNumber="1" xmlVersion="1.4" application="Holdfast samples"/>',
            "META-INF/container.xml": f"{_XML}<ocf:container "
            'xmlns:ocf="urn:oasis:names:tc:opendocument:xmlns:container"><ocf:rootfiles><ocf:rootfile '
            'full-path="Contents/content.hpf" media-type="application/hwpml-package+xml"/></ocf:rootfiles>'
            "</ocf:container>",
            "META-INF/manifest.xml": f"{_XML}<odf:manifest "
            f'xmlns:odf="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">{manifest}</odf:manifest>',
            "Contents/content.hpf": f'{_XML}<opf:package xmlns:opf="http://www.idpf.org/2007/opf/"><opf:metadata>'
            f"<opf:title>{escape(title)}</opf:title><opf:language>ko</opf:language></opf:metadata><opf:manifest>"
            '<opf:item id="header" href="Contents/header.xml" media-type="application/xml"/>'
            '<opf:item id="section0" href="Contents/section0.xml" media-type="application/xml"/></opf:manifest>'
            '<opf:spine><opf:itemref idref="header"/><opf:itemref idref="section0"/></opf:spine></opf:package>',
            "Contents/header.xml": f'{_XML}<hh:head {names} version="1.4" secCnt="1"/>',
            "Contents/section0.xml": f"{_XML}<hs:sec {names}>{body}</hs:sec>",
        },
        stored=["mimetype"],
    )


def _types(parts: Mapping[str, str]) -> str:
    overrides = "".join(f'<Override PartName="{name}" ContentType="{kind}"/>' for name, kind in parts.items())
    return (
        f'{_XML}<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{overrides}</Types>'
    )


def _relations(targets: Sequence[tuple[str, str]], core: bool = False) -> str:
    listed = "".join(
        f'<Relationship Id="rId{number}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    if core:
        listed += (
            f'<Relationship Id="rIdCore" Type="{_PACKAGE}/relationships/metadata/core-properties" '
            'Target="docProps/core.xml"/>'
        )
    return f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">{listed}</Relationships>'


def _core(title: str) -> str:
    return (
        f'{_XML}<cp:coreProperties xmlns:cp="{_PACKAGE}/metadata/core-properties" '
        f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{escape(title)}</dc:title></cp:coreProperties>'
    )
