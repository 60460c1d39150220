"""The key space, in one place. ``docs/keys.md`` describes every entry.

The first element of a key is its subsystem; below it everything belongs to a table id or a database id, so that a
rename touches one key.
"""

from __future__ import annotations

from typing import Final

from lakemark_server.kv.keys import Space

MAIN: Final = "main"

META: Final = Space.of("meta")  # ("format") -> the format of the store
IDS: Final = Space.of("ids")  # (kind) -> the next free id
CATALOGS: Final = Space.of("catalog")  # (catalog) -> CatalogRecord, of catalogs that clients have defined
DATABASES: Final = Space.of("db")  # (catalog, name) -> DatabaseRecord
TABLE_NAMES: Final = Space.of("name")  # (database id, name) -> TableEntry
LAKE_TABLES: Final = Space.of("lake")  # (table id) -> LakeTableRecord
# (catalog, database, name that it had, table id) -> empty: a dropped lake table, which can be brought back
DROPPED: Final = Space.of("dropped")
DROPPED_DUE: Final = Space.of("dropdue")  # (ms, table id) -> empty: when a dropped table is deleted
PLACES: Final = Space.of("place")  # (place) -> PlaceRecord: who has files there
HELD: Final = Space.of("held")  # (kind, id, part, place) -> empty: the same by holder
CLOSED: Final = Space.of("deleting")  # (place) -> ClosedRecord: files are being deleted or moved, nothing is made there
LEAVING: Final = Space.of("leaving")  # (table id) -> "1" or "0": dropped, its partitions' places and (1) files are left
EARLIER_LOCATIONS: Final = Space.of("loc")  # (location) -> table id: what stores of earlier builds have for PLACES
SCHEMAS: Final = Space.of("schema")  # (table id, schema id) -> Schema
SCHEMA_VERSIONS: Final = Space.of("schemav")  # (table id, schema id) -> SchemaVersionRecord; not of schema 1
HIVE_TABLES: Final = Space.of("hive")  # (table id) -> HiveTableRecord with the Thrift Table
PARTITIONS: Final = Space.of("part")  # (table id, value …) -> HivePartitionRecord with the Thrift Partition
PARTITION_PLACES: Final = Space.of("partd")  # (table id, relative location, part) -> empty: where no name leads
PARTITION_CHANGES: Final = Space.of("partv")  # (table id, 0) -> counter of changes; (table id, ms, random) -> which
# (table id, 0, batch) -> when a part was added last, ms, 8 bytes, or empty: it is taken back;
# (table id, 1, batch, number) -> PartitionChangeRecord with what the batch has added
PENDING_PARTITIONS: Final = Space.of("partp")
COLUMN_STATISTICS: Final = Space.of("stats")  # (table id, partition or "", column) -> Thrift ColumnStatisticsObj
CONSTRAINTS: Final = Space.of("constr")  # (table id, name) -> ConstraintRecord
REFERENCES: Final = Space.of("constrp")  # (table id, id of a table, name) -> empty: that foreign key refers to this one
FUNCTIONS: Final = Space.of("func")  # (database id, name) -> Thrift Function
DATA_CONNECTORS: Final = Space.of("conn")  # (name) -> Thrift DataConnector
HEADS: Final = Space.of("head")  # (table id, branch) -> HeadRecord
LAST_INSTANT: Final = Space.of("lasti")  # (table id) -> the greatest instant handed out
INSTANTS: Final = Space.of("inst")  # (table id, instant) -> InstantRecord
ALIVE: Final = Space.of("alive")  # (table id, instant) -> when its heartbeat runs out; only while requested or inflight
VERSIONS: Final = Space.of("ver")  # (table id, branch, version) -> VersionRecord
VERSION_TIMES: Final = Space.of("vert")  # (table id, branch, commit time in ms, version) -> empty
BLOCKS: Final = Space.of("block")  # (table id, instant, number) -> staged entries
# (table id, instant, block, number) -> hashes of the slice directories of that block; number < 0: of those above them
STAGED_SLICES: Final = Space.of("slice")
REMOVED: Final = Space.of("gone")  # (table id, instant, number) -> entries of files that the instant removes
BASES: Final = Space.of("base")  # (table id, branch key) -> BaseRecord: where readers begin
BASE_INDEXES: Final = Space.of("basei")  # (table id, base id) -> BaseIndex
BASE_PAGES: Final = Space.of("basep")  # (table id, base id, number) -> entries
BASE_BUILDS: Final = Space.of("baseb")  # (table id, base id) -> when the build began; until it is published
BRANCHES: Final = Space.of("branch")  # (table id, name) -> BranchRecord
BRANCH_KEYS: Final = Space.of("branchk")  # (table id, key) -> BranchRecord, of dropped branches too
TAGS: Final = Space.of("tag")  # (table id, name) -> TagRecord
SAVEPOINTS: Final = Space.of("save")  # (table id, branch key, version) -> TagRecord
# (table id, branch key, key of a branch that merged versions of it, version that did, the last one merged) -> empty
MERGES: Final = Space.of("merge")
CLEANED: Final = Space.of("cleaned")  # (table id, branch key) -> CleanedRecord
LEFT_FILES: Final = Space.of("left")  # (table id, path) -> size, since when nobody has it: files still to be deleted
DOOR_SESSIONS: Final = Space.of("door")  # (table id, session) -> DoorSessionRecord: who inserts through a door
DOOR_SESSIONS_COUNTED: Final = Space.of("doorn")  # (table id) -> how many sessions there were, 8 bytes
DOOR_DIRECTORIES: Final = Space.of("doord")  # (table id, session, directory) -> DoorDirectoryRecord: what was decided
EXPIRING: Final = Space.of("expire")  # (ms, table id, name of a branch or tag) -> empty: when it is to be dropped
CLEANS: Final = Space.of("clean")  # (table id) -> when its next clean in the background is due, failures in a row
CLEANS_DUE: Final = Space.of("cleandue")  # (ms, table id) -> empty: the same by time
UUID: Final = META.key("uuid")  # the key itself: a random UUID of the store, once somebody has asked for it
RESTORED: Final = META.key("restored")  # the key itself: when the store was made of a backup, ms, 8 bytes
PLACES_KNOWN: Final = META.key("places")  # the key itself: there since PLACES has everybody's
EPOCH: Final = META.key("epoch")  # the key itself: when the store was restored last, 8 bytes; absent: never
EARLIER_EPOCHS: Final = META.space("epoch")  # (epoch) -> empty: the store was in it before it was restored again
# (catalog, epoch, versionstamp with the number of the piece) -> what one transaction changed (``store.event_log``)
EVENTS: Final = Space.of("event")
EVENT_ENDS: Final = Space.of("evente")  # (catalog) -> stamp of the log's last batch, epoch: changes with every batch
EVENT_MARKS: Final = Space.of("eventm")  # (catalog, offset) -> EventMark
CONSUMERS: Final = Space.of("consumer")  # (catalog, name) -> ConsumerRecord
CONSUMER_PLACES: Final = Space.of("consumerp")  # (catalog, name) -> ConsumerPlace: how far it has come
SINKS: Final = Space.of("sink")  # (catalog, name) -> SinkRecord
SINKS_CHANGED: Final = Space.of("sinkv").key()  # the key itself: counter of changes of those records
SINK_PROGRESS: Final = Space.of("sinkp")  # (catalog, name) -> SinkProgress: how it fares
DEAD_LETTERS: Final = Space.of("letter")  # (catalog, name, id) -> DeadLetterRecord: an event that a sink has given up
DEAD_LETTER_COUNTS: Final = Space.of("lettern")  # (catalog, name, "letters" or "bytes") -> counter
RESENDS: Final = Space.of("resend")  # (catalog, name, id) -> empty: another attempt at a dead letter was asked for
LISTENERS: Final = Space.of("listener")  # (catalog, name) -> Listener: what was configured
LISTENER_STATES: Final = Space.of("listeners")  # (catalog, name) -> ListenerState, which its runner tells
# (catalog, listener, kind, name) -> ListenerDifference: what stays different outside
LISTENER_PROBLEMS: Final = Space.of("listenerp")
LISTENER_FUNCTIONS: Final = Space.of(
    "listenerf"
)  # (catalog, listener, database, function) -> digest of what was written
LOCKS: Final = Space.of("lock")  # (lock id) -> LockRecord
LOCK_BEATS: Final = Space.of("lockb")  # (lock id) -> its last heartbeat, ms; of a lock without a transaction
LOCK_PARTS: Final = Space.of("lockp")  # (lock id, number) -> LockComponentRecord
# (catalog, database, table or "", partition or "", position, lock id, number) -> type, transaction id
LOCK_QUEUES: Final = Space.of("lockq")
LAST_TXN: Final = Space.of("txnlast").key()  # the key itself: the last transaction that was opened
TXNS_OPEN: Final = Space.of("txn")  # (transaction id) -> TransactionRecord
TXNS_ABORTED: Final = Space.of("txna")  # (transaction id) -> TransactionRecord
TXNS_COMMITTED: Final = Space.of("txnc")  # (transaction id) -> TransactionRecord, for a while
TXN_BEATS: Final = Space.of("txnb")  # (transaction id) -> the last heartbeat, ms; only while it is open
TXN_LOCKS: Final = Space.of("txnl")  # (transaction id, lock id) -> empty
TXN_WRITE_IDS: Final = Space.of("txnw")  # (transaction id, number of the table's write ids) -> write id
TXN_TARGETS: Final = Space.of("txnt")  # (transaction id, catalog, database, table, partition or "") -> operation
# (catalog, database, table, last transaction opened before the commit, transaction id, partition or "") -> empty
WRITTEN: Final = Space.of("txnset")
TXN_DUE: Final = Space.of("txndue")  # (ms, kind, id) -> empty: when a lock or transaction is looked at next
TXN_COUNTS: Final = Space.of("txnn")  # (what) -> counter of locks and transactions
WRITE_ID_TABLES: Final = Space.of("wtable")  # (catalog, database, table) -> WriteIdsRecord
WRITE_IDS: Final = Space.of("wid")  # (number of the table's write ids, write id) -> transaction id
ROLES: Final = Space.of("role")  # (name) -> RoleRecord
ROLE_MEMBERS: Final = Space.of("rolem")  # (role, type of the principal, principal) -> RoleMemberRecord
ROLES_OF: Final = Space.of("roleo")  # (type of the principal, principal, role) -> empty
# (catalog, database or "", table or "", partition or "", column or "", type of the principal, principal, privilege,
# grantor, authorizer) -> PrivilegeRecord
PRIVILEGES: Final = Space.of("priv")
GRANT_COUNTS: Final = Space.of("privn")  # (what) -> counter of roles, their members, privileges
TOKENS: Final = Space.of("token")  # (owner, number) -> DelegationTokenRecord
TOKENS_DUE: Final = Space.of("tokendue")  # (ms, owner, number) -> empty: when a token expires
TOKEN_COUNTS: Final = Space.of("tokenn")  # (owner) -> how many tokens, 8 bytes
MASTER_KEYS: Final = Space.of("tokenkey")  # (id) -> MasterKeyRecord, with which passwords of tokens are made
RUNTIME_STATISTICS: Final = Space.of("runstat")  # (when it was sent in s, random) -> weight, 4 bytes
RUNTIME_PAYLOADS: Final = Space.of("runload")  # (when it was sent in s, random) -> what Hive's optimizer has sent
MOUNTS: Final = Space.of("mount")  # (catalog, name) -> Mount: a database of an outside Metastore
OPTIMIZATIONS: Final = Space.of("opt")  # (table id) -> OptimizationRecord
OPTIMIZATIONS_DUE: Final = Space.of("optdue")  # (ms, table id) -> empty: when the planner looks at a table
PARTITION_HISTORIES: Final = Space.of("optpart")  # (table id, partition) -> PartitionHistory: its earlier runs
OPTIMIZATION_TASKS: Final = Space.of("opttask")  # (table id, instant) -> OptimizationTask, of open ones
TASKS_READY: Final = Space.of("optready")  # (group, ms, table id, instant) -> empty: tasks that wait for a worker
OPTIMIZATION_RUNS: Final = Space.of("optrun")  # (table id, when it ended in ms, instant) -> OptimizationTask
OPTIMIZATION_RUN_TIMES: Final = Space.of("optrunt")  # (when it ended in ms, table id, instant) -> empty
OPTIMIZATION_HOLDS: Final = Space.of("opthold")  # (table id, partition or "") -> OptimizationHold
OPTIMIZER_WORKERS: Final = Space.of("optworker")  # (group, worker id) -> OptimizerWorker
OPTIMIZER_GROUPS: Final = Space.of("optgroup")  # (name) -> OptimizerGroup: what was configured
GROUP_TIMES: Final = Space.of("optused")  # (group, begin of five minutes in ms) -> counter of worker time, ms
TABLE_TIMES: Final = Space.of("optusedt")  # (table id, begin of five minutes in ms) -> counter of worker time, ms
TABLE_READS: Final = Space.of("optreads")  # (table id, begin of the hour in ms) -> counter of plan requests
RESTORING: Final = Space.of("restoring")  # () -> the marker of a store that holds a part of a backup, as JSON
LEASES: Final = Space.of("lease")  # (name) -> token, when it runs out, holder
REQUESTS: Final = Space.of("req")  # (request id) -> RequestRecord
REQUEST_TIMES: Final = Space.of("reqt")  # (when it was answered in ms, request id) -> empty
QUOTAS: Final = Space.of("quota")  # (catalog) -> Quota: the tenant's own limits
USAGE: Final = Space.of("usage")  # (catalog, what) -> counter of what the tenant has

# What a table leaves behind when it is dropped, all of it keyed by table id first.
OF_TABLE: Final = (
    LAKE_TABLES, SCHEMAS, SCHEMA_VERSIONS, HIVE_TABLES, PARTITIONS, PARTITION_PLACES, PARTITION_CHANGES,
    COLUMN_STATISTICS, HEADS, LAST_INSTANT, INSTANTS, ALIVE, VERSIONS, VERSION_TIMES, BLOCKS, STAGED_SLICES, REMOVED,
    BASES, BASE_INDEXES, BASE_PAGES, BASE_BUILDS, BRANCHES, BRANCH_KEYS, TAGS, SAVEPOINTS, MERGES, CLEANED,
    PENDING_PARTITIONS, LEFT_FILES, CLEANS, CONSTRAINTS, REFERENCES, DOOR_SESSIONS, DOOR_SESSIONS_COUNTED,
    DOOR_DIRECTORIES, OPTIMIZATIONS, PARTITION_HISTORIES, OPTIMIZATION_TASKS, OPTIMIZATION_RUNS, OPTIMIZATION_HOLDS,
    TABLE_TIMES, TABLE_READS,
)  # fmt: skip
