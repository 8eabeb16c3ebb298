"""Settings from the command line, the environment and a file, in that order; the file is read again when it changes."""

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import structlog

from fairway.runtime.setting import BASE_DELAY, MAX_DELAY, InvalidSetting, Setting

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stated:
    """A text that somebody wrote for a setting, and where."""

    text: str
    where: str


class Values:
    """What each setting is, and where that was said. Reading a value with its Setting gives it its type."""

    def __init__(self, stated: Mapping[str, Stated], settings: Sequence[Setting[object]]) -> None:
        self._values: dict[str, object] = {}
        self._stated = dict(stated)
        for setting in settings:
            said = stated.get(setting.name)
            if said is None:
                self._values[setting.name] = setting.read(setting.default)
                continue
            try:
                self._values[setting.name] = setting.read(said.text)
            except ValueError as error:
                raise InvalidSetting(f"{said.where}: {said.text!r} {error}") from None
        base, longest = self._values.get(BASE_DELAY.name), self._values.get(MAX_DELAY.name)
        if isinstance(base, float) and isinstance(longest, float) and base > longest:
            raise InvalidSetting(
                f"{self.where(BASE_DELAY)}: {base:g} s is longer than the longest delay of {longest:g} s "
                f"({self.where(MAX_DELAY)})"
            )

    def __getitem__(self, setting: Setting[T]) -> T:
        return self._values[setting.name]  # type: ignore[return-value]

    def where(self, setting: Setting[Any]) -> str:
        said = self._stated.get(setting.name)
        return said.where if said else f"--{setting.name}, by default"

    def changed(self, before: "Values") -> frozenset[str]:
        return frozenset(name for name, value in self._values.items() if before._values.get(name) != value)


@dataclass(frozen=True, slots=True)
class Configuration:
    """All that was said to a program. `load` reads the file and puts everything together; it may be called again.

    A flag wins over the environment, that over the file, and that over the default. An empty variable says nothing.
    A file that was asked for must exist; one that is only looked for need not.
    """

    settings: Sequence[Setting[object]]
    flags: Mapping[str, str]
    environ: Mapping[str, str]
    prefix: str
    file: Path
    file_must_exist: bool

    def load(self) -> Values:
        stated: dict[str, Stated] = {}
        stated.update(self._from_file())
        for setting in self.settings:
            variable = setting.variable(self.prefix)
            if text := self.environ.get(variable):
                stated[setting.name] = Stated(text, f"${variable}")
        stated.update({name: Stated(text, f"--{name}") for name, text in self.flags.items()})
        return Values(stated, self.settings)

    def _from_file(self) -> Mapping[str, Stated]:
        try:
            text = self.file.read_text("utf-8")
        except FileNotFoundError:
            if self.file_must_exist:
                raise InvalidSetting(f"{self.file}: no such file; name an existing one with --config") from None
            return {}
        except OSError as error:
            raise InvalidSetting(f"{self.file}: cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise InvalidSetting(f"{self.file}: is not a text file") from None
        return parse_file(text, str(self.file), {setting.name for setting in self.settings})


def parse_file(text: str, file: str, known: set[str]) -> dict[str, Stated]:
    """The settings in a YAML mapping, each with its line."""
    import yaml  # most operators have no file, and this is a tenth of what starting costs

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise InvalidSetting(f"{file}{line}: is not valid YAML ({problem})") from None
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise InvalidSetting(f"{file}: is no mapping; write one setting a line, such as `log-level: debug`")
    found: dict[str, Stated] = {}
    for key, value in root.value:
        name = str(key.value)
        where = f"{file}:{key.start_mark.line + 1}: {name}"
        if name not in known:
            close = get_close_matches(name, known, n=1)
            raise InvalidSetting(f"{where}: unknown setting" + (f"; did you mean {close[0]}?" if close else ""))
        if name in found:
            raise InvalidSetting(f"{where}: is there twice")
        items = value.value if isinstance(value, yaml.SequenceNode) else [value]
        if not all(isinstance(item, yaml.ScalarNode) for item in items):
            raise InvalidSetting(f"{where}: must be a single value or a list of them")
        if value.tag != "tag:yaml.org,2002:null":
            found[name] = Stated(",".join(item.value for item in items), where)
    return found


class ArgumentParser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def add_settings(self, settings: Sequence[Setting[Any]], *, prefix: str) -> None:
        for setting in settings:
            default = f"default: {setting.default}" if setting.default else "default: empty"
            note = "; takes effect at once when the file changes" if setting.live else ""
            text = f"{setting.help} (${setting.variable(prefix)}; {default}{note})".replace("%", "%%")
            switch: dict[str, Any] = {"nargs": "?", "const": "true"} if setting.switch else {}
            metavar = "true|false" if setting.switch else setting.metavar
            self.add_argument(f"--{setting.name}", dest=setting.name, metavar=metavar, help=text, **switch)


def flags_of(parsed: argparse.Namespace, settings: Sequence[Setting[Any]]) -> dict[str, str]:
    given = vars(parsed)
    return {setting.name: given[setting.name] for setting in settings if given[setting.name] is not None}


class Follower:
    """Loads the configuration, and again whenever its file changes; then hands the values to whoever follows.

    A file that has become unusable, or is gone, changes nothing: what it said last stays in force.
    """

    def __init__(self, configuration: Configuration, *, period: float = 2.0) -> None:
        self._configuration = configuration
        self._period = period
        self._seen = self._look()
        self.values = configuration.load()
        self._log = structlog.get_logger("configuration")

    async def run(self, tune: Callable[[Values], None]) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._period)
            self.refresh(tune)

    def refresh(self, tune: Callable[[Values], None]) -> None:
        now = self._look()
        if now == self._seen:
            return
        self._seen = now
        file = str(self._configuration.file)
        if now is None:
            self._log.warning("the file is gone; what it said last stays in force", file=file)
            return
        try:
            values = self._configuration.load()
        except InvalidSetting as error:
            self._log.error("not taken over; what was said before stays in force", error=str(error))
            return
        changed = values.changed(self.values)
        live = {setting.name for setting in self._configuration.settings if setting.live}
        self.values = values
        tune(values)
        self._log.info("read again", file=file, changed=sorted(changed & live))
        if changed - live:
            self._log.warning("takes effect after a restart", settings=sorted(changed - live))

    def _look(self) -> tuple[int, int, int] | None:
        """What `stat` says of the file behind all links: changes when a mounted ConfigMap is swapped, too."""
        try:
            stat = self._configuration.file.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size
