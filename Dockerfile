# The image of Shoal: one for workers, API and commands. docs/operations/containers.md describes it.
#
#   docker build -t shoal .                            every extra (API, databases, Kafka, Parquet, Scrapy)
#   docker build -t shoal:plain --build-arg LOCK=run . only what `pip install shoal` installs
#
# BASE needs glibc, Python 3.11 to 3.14 as python3 with venv, and CA certificates.
ARG BASE=docker.io/library/python:3.13-slim-trixie

FROM ${BASE} AS build
# A lock in requirements/: all or run. pip refuses a file whose hash is not in the lock.
ARG LOCK=all
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements/ requirements/
# No bytecode: its timestamps would make two builds of one commit differ. Python writes it to /tmp instead.
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/shoal \
    && /opt/build/bin/pip install --quiet --no-compile --require-hashes --requirement requirements/build.txt \
    && /opt/build/bin/pip --python /opt/shoal/bin/python install --quiet --no-compile --only-binary :all: --require-hashes --requirement "requirements/${LOCK}.txt"
COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
RUN /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/build/bin/pip --python /opt/shoal/bin/python install --quiet --no-deps --no-index --no-compile /wheels/*.whl \
    && find /opt/shoal -type d -name tests -path '*/pyarrow/*' -prune -exec rm -rf {} +

FROM ${BASE}
ARG VERSION=0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="shoal" \
      org.opencontainers.image.description="A distributed web crawler: any number of machines, one careful visitor." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/shoal /opt/shoal
# The user is a number, so that Kubernetes can verify that it is not root. /data is for shoal.toml and file outputs.
RUN install -d -o 10001 -g 10001 /data
USER 10001:10001
WORKDIR /data
ENV PATH=/opt/shoal/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONPYCACHEPREFIX=/tmp/pycache \
    SHOAL_LOG=json \
    SHOAL_WORKER_HEALTH=127.0.0.1:8081
# The root file system may be read-only; /tmp must not be.
VOLUME ["/tmp", "/data"]
EXPOSE 8080 8081
# Commands other than worker and serve listen on no port: run them with --no-healthcheck.
HEALTHCHECK --interval=15s --timeout=10s --start-period=90s --retries=3 CMD ["shoal", "health"]
# Open requests finish, leases are released: docker stop --time 30, or terminationGracePeriodSeconds.
STOPSIGNAL SIGTERM
ENTRYPOINT ["shoal"]
CMD ["worker"]
