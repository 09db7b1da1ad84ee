"""The items that a page of documents becomes: whole ones, trees, copies, failures.

Pure. Rows name each other by their place in the page; ids come with the insert. Parents come before
their parts, so that parts can be inserted with their parent's id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from batch_jobs.models import ItemState
from batch_jobs.summaries.fitting import Fitted, Fitter
from batch_jobs.summaries.sources.documents import Document, DocumentUnreadable


@dataclass(frozen=True, slots=True)
class Twin:
    """An item whose summary a document shares: of this job, or done in an earlier one."""

    item_id: int
    is_of_this_job: bool
    is_done: bool
    answer: str | None


@dataclass(slots=True)
class Row:
    """An item to be; `parent` and `same_row` are places in the page's rows."""

    line: int
    state: ItemState
    custom_id: str | None = None
    digest: bytes | None = None
    offset: int | None = None
    """In the page's shard; None for what has no text of its own."""
    size_bytes: int = 0
    parent: int | None = None
    part: int = 0
    parts_left: int = 0
    same_row: int | None = None
    same_id: int | None = None
    copies: int = 0
    bound_pico: int = 0
    answer: str | None = None
    error_code: str | None = None
    error_message: str | None = None


@dataclass(slots=True)
class PageDraft:
    """A page's rows, the texts of its shard, and what they add to the job's and plan's counts."""

    rows: list[Row] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    shard_bytes: int = 0
    completed: int = 0
    failed: int = 0
    duplicate: int = 0
    known: int = 0
    copies: dict[int, int] = field(default_factory=dict)
    """How many more documents share each item that an earlier page inserted."""
    requests: int = 0
    merged: int = 0
    """Summaries that are read again, by merges."""
    bytes_read: int = 0
    """Of all texts, those of copies included."""


@dataclass(frozen=True, slots=True)
class Named:
    """A document under the id that it has in its job, unlike any other's, and its digest."""

    document: Document
    custom_id: str
    digest: bytes | None
    """None for a document that cannot be summarised."""


def draft_page(
    documents: Sequence[Named], twins: Mapping[bytes, Twin], fitter: Fitter
) -> PageDraft:
    """Rows for the documents, in their order; `twins` are items that exist, by their digest."""
    page = PageDraft(bytes_read=sum(len(each.document.text.encode()) for each in documents))
    fresh = _first_of_each(documents, twins)
    fits = dict(zip(fresh, fitter.fit([fresh[key].document.text for key in fresh]), strict=True))
    leaders: dict[bytes, int] = {}
    for named in documents:
        digest, document = named.digest, named.document
        if digest is None:
            _fail(page, named, document.error_code or "", document.error_message)
        elif digest in twins:
            _share(page, named, twins[digest])
        elif digest in leaders:
            _share_row(page, named, leaders[digest])
        elif isinstance(fitted := fits[digest], DocumentUnreadable):
            _fail(page, named, fitted.code, str(fitted))
        else:
            leaders[digest] = len(page.rows)
            _add(page, named, fitted, fitter)
    return page


def _first_of_each(documents: Sequence[Named], twins: Mapping[bytes, Twin]) -> dict[bytes, Named]:
    first: dict[bytes, Named] = {}
    for named in documents:
        if named.digest is not None and named.digest not in twins:
            first.setdefault(named.digest, named)
    return first


def _fail(page: PageDraft, named: Named, code: str, message: str) -> None:
    page.failed += 1
    page.rows.append(
        Row(
            named.document.line,
            ItemState.FAILED,
            named.custom_id,
            error_code=code,
            error_message=message,
        )
    )


def _share(page: PageDraft, named: Named, twin: Twin) -> None:
    row = Row(named.document.line, ItemState.WAITING, named.custom_id)
    if not twin.is_of_this_job:
        # Copied, not shared: the other job's rows may go before this one's.
        row.state, row.digest, row.answer = ItemState.DONE, named.digest, twin.answer
        page.known += 1
    else:
        row.same_id = twin.item_id
        page.duplicate += 1
        page.copies[twin.item_id] = page.copies.get(twin.item_id, 0) + 1
        if twin.is_done:
            row.state = ItemState.DONE
    page.completed += row.state is ItemState.DONE
    page.rows.append(row)


def _share_row(page: PageDraft, named: Named, leader: int) -> None:
    page.duplicate += 1
    page.rows[leader].copies += 1
    page.rows.append(Row(named.document.line, ItemState.WAITING, named.custom_id, same_row=leader))


def _add(page: PageDraft, named: Named, fitted: Fitted, fitter: Fitter) -> None:
    offset, line = page.shard_bytes, named.document.line
    page.texts.append(named.document.text)
    page.shard_bytes += sum(part.size_bytes for part in fitted.parts)
    page.requests += len(fitted.parts)
    top = len(page.rows)
    parents: list[int | None] = [None]
    turns = [0]
    for level in reversed(fitted.levels):
        below: list[int | None] = []
        below_turns: list[int] = []
        for parent, turn, children in zip(parents, turns, level, strict=True):
            below.extend([len(page.rows)] * children)
            below_turns.extend(range(children))
            bound = fitter.bound_pico(fitter.merge_tokens_max(children))
            page.rows.append(
                Row(
                    line,
                    ItemState.WAITING,
                    parent=parent,
                    part=turn,
                    parts_left=children,
                    bound_pico=bound,
                )
            )
        page.requests += len(level)
        page.merged += sum(level)
        parents, turns = below, below_turns
    for number, (parent, turn, part) in enumerate(
        zip(parents, turns, fitted.parts, strict=True), 1
    ):
        page.rows.append(
            Row(
                number if fitted.levels else line,
                ItemState.QUEUED,
                offset=offset,
                size_bytes=part.size_bytes,
                parent=parent,
                part=turn,
                bound_pico=fitter.bound_pico(part.tokens_max),
            )
        )
        offset += part.size_bytes
    root = page.rows[top]
    root.custom_id, root.digest = named.custom_id, named.digest
