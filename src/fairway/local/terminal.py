"""The live table of `fairway up` on a terminal."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairway.api.conditions import Phase
from fairway.local import view
from fairway.local.view import Row

_COLOURS = {Phase.READY: "green", Phase.PARTIALLY_READY: "yellow", Phase.FAILED: "red", Phase.SUSPENDED: "dim"}


class LiveTable:
    """Redraws in place; notes scroll by above it."""

    patience = 0.05
    due = None

    def __init__(self, *, title: str, logs: str, console: Console | None = None) -> None:
        self._title = title
        self._logs = logs
        self._live = Live(console=console or Console(highlight=False), auto_refresh=False, transient=False)
        self._live.start()

    def show(self, rows: Sequence[Row]) -> None:
        self._live.update(drawn(rows, title=self._title, logs=self._logs), refresh=True)

    def note(self, text: str) -> None:
        self._live.console.print(Text(text))

    def close(self) -> None:
        self._live.stop()


def drawn(rows: Sequence[Row], *, title: str, logs: str) -> RenderableType:
    """The whole picture. Text is never read as markup: messages hold what servers say."""
    count = f"{len(rows)} server{'' if len(rows) == 1 else 's'}, ctrl-c stops {'it' if len(rows) == 1 else 'them all'}"
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for heading in view.HEADINGS:
        table.add_column(heading, no_wrap=heading != "SOURCE", justify="left")
    for row in rows:
        name, source, proxy, tools, phase, url = view.cells(row)
        colour = _COLOURS.get(Phase(phase), "yellow") if phase in set(Phase) else "yellow"
        table.add_row(Text(name, "bold"), Text(source), Text(proxy), Text(tools), Text(phase, colour), Text(url))
    parts: list[RenderableType] = [Text(f"{title}          {count}"), Text(), table]
    troubled = [row for row in rows if row.trouble]
    if troubled:
        parts.append(Text())
    for row in troubled:
        parts.append(Text.assemble((row.title, "bold"), "  ", row.trouble))
        parts += [Text(f"{' ' * len(row.title)}  log: {row.log}", "dim")] if row.log else []
    hints = [("try", row.example) for row in rows if row.ready and row.example][:1]
    parts.append(Text())
    parts += [Text(f"{what:<6}{text}", "dim") for what, text in (*hints, ("logs", f"{logs}/"))]
    return Group(*parts)
