"""A recording of the quickstart, as an SVG that plays: a real `fairway up` on a real terminal, and calls beside it.

`python -m handbook.recording FILE`. Nothing in it is typed by hand: what programs write is read from their terminal.
"""

import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

WIDTH, HEIGHT = 122, 24
QUICKSTART = "examples/quickstart"
CALLS = ("fairway call hello add a=2 b=3", "fairway tools clock", "fairway call vault read name=motto --anonymous")
HOLD = 2.2
"""Seconds for which each scene after the start is shown."""
SHORTEST = 0.4
_READY = 5
_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
_SVG = re.compile(r"<svg[^>]*viewBox=\"0 0 ([0-9.]+) ([0-9.]+)\"")


@dataclass
class Screen:
    """Lines of a terminal, for programs that redraw whole lines; colours stay in the text."""

    lines: list[str] = field(default_factory=lambda: [""])
    row: int = 0

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            sequence = _SEQUENCE.match(text, at)
            if sequence is not None:
                self._control(sequence[1], sequence[2], sequence[0])
                at = sequence.end()
                continue
            match text[at]:
                case "\n":
                    self.row += 1
                    while len(self.lines) <= self.row:
                        self.lines.append("")
                case "\r":
                    pass  # what redraws a line erases it first
                case character:
                    self.lines[self.row] += character
            at += 1

    def _control(self, number: str, letter: str, whole: str) -> None:
        match letter:
            case "A":
                self.row = max(0, self.row - int(number or 1))
            case "K":
                self.lines[self.row] = ""
            case "m":
                self.lines[self.row] += whole

    def picture(self) -> tuple[str, ...]:
        """What stands there, without the empty lines at its end."""
        written = [line.rstrip() for line in self.lines]
        while written and not _SEQUENCE.sub("", written[-1]):
            written.pop()
        return tuple(written)


@dataclass(frozen=True, slots=True)
class Scene:
    """What stands on the screen for some seconds."""

    lines: tuple[str, ...]
    seconds: float


def record(folder: Path) -> list[Scene]:
    """Runs the quickstart and the calls; raises RuntimeError if a server does not get ready."""
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH), "LINES": str(HEIGHT)}
    environment.pop("NO_COLOR", None)
    (folder / "examples").symlink_to(Path("examples").absolute())
    prompt = f"\x1b[1;32m$\x1b[0m fairway up -f {QUICKSTART}"
    scenes = [Scene((prompt,), 1.0)]
    leader, follower = pty.openpty()
    ioctl(follower, TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    command = [sys.executable, "-m", "fairway", "up", "-f", QUICKSTART]
    running = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=follower, stdout=follower, stderr=follower, start_new_session=True
    )
    os.close(follower)
    screen = Screen()
    try:
        started = last = time.monotonic()
        while sum(" Ready " in line for line in _plain(screen.picture())) < _READY:
            if time.monotonic() - started > 120 or running.poll() is not None:
                raise RuntimeError("not every server got ready:\n" + "\n".join(screen.picture()))
            if select.select([leader], [], [], 0.5)[0]:
                before = screen.picture()
                screen.feed(os.read(leader, 65536).decode(errors="replace"))
                now = time.monotonic()
                # what stood for a moment only is no picture
                if now - last >= SHORTEST and screen.picture() != before:
                    scenes.append(Scene((prompt, *before), min(now - last, 1.0)))
                    last = now
        ready = (prompt, *screen.picture())
        scenes.append(Scene(ready, HOLD))
        beside: tuple[str, ...] = ("",)
        for call in CALLS:
            done = subprocess.run(
                [sys.executable, "-m", *call.split()],
                cwd=folder,
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            beside = (*beside, f"\x1b[1;32m$\x1b[0m {call}", *done.stdout.rstrip().splitlines())
            scenes.append(Scene((*ready, *beside), HOLD))
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(30)
        os.close(leader)
    return scenes


def _plain(lines: Sequence[str]) -> list[str]:
    return [_SEQUENCE.sub("", line) for line in lines]


def drawn(scenes: Sequence[Scene]) -> str:
    """One SVG with all scenes, each visible in its time, over and over again. It refers to nothing outside."""
    height = max(len(scene.lines) for scene in scenes) + 1
    total = sum(scene.seconds for scene in scenes)
    parts, styles = [], []
    begins = 0.0
    for number, scene in enumerate(scenes):
        parts.append(f'<g class="s{number}">{_picture(scene.lines, height, f"f{number}")}</g>')
        start, end = begins / total * 100, (begins + scene.seconds) / total * 100
        last = number == len(scenes) - 1
        # who does not play it sees the last scene
        styles.append(
            f".s{number} {{ opacity: {int(last)}; animation: p{number} {total:.1f}s infinite step-end }}\n"
            f"@keyframes p{number} {{ 0% {{ opacity: {int(number == 0)} }} {start:.2f}% {{ opacity: 1 }} "
            f"{end:.2f}% {{ opacity: {int(last)} }} }}"
        )
        begins += scene.seconds
    size = _SVG.search(parts[0])
    assert size is not None
    style = "<style>\n" + "\n".join(styles) + "\n</style>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[1]} {size[2]}">'
    return "\n".join([head, "<!-- Made by `make recording`. -->", style, *parts, "</svg>"]) + "\n"


def _picture(lines: Sequence[str], height: int, unique: str) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    decoder = AnsiDecoder()
    for line in [*lines, *[""] * (height - len(lines))]:
        console.print(decoder.decode_line(line), no_wrap=True, overflow="crop", crop=True)
    svg = console.export_svg(title="fairway", theme=SVG_EXPORT_THEME, unique_id=unique)
    # fonts of somebody's server stay out: whatever is monospaced here will do
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")


def main() -> int:
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        scenes = record(Path(folder))
    target.write_text(drawn(scenes))
    print(f"{target}: {len(scenes)} scenes, {target.stat().st_size / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
