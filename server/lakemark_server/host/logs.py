"""Log lines: readable on a console, or one JSON object a line."""

from __future__ import annotations

import logging
import sys

import structlog

from lakemark_core.redaction import redacted


def configure(log_format: str, level: str) -> None:
    """Configures logging of the whole process, to standard error."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if log_format == "json" else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            _without_secrets,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # it may be replaced later
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Redacting())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


class _Redacting(logging.Formatter):
    """Lines of libraries, and of those packages that log as libraries do."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def _without_secrets(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Runs behind everything that makes texts, tracebacks included."""
    return {name: _shown(value) for name, value in event.items()}


def _shown(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_shown(one) for one in value]
    if isinstance(value, dict):
        return {name: _shown(one) for name, one in value.items()}
    return redacted(value if isinstance(value, str) else str(value))
