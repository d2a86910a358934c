"""XLSX: the cells of each sheet, row by row, as they are shown.

kreuzberg 4.10.4 lays a sheet out as a full grid: with a word in A1 and another in A1048576 it returns
nothing, with one in ZZ20000 it aborts the process. Reading the cells that exist costs what they are.
"""

import re
from datetime import datetime, timedelta

from .archive import Archive
from .extracted import Extracted
from .invalid import Reason, content_invalid
from .xml_events import read_xml

# Built-in number formats (ECMA-376 part 1, 18.8.30) that show a date, a time, a percentage.
_DATES = frozenset({*range(14, 18), 22, *range(27, 37), *range(50, 59)})
_TIMES = frozenset({*range(18, 22), 45, 46, 47})
_PERCENTAGES = frozenset({9, 10})


def read_xlsx(archive: Archive) -> Extracted:
    """Each sheet under its name; a line per row, its cells that are not empty joined by `` | ``.

    Raises:
        StageFailed: CORRUPT, ARCHIVE_UNSAFE.
    """
    targets = _Relations()
    _read(archive, "xl/_rels/workbook.xml.rels", targets)
    workbook = _Workbook()
    _read(archive, "xl/workbook.xml", workbook)
    strings = _SharedStrings()
    if "xl/sharedStrings.xml" in archive:
        _read(archive, "xl/sharedStrings.xml", strings)
    styles = _Styles()
    if "xl/styles.xml" in archive:
        _read(archive, "xl/styles.xml", styles)

    parts = []
    for name, relation in workbook.sheets:
        path = targets.paths.get(relation, "")
        if path not in archive:
            raise content_invalid(Reason.CORRUPT, f"the spreadsheet is damaged: sheet {name!r} is missing")
        sheet = _Sheet(strings.texts, styles.kinds, workbook.epoch)
        if "worksheets/" in path:  # chart sheets have no cells
            _read(archive, path, sheet)
        if sheet.rows:
            parts.append(f"## {name}\n\n" + "\n".join(sheet.rows))
    return Extracted("\n\n".join(parts), metadata={"sheet_count": len(workbook.sheets)})


def _read(archive: Archive, name: str, handler: "_Relations | _Workbook | _SharedStrings | _Styles | _Sheet") -> None:
    if name not in archive:
        raise content_invalid(Reason.CORRUPT, f"the spreadsheet is damaged: {name} is missing")
    read_xml(archive.stream(name), handler, name)


class _Quiet:
    def start(self, name: str, attributes: dict[str, str]) -> None: ...

    def end(self, name: str) -> None: ...

    def characters(self, text: str) -> None: ...


class _Relations(_Quiet):
    def __init__(self) -> None:
        self.paths: dict[str, str] = {}

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "Relationship":
            target = attributes.get("Target", "")
            self.paths[attributes.get("Id", "")] = target[1:] if target.startswith("/") else f"xl/{target}"


class _Workbook(_Quiet):
    def __init__(self) -> None:
        self.sheets: list[tuple[str, str]] = []
        self.epoch = datetime(1899, 12, 30)  # noqa: DTZ001 - a sheet's dates have no zone

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "sheet":
            relation = next((value for key, value in attributes.items() if key.endswith(":id")), "")
            self.sheets.append((attributes.get("name", ""), relation))
        elif name == "workbookPr" and attributes.get("date1904") in ("1", "true"):
            self.epoch = datetime(1904, 1, 1)  # noqa: DTZ001


class _SharedStrings(_Quiet):
    def __init__(self) -> None:
        self.texts: list[str] = []
        self._parts: list[str] = []
        self._in_text = self._in_phonetic = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "si":
            self._parts = []
        elif name == "rPh":  # the reading of a Japanese word, not the word
            self._in_phonetic = True
        elif name == "t":
            self._in_text = not self._in_phonetic

    def end(self, name: str) -> None:
        if name == "si":
            self.texts.append("".join(self._parts))
        elif name == "rPh":
            self._in_phonetic = False
        elif name == "t":
            self._in_text = False

    def characters(self, text: str) -> None:
        if self._in_text:
            self._parts.append(text)


class _Styles(_Quiet):
    """How the number of a cell is shown, by the cell's style."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self._own: dict[str, str] = {}
        self._in_cells = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "numFmt":
            self._own[attributes.get("numFmtId", "")] = _kind_of_format(attributes.get("formatCode", ""))
        elif name == "cellXfs":
            self._in_cells = True
        elif name == "xf" and self._in_cells:
            number = attributes.get("numFmtId", "0")
            self.kinds.append(self._own.get(number) or _kind_of_builtin(int(number) if number.isdigit() else 0))

    def end(self, name: str) -> None:
        if name == "cellXfs":
            self._in_cells = False


def _kind_of_builtin(number: int) -> str:
    if number in _DATES:
        return "date"
    if number in _TIMES:
        return "time"
    return "percentage" if number in _PERCENTAGES else ""


def _kind_of_format(code: str) -> str:
    bare = re.sub(r'"[^"]*"|\\.|\[[^\]]*\]|_.', "", code.split(";")[0]).lower()
    if re.search(r"[yd]", bare) or ("m" in bare and "h" not in bare and "s" not in bare):
        return "date"
    if re.search(r"[hs]", bare):
        return "time"
    return "percentage" if "%" in bare else ""


class _Sheet(_Quiet):
    def __init__(self, strings: list[str], kinds: list[str], epoch: datetime) -> None:
        self.rows: list[str] = []
        self._strings, self._kinds, self._epoch = strings, kinds, epoch
        self._cells: list[str] = []
        self._value: list[str] = []
        self._type = self._style = ""
        self._in_value = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "row":
            self._cells = []
        elif name == "c":
            self._type, self._style = attributes.get("t", "n"), attributes.get("s", "")
            self._value = []
        elif name in ("v", "t"):  # t: text inside the cell itself
            self._in_value = True

    def end(self, name: str) -> None:
        if name in ("v", "t"):
            self._in_value = False
        elif name == "c":
            shown = re.sub(r"\s*\n\s*", " ", self._shown("".join(self._value))).strip()
            if shown:
                self._cells.append(shown)
        elif name == "row" and self._cells:
            self.rows.append(" | ".join(self._cells))

    def characters(self, text: str) -> None:
        if self._in_value:
            self._value.append(text)

    def _shown(self, value: str) -> str:
        match self._type:
            case "s":
                number = int(value) if value.strip().isdigit() else -1
                return self._strings[number] if 0 <= number < len(self._strings) else ""
            case "b":
                return "TRUE" if value.strip() == "1" else "FALSE" if value else ""
            case "n":
                return self._shown_number(value) if value else ""
            case _:  # str: a formula's text; inlineStr; e: an error; d: an ISO date
                return value

    def _shown_number(self, value: str) -> str:
        try:
            number = float(value)
            kind = self._kinds[int(self._style)] if self._style else ""
            if kind == "percentage":
                return f"{number * 100:.15g}%"
            if kind in ("date", "time"):
                return self._shown_moment(number, kind)
        except (ValueError, IndexError, OverflowError):
            return value
        return f"{number:.0f}" if number.is_integer() and abs(number) < 1e15 else f"{number:.15g}"

    def _shown_moment(self, number: float, kind: str) -> str:
        moment = self._epoch + timedelta(seconds=round(number * 86_400))
        if kind == "time" and 0 <= number < 1:
            return moment.strftime("%H:%M:%S")
        return moment.strftime("%Y-%m-%d" if number.is_integer() else "%Y-%m-%d %H:%M:%S")
