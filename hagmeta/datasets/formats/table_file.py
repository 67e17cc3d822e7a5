"""Read CSV files strictly: every error is one line that names the file and the line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hagmeta.common.errors import UserError
from hagmeta.common.files.files import reason
from hagmeta.datasets.clean import require_data_file

SHOWN = 60  # characters of a cell in an error message


@dataclass(frozen=True)
class TableFile:
    """A CSV file in UTF-8, or TSV if the name ends in .tsv. Cells may be quoted with double quotes."""

    path: Path

    def __post_init__(self) -> None:
        require_data_file(self.path)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the line number and the cells of each row. All rows must be as wide as the first."""
        separator = "\t" if self.path.suffix.lower() == ".tsv" else ","
        reader = csv.reader(io.StringIO(self._text(), newline=""), delimiter=separator, strict=True)
        width = 0
        while True:
            begins = reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                raise self.error(begins, self._reason(error)) from None
            if not row:  # an empty line
                continue
            width = width or len(row)
            if len(row) != width:
                raise self.error(begins, f"found {len(row)} cells; expected {width}, as in the first row.")
            yield begins, row
        if not width:
            raise UserError(f"{self.path}: the file is empty.")

    def error(self, line: int, reason: str) -> UserError:
        """Return an error that names the file and ``line``."""
        return UserError(f"{self.path}: line {line}: {reason}")

    def _text(self) -> str:
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({reason(error)}).") from None
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            byte = f"{content[error.start]:#04x}"
            raise self.error(line, f"the byte {byte} is not UTF-8; save the file as UTF-8.") from None
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise self.error(line, "found a NUL character; expected UTF-8 text.")
        return text

    @staticmethod
    def _reason(error: csv.Error) -> str:
        reason = str(error)
        if "field limit" in reason:
            return (
                f"a cell is too long; expected at most {csv.field_size_limit():,} characters. "
                "Is a closing quote missing?"
            )
        if "unexpected end" in reason:
            return 'a quote is opened here and never closed; write "…", with "" for a quote inside.'
        return f'a quote is out of place ({reason}); write "…", with "" for a quote inside.'


def shown(cell: str) -> str:
    """Return ``cell`` for an error message: quoted, and shortened if it is long."""
    return repr(cell if len(cell) <= SHOWN else cell[: SHOWN - 1] + "…")
