"""Files of comma-separated values, read strictly: whatever is wrong is said in one line, with its place."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hagmeta.common.errors import UserError
from hagmeta.common.files import reason, require_readable

SHOWN = 60  # characters of a cell in an error


@dataclass(frozen=True)
class TableFile:
    """A file of rows: UTF-8, cells between commas (tabs in a .tsv), quoted with " where they need to be."""

    path: Path

    def __post_init__(self) -> None:
        with self._reading():
            require_readable(self.path)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """The line on which each row begins, and its cells; all rows are as wide as the first."""
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
                raise self.error(begins, f"{len(row)} cells; valid are {width}, as in the first row.")
            yield begins, row
        if not width:
            raise UserError(f"{self.path}: the file is empty.")

    def error(self, line: int, reason: str) -> UserError:
        """An error to raise that names the file and the line."""
        return UserError(f"{self.path}: line {line}: {reason}")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({reason(error)}).") from None

    def _text(self) -> str:
        with self._reading():
            content = self.path.read_bytes()
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            byte = f"{content[error.start]:#04x}"
            raise self.error(line, f"the byte {byte} is not UTF-8; valid is UTF-8 text.") from None
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise self.error(line, "there is a NUL character; valid is UTF-8 text.")
        return text

    @staticmethod
    def _reason(error: csv.Error) -> str:
        reason = str(error)
        if "field limit" in reason:
            return (
                f"a cell is too long; valid are {csv.field_size_limit():,} characters. Is a quote left open?"
            )
        if "unexpected end" in reason:
            return 'a quote is opened here and never closed; valid is "…", with "" for a quote inside.'
        return f'a quote is out of place ({reason}); valid is "…", with "" for a quote inside.'


def shown(cell: str) -> str:
    """A cell in an error: quoted, and not too long."""
    return repr(cell if len(cell) <= SHOWN else cell[: SHOWN - 1] + "…")
