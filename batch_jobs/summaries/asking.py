"""How a summary is asked for: the chat completion request of a document, or of a merge.

Pure. The pump builds its requests here, so that what is sent depends on a job's options and the
text alone; ingestion asks how many tokens the words around a text take.
"""

import json
from typing import Any

from batch_jobs.summaries.options import SummaryOptions

INSTRUCTIONS = {
    "short": "Summarize this text in one short sentence.",
    "medium": "Summarize this text in one paragraph of three to five sentences.",
    "long": "Summarize this text in a few paragraphs that keep every important point.",
}
MERGE_INSTRUCTION = (
    "The following are summaries of consecutive parts of one text, in their order. Write from them"
    " the summary of the whole text, as was asked for each part: "
)
JSON_INSTRUCTION = " Answer with JSON by the schema."


def instruction_of(options: SummaryOptions, *, merging: bool) -> str:
    """What is said before every text of a job; `merging` where the text is parts' summaries."""
    said = options.instruction or INSTRUCTIONS[options.length]
    if options.language is not None:
        said += f" Write in this language: {options.language}."
    if options.style is not None:
        said += f" Write in this style: {options.style}."
    if options.schema is not None:
        said += JSON_INSTRUCTION
    return MERGE_INSTRUCTION + said if merging else said


def request_body(options: SummaryOptions, text: str, merging: bool) -> dict[str, Any]:  # OpenAI's
    """The request that summarises `text`, greedily, so that the same text has the same summary.

    The user says what to do, before the text: small models rewrite the text when a system message
    asks. In front it is a prefix that all texts of a job share and pay for at the cached price.
    """
    body: dict[str, Any] = {
        "model": options.model,
        "messages": [
            {
                "role": "user",
                "content": f"{instruction_of(options, merging=merging)}\n\n{text.strip()}",
            }
        ],
        "max_tokens": options.tokens_max,
        "temperature": 0,
    }
    if options.schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "summary", "schema": json.loads(options.schema)},
        }
    return body
