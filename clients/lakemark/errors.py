"""Every error of Lakemark, under the name by which users import it; see ``lakemark.errors``."""

from lakemark_core import errors as _errors
from lakemark_core.errors import *  # noqa: F403

for _name in dir(_errors):
    _error = getattr(_errors, _name)
    if isinstance(_error, type) and issubclass(_error, Exception):
        _error.__module__ = __name__  # what a traceback shows is what one can catch
