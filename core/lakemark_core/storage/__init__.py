"""Files of lake tables and the directories around them, wherever they lie: the one place that opens file systems.

A location is a URI (``file:``, ``s3:``, ``hdfs:``, ``gs:``, ``abfss:``). What stands behind the scheme and the
authority is the path as it is: ``%`` and spaces stand for themselves, as in Hadoop. Endpoints, credentials and
time-outs come from the settings of the process (``configure``). Retries are those of the libraries that reach the
store: a bounded number, with pauses that grow.
"""

from lakemark_core.storage.connections import again, configure, has_directories, open_location, storage_error
from lakemark_core.storage.directories import (
    Move,
    begin_move,
    delete_directory,
    delete_with_directories,
    empty_directory,
    is_directory,
    is_empty,
    list_files,
    make_directory,
    remove_if_empty,
)
from lakemark_core.storage.settings import CALL_SECONDS, S3Settings, StorageSettings
from lakemark_core.storage.uris import (
    ENGINE_SCHEMES,
    canonical_uri,
    check_location,
    engine_schemes,
    in_scheme,
    is_same_place,
    is_within,
    join,
    keeps_directories,
    lies_in,
    local_path,
    normal_uri,
    place_of,
    places_above,
    spellings,
    stored_uri,
)

__all__ = [
    "CALL_SECONDS",
    "ENGINE_SCHEMES",
    "Move",
    "S3Settings",
    "StorageSettings",
    "again",
    "begin_move",
    "canonical_uri",
    "check_location",
    "configure",
    "delete_directory",
    "delete_with_directories",
    "empty_directory",
    "engine_schemes",
    "has_directories",
    "in_scheme",
    "is_directory",
    "is_empty",
    "is_same_place",
    "is_within",
    "join",
    "keeps_directories",
    "lies_in",
    "list_files",
    "local_path",
    "make_directory",
    "normal_uri",
    "open_location",
    "place_of",
    "places_above",
    "remove_if_empty",
    "spellings",
    "storage_error",
    "stored_uri",
]
