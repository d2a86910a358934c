# One image for migrations, workers, Flower and the documents commands; what a container does is its command.
FROM python:3.13-slim

# Text, not a build argument's default at run time: nothing is downloaded once the image is built.
ENV PYTHONUNBUFFERED=1 UV_PYTHON_DOWNLOADS=never
WORKDIR /app

# The lock's hashes are held against every wheel. Dependencies first: they change less often than the code.
COPY requirements.lock pyproject.toml README.md LICENSE ./
RUN pip install --no-cache-dir uv==0.13.9 \
 && uv pip install --system --no-cache --constraint requirements.lock setuptools \
 && uv pip install --system --no-cache --constraint requirements.lock --requirement pyproject.toml

COPY . .
RUN uv pip install --system --no-cache --no-deps --no-build-isolation --editable . \
 && useradd --system --uid 10001 --home-dir /app holdfast \
 && install -d -o holdfast /var/lib/holdfast/documents
USER holdfast
VOLUME /var/lib/holdfast/documents

CMD ["celery", "-A", "tasks", "worker", "--loglevel=INFO"]
