"""Settings of ``lakemark serve``: arguments first, then the environment (``LAKEMARK_STORE`` …), then these defaults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from lakemark_core.defaults import STORE_URL
from lakemark_core.storage import CALL_SECONDS, ENGINE_SCHEMES, S3Settings, StorageSettings
from lakemark_server.admission.limits import NAMES, Limits
from lakemark_server.sinks.addresses import networks
from lakemark_server.sinks.backoff import RetryPauses
from lakemark_server.sinks.dead_letters import LetterLimits
from lakemark_server.sinks.mail import MailPolicy
from lakemark_server.sinks.policies import SinkPolicy
from lakemark_server.sinks.runner import RunnerSettings
from lakemark_server.sinks.webhook import WebhookPolicy

WEB_PORT: Final = 9084


class Settings(BaseSettings):
    """One service process."""

    model_config = SettingsConfigDict(env_prefix="LAKEMARK_", extra="ignore")

    store: str = Field(STORE_URL, description="URL of the key-value store", repr=False)
    warehouse: str = Field("lakemark-data/warehouse", description="directory or URI below which databases live")
    s3_endpoint: str = Field("", description="URL of an S3 service other than AWS's own")
    s3_region: str = Field("", description="of its buckets")
    s3_access_key_id: SecretStr = Field(SecretStr(""), description="else credentials are found as AWS's tools do")
    s3_secret_access_key: SecretStr = Field(SecretStr(""), description="of that access key")
    s3_session_token: SecretStr = Field(SecretStr(""), description="of temporary credentials")
    s3_anonymous: bool = Field(False, description="whether requests bring no credentials")
    s3_force_virtual_addressing: bool = Field(False, description="whether hosts name buckets at an endpoint, too")
    s3_connect_timeout: float = Field(S3Settings().connect_timeout, gt=0, description="seconds")
    s3_request_timeout: float = Field(S3Settings().request_timeout, gt=0, description="seconds without a byte")
    s3_max_attempts: int = Field(S3Settings().max_attempts, ge=1, le=100, description="of a request")
    engine_schemes: dict[str, str] = Field(
        dict(ENGINE_SCHEMES), description="schemes of locations as engines of the Metastore protocol read them"
    )
    webhdfs: str = Field("", description="URL of a name node, by which hdfs: locations are reached without libhdfs")
    storage_call_s: float = Field(CALL_SECONDS, gt=0, description="how long a request waits for a store of files")
    storage_config: str = Field("", description="TOML file with other S3 settings for some prefixes")
    owned_roots: list[str] = Field(
        [], description="directories beside the warehouse below which tables and partitions own their data"
    )
    own_new_databases: bool = Field(
        True, description="whether a database elsewhere owns its directory if that was empty when it was created"
    )
    host: str = Field("127.0.0.1", description="address to listen on; loopback unless told otherwise")
    grpc_port: int = Field(9090, ge=0, le=65535, description="0: any free port")
    hms_port: int = Field(9083, ge=0, le=65535, description="Hive Metastore Thrift port; 0: any free port")
    hms_engine_port: int | None = Field(
        None, ge=0, le=65535, description="the same for engines other than Spark; 0: any free port; not set: none"
    )
    hms_enabled: bool = Field(True, description="whether to serve the Hive Metastore protocol")
    hms_shared_ports: bool = Field(
        False, description="whether several processes on one store listen on the same Metastore ports of this machine"
    )
    hms_auth: Literal["none", "plain", "kerberos", "plain+kerberos"] = Field(
        "none", description="how Metastore clients log in: by SASL PLAIN (users_file or password_check), by Kerberos"
    )
    hms_kerberos_principal: str = Field("", description="of this service: service/host@REALM; _HOST is this machine")
    hms_kerberos_keytab: str = Field("", description="file with its key")
    hms_sasl_qop: list[Literal["auth", "auth-int", "auth-conf"]] = Field(
        ["auth"], min_length=1, description="what Kerberos' clients may choose: only log in, sign, encrypt"
    )
    hms_token_lifetime_s: float = Field(7 * 86_400.0, gt=0, description="after which a delegation token ends")
    hms_token_renew_s: float = Field(86_400.0, gt=0, description="after which it expires if it is not renewed")
    hms_tokens_max: int = Field(10_000, ge=1, description="delegation tokens of one user")
    users_file: str = Field("", description="file of users with hashed passwords, one `lakemark password` line each")
    password_check: str = Field("", description="package.module:function of (user, password) instead of users_file")
    hms_tls_certificate: str = Field("", description="PEM file of the Metastore ports' certificate; not set: no TLS")
    hms_tls_key: str = Field("", description="PEM file of its key, if that is not in the same file")
    hms_tls_client_ca: str = Field("", description="PEM file; clients need a certificate of one of these")
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description="HTTP port for Prometheus; 0: any free port; not set: none"
    )
    metrics_host: str = Field("127.0.0.1", description="address of that port; loopback unless told otherwise")
    web_enabled: bool = Field(True, description="whether to serve the web page (docs/web.md)")
    web_port: int | None = Field(
        None, ge=0, le=65535, description=f"its HTTP port; not set: {WEB_PORT}, or any free one if that is taken"
    )
    web_host: str = Field("127.0.0.1", description="address of that port; loopback unless told otherwise")
    web_hosts: list[str] = Field(
        [], description="names by which browsers may ask for it, beside localhost and addresses"
    )
    web_actions: bool = Field(False, description="whether to offer actions there: rollback, restore, tags, branches")
    web_connections_max: int = Field(
        256, ge=1, description="open connections there; for a further one the one that is idle longest is closed"
    )
    web_peer_connections_max: int = Field(128, ge=1, description="of one address")
    grpc_threads: int = Field(64, ge=1, le=1_000, description="gRPC requests worked on at once")
    grpc_reserved_threads: int = Field(
        8, ge=1, le=1_000, description="more of them, for reads when all others are busy"
    )
    grpc_waiting_max: int = Field(
        1_024, ge=0, le=100_000, description="requests that wait for a thread; more are refused"
    )
    grpc_watchers_max: int = Field(1_000, ge=0, le=100_000, description="open streams of events; more are refused")
    grpc_message_bytes_max: int = Field(64 << 20, ge=1 << 20, description="largest gRPC message, either way")
    max_inflight_bytes: int = Field(
        512 << 20, ge=1 << 20, description="bytes of requests being worked on, of both protocols; more are refused"
    )
    request_s_max: float = Field(600.0, gt=0, description="longest time of a request, whatever deadline it brings")
    grpc_connections_max: int = Field(4_096, ge=1, description="open gRPC connections; a further one is closed")
    grpc_idle_s_max: float = Field(600.0, gt=0, description="after which a gRPC connection without a call is closed")
    hms_connections_max: int = Field(
        4_096, ge=1, description="open Metastore connections; for a further one the one that is idle longest is closed"
    )
    hms_peer_connections_max: int = Field(1_024, ge=1, description="of one address")
    hms_idle_s_max: float = Field(86_400.0, gt=0, description="after which an idle Metastore connection is closed")
    hms_threads: int = Field(16, ge=1, le=1_000, description="Metastore calls worked on at once")
    hms_reserved_threads: int = Field(4, ge=1, le=1_000, description="more of them, for reads when all others are busy")
    hms_notification_format: Literal["json", "gzip"] = Field(
        "json", description="messages of Hive's notifications: json-0.2, or gzip(json-2.0) as Hive 4 writes by default"
    )
    hms_partitions_max: int = Field(0, ge=0, description="of one Metastore answer; more are refused. 0: any number")
    hms_waiting_max: int = Field(1_024, ge=0, description="calls that wait for a thread; more are refused")
    hms_kept_bytes_max: int = Field(64 << 20, ge=0, description="memory for answers of Metastore look-ups; 0: none")
    client_catalogs: bool = Field(False, description="whether clients make catalogs")
    quota_requests_per_second: float = Field(Limits().requests_per_second, ge=0, description="of a tenant, per process")
    quota_request_burst: int = Field(Limits().request_burst, ge=0, description="at once after a pause")
    quota_concurrent_requests: int = Field(Limits().concurrent_requests, ge=0, description="of a tenant, per process")
    quota_open_instants: int = Field(Limits().open_instants, ge=0, description="of a tenant")
    quota_staged_files: int = Field(Limits().staged_files, ge=0, description="of a tenant, not committed yet")
    quota_staged_bytes: int = Field(Limits().staged_bytes, ge=0, description="of a tenant, not committed yet")
    quota_tables: int = Field(Limits().tables, ge=0, description="of a tenant")
    quota_dropped_tables: int = Field(
        Limits().dropped_tables, ge=0, description="lake tables of a tenant that can be brought back"
    )
    quota_databases: int = Field(Limits().databases, ge=0, description="of a tenant")
    quota_partitions_per_request: int = Field(Limits().partitions_per_request, ge=0, description="of a warehouse table")
    quota_watchers: int = Field(Limits().watchers, ge=0, description="open streams of events of a tenant, per process")
    quota_cache_s: float = Field(5.0, ge=0, description="after which a quota that was changed elsewhere holds here")
    snapshot_cache_bytes: int = Field(256 << 20, ge=0, description="memory for snapshots and what plans need of them")
    fold_interval_s: float = Field(10.0, gt=0, description="how often tables that need a new base are looked for")
    fold_versions: int = Field(256, ge=1, description="versions after which a branch gets a new base")
    fold_files: int = Field(8_192, ge=1, description="new files after which it does; more for large tables")
    fold_grace_s: float = Field(600.0, ge=0, description="how long a base is kept after it was replaced")
    sweep_interval_s: float = Field(10.0, gt=0, description="how often lost writers are looked for")
    clean_interval_s: float = Field(600.0, gt=0, description="how often a table that asks for it is cleaned")
    clean_grace_s: float = Field(600.0, ge=0, description="how long files of versions that ended in that way stay")
    optimizer: bool = Field(False, description="whether this process may plan optimizations; one of several does")
    optimizer_interval_s: float = Field(1.0, gt=0, le=5, description="how often changed tables are looked at")
    dropped_retain_s: float = Field(
        7 * 86_400.0, ge=0, description="how long a dropped lake table can be brought back; 0: not at all"
    )
    event_retain_s: float = Field(7 * 86_400.0, gt=0, description="how long events are kept in the log")
    event_retain_bytes: int = Field(1 << 30, ge=1 << 20, description="of events of a catalog; older ones are trimmed")
    webhook_networks: list[str] = Field([], description="networks beside public ones that webhooks may be in")
    webhook_plain_http: bool = Field(False, description="whether webhooks may have URLs with http://")
    webhook_ca_file: str = Field("", description="PEM file of certificates that webhooks may have beside public ones")
    mail_host: str = Field("", description="SMTP server for sinks of mail; none without it")
    mail_port: int = Field(587, ge=1, le=65_535, description="of the SMTP server")
    mail_tls: Literal["starttls", "tls", "none"] = Field("starttls", description="how the SMTP server is talked to")
    mail_user: str = Field("", description="that the SMTP server knows; none: it is not asked for a login")
    mail_password: SecretStr = Field(SecretStr(""), description="of this user")
    mail_from: str = Field("", description="address that mail comes from")
    mail_domains: list[str] = Field([], description="domains that mail may go to; default: that of mail_from")
    mail_ca_file: str = Field("", description="PEM file of certificates that the SMTP server may have")
    sink_lease_s: float = Field(15.0, gt=0, description="after which another process delivers for one that is silent")
    sink_look_s: float = Field(1.0, gt=0, description="how soon sinks that were created or paused are noticed")
    sink_first_pause_s: float = Field(1.0, gt=0, description="after a failed attempt; doubles with each")
    sink_longest_pause_s: float = Field(60.0, gt=0, description="between two attempts")
    sink_letters_max: int = Field(10_000, ge=1, description="dead letters of a sink, which waits when it has so many")
    listener_interval_s: float = Field(2.0, gt=0, description="how often new listeners are looked for")
    listener_lease_s: float = Field(
        120.0, ge=0.5, description="after which another process mirrors for one that says nothing"
    )
    txn_timeout_s: float = Field(
        300.0, gt=0, description="after this silence a Metastore lock is freed, and a transaction is aborted"
    )
    door_doubt_s: float = Field(
        20.0, gt=0, description="how long no statement is taken after one was given up whose call may still come"
    )
    door_rewrite_bytes_max: int = Field(
        1 << 30, ge=1, description="how large the files of a statement into a table with a key may be"
    )
    request_retain_s: float = Field(86_400.0, gt=0, description="how long the answers to request ids are kept")
    cores: Literal["one", "all"] = Field(
        "one", description="on which the threads run; one is faster, and left while other programs leave no room on it"
    )
    log_format: Literal["console", "json"] = Field("console", description="how log lines look")
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def quotas(self) -> Limits:
        """What a tenant may have that has no limits of its own."""
        return Limits(**{name: getattr(self, f"quota_{name}") for name in NAMES})

    @property
    def storage(self) -> StorageSettings:
        """Raises InvalidArgument: what is set does not go together, or ``storage_config`` is wrong."""
        given = {name: getattr(self, f"s3_{name}") for name in S3Settings.__dataclass_fields__}
        values = {
            name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            for name, value in given.items()
        }
        return StorageSettings.of(
            values, self.storage_config, os.environ, webhdfs=self.webhdfs, call_seconds=self.storage_call_s
        )

    @property
    def sinks(self) -> RunnerSettings:
        """Raises InvalidArgument: ``webhook_networks`` or ``mail_from`` is wrong."""
        mail = MailPolicy(
            self.mail_host,
            self.mail_port,
            self.mail_tls,
            self.mail_user,
            self.mail_password.get_secret_value(),
            self.mail_from,
            tuple(domain.strip().lower() for domain in self.mail_domains),
            self.mail_ca_file,
        )
        if mail.sender:
            _ = mail.sender_address
        return RunnerSettings(
            lease_ms=max(1, int(self.sink_lease_s * 1_000)),
            look_s=self.sink_look_s,
            policy=SinkPolicy(
                WebhookPolicy(networks(self.webhook_networks), self.webhook_plain_http, self.webhook_ca_file), mail
            ),
            pauses=RetryPauses(self.sink_first_pause_s, self.sink_longest_pause_s),
            limits=LetterLimits(letters=self.sink_letters_max),
        )

    @property
    def warehouse_uri(self) -> str:
        """Absolute; a relative directory is taken from the working directory."""
        if "://" in self.warehouse or self.warehouse.startswith("file:"):
            return self.warehouse
        return "file:" + str(Path(self.warehouse).absolute())
