"""Logs as one JSON object a line, or as text for a person at a terminal."""

import logging
import sys
from typing import TextIO

import orjson
import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Threshold:
    """Lets through what is at least of its level, which may change at any time. Loggers need not be made anew."""

    def __init__(self, level: str) -> None:
        self._least = LEVELS[level]

    def set(self, level: str) -> None:
        self._least = LEVELS[level]

    def __call__(self, _logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if LEVELS.get(method, logging.ERROR) < self._least:
            raise structlog.DropEvent
        return event


def configure_logs(*, level: str = "info", human: bool = False, stream: TextIO = sys.stderr) -> Threshold:
    """Sets up structlog for the process; called once, by its entry point. What is returned can change the level."""
    threshold = Threshold(level)
    shared: list[structlog.typing.Processor] = [
        threshold,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", key="time"),
    ]
    if human:
        # Plain tracebacks: the default one prints local variables, and with them what must never be in a log.
        console = structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        rendering: list[structlog.typing.Processor] = [console]
    else:
        rendering = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_json),
        ]
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    return threshold


def _json(event: object, **_: object) -> str:
    return orjson.dumps(event, default=str).decode()
