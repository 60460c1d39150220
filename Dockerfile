# The Lakemark server on the embedded SQLite store:
#   docker build -t lakemark . && docker run -p 9083:9083 -p 9090:9090 -v lakemark:/var/lib/lakemark lakemark
# Port 9083 speaks the Hive Metastore's Thrift protocol, 9090 gRPC.
#
# A store in PostgreSQL needs nothing more: --store postgresql://user@host/database. One in FoundationDB needs its client
# library, of the cluster's version (7.1 or newer), which no package registry carries and which is not in this image.
# Take libfdb_c.so out of the package foundationdb-clients of FoundationDB's release, and mount it with the cluster file:
#   docker run -v /path/to/libfdb_c.so:/usr/local/lib/libfdb_c.so:ro -v /etc/foundationdb:/etc/foundationdb \
#     -e LD_LIBRARY_PATH=/usr/local/lib ... lakemark serve --host 0.0.0.0 --store fdb:///etc/foundationdb/fdb.cluster
# The cluster file's directory must be writable for user 10001: the client keeps the file up to date. Without the library
# the service ends at its start and says that it is missing.

FROM python:3.11-slim AS build
WORKDIR /src
COPY scripts/locks/build.lock scripts/locks/build.lock
RUN pip install --no-cache-dir --require-hashes -r scripts/locks/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY protos protos
COPY thrift thrift
COPY scripts scripts
COPY clients clients
COPY core core
COPY hms_bridge hms_bridge
COPY server server
COPY web web
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.11-slim
COPY requirements-server.lock /tmp/requirements-server.lock
COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir --require-hashes -r /tmp/requirements-server.lock \
    && pip install --no-cache-dir --no-deps /tmp/wheels/*.whl \
    && rm -r /tmp/wheels /tmp/requirements-server.lock \
    && useradd --system --uid 10001 --create-home --home-dir /var/lib/lakemark lakemark
USER 10001
WORKDIR /var/lib/lakemark
VOLUME /var/lib/lakemark
EXPOSE 9083 9090
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s CMD ["python", "-c", "\
import grpc; from grpc_health.v1 import health_pb2, health_pb2_grpc; \
health = health_pb2_grpc.HealthStub(grpc.insecure_channel('127.0.0.1:9090')); \
answer = health.Check(health_pb2.HealthCheckRequest(), timeout=4); \
raise SystemExit(answer.status != health_pb2.HealthCheckResponse.SERVING)"]
ENTRYPOINT ["lakemark"]
CMD ["serve", "--host", "0.0.0.0", "--store", "sqlite:////var/lib/lakemark/lakemark.db", "--warehouse", "/var/lib/lakemark/warehouse"]
