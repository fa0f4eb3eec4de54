# Hedgerow on a CPU, with workers for Dask and reading from S3: docker build -t hedgerow .
FROM python:3.12-slim
# An index with builds of PyTorch for CPUs alone makes the image several times smaller; PyTorch's own pages name one:
# docker build -t hedgerow --build-arg PIP_EXTRA_INDEX_URL=ADDRESS .
ARG PIP_EXTRA_INDEX_URL
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN pip install --no-cache-dir '/source[net,scale,cloud]' && rm -r /source && useradd --create-home hedgerow
USER hedgerow
WORKDIR /home/hedgerow
# Kernels are compiled here and not in every container.
RUN hedgerow warm-up
CMD ["hedgerow", "--help"]
