# One image for the operator, the load generator and the frontier command.
FROM python:3.11-slim AS build
RUN pip install --no-cache-dir uv==0.13.9
WORKDIR /src
ENV UV_PROJECT_ENVIRONMENT=/opt/frontier UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1
COPY pyproject.toml uv.lock README.md LICENSE ./
RUN uv sync --frozen --no-dev --no-install-project
COPY operator operator
COPY tuner tuner
COPY local local
RUN uv sync --frozen --no-dev --no-editable

FROM python:3.11-slim
LABEL org.opencontainers.image.title="frontier-operator" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/frontier /opt/frontier
ENV PATH=/opt/frontier/bin:$PATH PYTHONUNBUFFERED=1
# A number, so that runAsNonRoot can be checked.
USER 65532:65532
ENTRYPOINT ["frontier-operator"]
CMD ["run"]
