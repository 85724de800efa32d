"""Read a sheet of delimited text, change single cells, and write all the rest as it was, byte by byte."""

from __future__ import annotations

import re

BOM = b"\xef\xbb\xbf"
SEPARATORS = (",", ";", "\t")


class BadSheet(ValueError):
    """A sheet cannot be used; the message says why and what would be right."""


class Delimited:
    """A sheet's rows, from 0: the first one holds the names of its columns.

    Args:
        data: the file, in UTF-8, with or without a byte order mark.
        separator: that stands between two cells.

    Raises:
        BadSheet: the file is not of that form.
    """

    def __init__(self, data: bytes, separator: str) -> None:
        self.separator = separator
        self._bom = BOM if data.startswith(BOM) else b""
        try:
            text = data.removeprefix(BOM).decode("utf-8")
        except UnicodeDecodeError as error:
            raise BadSheet(f"it is not UTF-8 ({error.reason}): export it anew") from None
        self._rows, self._ends = _split(text, separator)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def header(self) -> list[str]:
        """The names of the columns."""
        return [name.strip() for name in self.row(0)] if self._rows else []

    def row(self, number: int) -> list[str]:
        """Return the values of one row."""
        return [_value(cell) for cell in self._rows[number]]

    def value(self, row: int, column: int) -> str:
        """Return the value of one cell, without spaces around it; "" where the row has no such cell."""
        cells = self._rows[row]
        return _value(cells[column]).strip() if column < len(cells) else ""

    def set(self, row: int, column: int, value: str) -> None:
        """Change one cell; it is quoted where it was, or has to be."""
        cells = self._rows[row]
        cells += [""] * (column + 1 - len(cells))
        if _value(cells[column]) == value:
            return
        quoted = cells[column].startswith('"') or re.search(rf'[{self.separator}"\r\n]', value)
        cells[column] = '"{}"'.format(value.replace('"', '""')) if quoted else value

    def data(self) -> bytes:
        """Return the file as it is now."""
        rows = map(self.separator.join, self._rows)
        text = "".join(row + end for row, end in zip(rows, self._ends, strict=True))
        return self._bom + text.encode("utf-8")


def _split(text: str, separator: str) -> tuple[list[list[str]], list[str]]:
    """Split a text into the cells of each row, as they are written, and the ends of the lines."""
    quoted, plain = r'"(?:[^"]|"")*+"', rf'[^"\r\n{separator}][^\r\n{separator}]*+'
    cell = re.compile(rf"({quoted}|{plain}|)({separator}|\r\n|\r|\n|\Z)")
    rows: list[list[str]] = []
    ends: list[str] = []
    place, begins = 0, True
    while place < len(text) or not begins:
        match = cell.match(text, place)
        if not match:
            raise BadSheet(f"row {len(rows) + begins} has a quotation mark where none can be")
        if begins:
            rows.append([])
        rows[-1].append(match[1])
        begins = match[2] != separator
        if begins:
            ends.append(match[2])
        place = match.end()
    return rows, ends


def _value(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if cell.startswith('"') else cell
