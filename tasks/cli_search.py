"""``documents search``: the passages nearest in meaning, by every model that documents are embedded with."""

import click

from domain.begin import Model
from domain.failures import StageFailed
from domain.search import Passage, models_in_use, search
from settings import settings
from stages.embed import Embedder, open_embedder
from tasks.cli_errors import COULD_NOT_TELL
from tasks.cli_output import print_json
from tasks.database import transaction
from tasks.models import configured_embedder

SHOWN_CHARACTERS = 300


def search_passages(words: str, owner: str, limit: int, as_json: bool) -> int:
    """Search the current versions; 2 when a model that some are embedded with could not be asked.

    A version is searched by its own model, so the words are embedded once for each model in use.
    """
    if not words.strip():
        raise click.UsageError("what are you looking for? Give some words")
    with transaction() as connection:
        models = models_in_use(connection, owner)
    queries, unasked = embed_query(words, models)
    with transaction() as connection:
        passages = search(connection, owner, queries, limit) if queries else []
    for name, why in unasked.items():
        click.echo(f"not searched: documents embedded by {name}: {why}", err=True)
    if as_json:
        print_json({"query": words, "passages": passages, "modelsNotAsked": sorted(unasked)})
    else:
        show(passages, bool(models))
    return COULD_NOT_TELL if unasked else 0


def embed_query(words: str, models: list[Model]) -> tuple[dict[int, list[float]], dict[str, str]]:
    """The words' vector by each model, and why the others could not be asked."""
    vectors: dict[int, list[float]] = {}
    unasked: dict[str, str] = {}
    for model in models:
        try:
            vectors[model.id] = embedder_of(model).embed_query(words).tolist()
        except StageFailed as failed:
            unasked[model.name] = failed.failure.message
        except (ImportError, ValueError) as error:
            unasked[model.name] = str(error)
    return vectors, unasked


def embedder_of(model: Model) -> Embedder:
    """The embedder of a model in use: the configured one, or another that these settings can reach.

    Raises:
        ValueError: these settings do not reach it.
    """
    configured = configured_embedder()
    provider, _, name = model.name.partition(":")
    values = settings()
    if model.name == configured.model_name:
        other = configured
    elif provider != "openai":
        other = open_embedder(provider)
    elif values.embedding_provider == "openai":
        key = values.embedding_api_key
        other = open_embedder(
            provider, name, model.dimensions, values.embedding_base_url, key.get_secret_value() if key else None
        )
    else:
        raise ValueError("set EMBEDDING_PROVIDER=openai and its variables to ask it")
    if (other.model_name, other.dimensions) != (model.name, model.dimensions):
        raise ValueError(f"this program has {other.model_name} with {other.dimensions} dimensions")
    return other


def show(passages: list[Passage], anything: bool) -> None:
    """A passage: where it is, how near, and its text."""
    if not passages:
        click.echo("nothing found" if anything else "no document of this owner is searchable yet")
    for number, passage in enumerate(passages, 1):
        page = f", page {passage.page_no}" if passage.page_no else ""
        click.echo(f"{number}. {passage.name}{page}  (document {passage.document_id}, score {passage.score:.3f})")
        text = " ".join(passage.text.split())
        click.echo("   " + (text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + " …"))
