# The agent as a container: no shell needed, no root, no writable file system but its state.
#   docker build -t sebridge .
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
# For a build without a package registry: PIP_NO_INDEX=1 and a mounted PIP_FIND_LINKS.
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
WORKDIR /src
COPY requirements.txt requirements-dev.txt ./
# The lock file pins what builds us, too; only that part of it is wanted here.
RUN awk '/^setuptools==/ { found = 1 } found { print } found && !/\\$/ { exit }' \
        requirements-dev.txt >requirements-build.txt \
    && python -m venv --without-pip /opt/sebridge \
    && python -m venv --without-pip /opt/build \
    && python -m pip --python /opt/sebridge/bin/python install --no-cache-dir --require-hashes \
        --only-binary=:all: -r requirements.txt \
    && python -m pip --python /opt/build/bin/python install --no-cache-dir --require-hashes \
        --only-binary=:all: -r requirements-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY bridge bridge
RUN /opt/build/bin/python -c "import setuptools.build_meta as backend; backend.build_wheel('/wheel')" \
    && python -m pip --python /opt/sebridge/bin/python install --no-cache-dir --no-index --no-deps \
        /wheel/*.whl \
    && mkdir /state

FROM ${BASE}
ENV PATH=/opt/sebridge/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SEBRIDGE_HTTP__LISTEN=127.0.0.1:9464
COPY --from=build /opt/sebridge /opt/sebridge
COPY --from=build --chown=65532:65532 /state /var/lib/sebridge
USER 65532:65532
VOLUME /var/lib/sebridge
# The environment wins over the configuration, so this is the address that the agent listens on.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["python", "-c", "import os, urllib.request as r; r.build_opener(r.ProxyHandler({})).open('http://' + os.environ['SEBRIDGE_HTTP__LISTEN'] + '/healthz', timeout=4)"]
ENTRYPOINT ["sebridge"]
CMD ["run", "--config", "/etc/sebridge/config.toml"]
