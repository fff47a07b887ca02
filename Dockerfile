# The daemon and its command-line tool.
#   docker build --build-arg VARIANT=cuda -t ridgeline .    drives an NVIDIA GPU; run it with --gpus
#   docker build --build-arg VARIANT=cpu -t ridgeline .     the CPU device alone
ARG VARIANT=cuda
ARG CUDA_VERSION=13.0.1

FROM ubuntu:24.04 AS build-cpu
FROM nvidia/cuda:${CUDA_VERSION}-devel-ubuntu24.04 AS build-cuda
FROM ubuntu:24.04 AS runtime-cpu
FROM nvidia/cuda:${CUDA_VERSION}-runtime-ubuntu24.04 AS runtime-cuda

# One of the stages above, which are tagged.
# hadolint ignore=DL3006
FROM build-${VARIANT} AS build
ARG VARIANT
WORKDIR /src
COPY deploy/install_packages.sh deploy/
RUN deploy/install_packages.sh build
COPY . .
RUN case "$VARIANT" in cuda) cuda=ON ;; *) cuda=OFF ;; esac \
    && cmake --preset release -DRIDGELINE_CUDA="$cuda" -DRIDGELINE_TESTS=OFF -DRIDGELINE_BENCH=OFF \
    && cmake --build build/release --target ridgelined ridgeline \
    && cmake --install build/release --component portable --strip --prefix /opt/ridgeline

# hadolint ignore=DL3006
FROM runtime-${VARIANT}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Ridgeline" \
      org.opencontainers.image.description="Attention over gRPC, measured against the roofline" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The measured roofline is kept in the cache folder.
RUN groupadd --gid 10001 ridgeline \
    && useradd --uid 10001 --gid ridgeline --no-create-home --shell /usr/sbin/nologin ridgeline \
    && install -d -o ridgeline -g ridgeline /var/cache/ridgeline
COPY --from=build /opt/ridgeline /opt/ridgeline
ENV PATH=/opt/ridgeline/bin:$PATH \
    XDG_CACHE_HOME=/var/cache
USER 10001:10001
EXPOSE 50051 9464
# The first start also measures the device.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["ridgeline", "health", "--timeout=4s"]
ENTRYPOINT ["ridgelined"]
# The container's network is its own; who publishes the ports says who reaches them.
CMD ["--listen=0.0.0.0:50051", "--metrics_listen=0.0.0.0:9464", "--allow_plaintext"]
