"""Settings of ``lakemark serve``: arguments first, then the environment (``LAKEMARK_STORE`` …), then these defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """One service process."""

    model_config = SettingsConfigDict(env_prefix="LAKEMARK_", extra="ignore")

    store: str = Field("sqlite:///lakemark-data/lakemark.db", description="URL of the key-value store", repr=False)
    warehouse: str = Field("lakemark-data/warehouse", description="directory or URI below which databases live")
    host: str = Field("127.0.0.1", description="address to listen on; loopback unless told otherwise")
    grpc_port: int = Field(9090, ge=0, le=65535, description="0: any free port")
    hms_port: int = Field(9083, ge=0, le=65535, description="Hive Metastore Thrift port; 0: any free port")
    hms_enabled: bool = Field(True, description="whether to serve the Hive Metastore protocol")
    grpc_threads: int = Field(64, ge=1, le=1_000, description="gRPC requests worked on at once")
    grpc_message_bytes_max: int = Field(64 << 20, ge=1 << 20, description="largest gRPC message, either way")
    snapshot_cache_bytes: int = Field(512 << 20, ge=0, description="memory for folded snapshots")
    sweep_interval_s: float = Field(10.0, gt=0, description="how often lost writers are looked for")
    log_format: Literal["console", "json"] = Field("console", description="how log lines look")
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def warehouse_uri(self) -> str:
        """Absolute; a relative directory is taken from the working directory."""
        if "://" in self.warehouse or self.warehouse.startswith("file:"):
            return self.warehouse
        return "file:" + str(Path(self.warehouse).absolute())
