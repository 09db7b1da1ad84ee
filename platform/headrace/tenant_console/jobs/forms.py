"""Forms of jobs: what bounds one, and what one is made of.

They check shape; what may be is `batch_jobs`' to say, whose refusals name the field at fault.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django import forms
from django.conf import settings

from batch_jobs.contracts import InputInvalid
from headrace.console_kit.amounts import AmountField
from headrace.console_kit.forms import KitForm, MomentField
from headrace.management_api.bulk.batches import ENDPOINTS

NAME_CHARS_MAX = 100
TEXT_CHARS_MAX = 64 * 1024
FIELD_OF = {"input_file_ids": "file_ids", "input_file_id": "file_ids"}
"""Fields of forms by the facade's names for them, where they differ."""
OPTIONS = (
    "model",
    "instruction",
    "length",
    "language",
    "style",
    "schema",
    "text_field",
    "id_field",
)
LENGTHS = [("short", "Short, a sentence or two"), ("medium", "Medium"), ("long", "Long")]


class JobForm(KitForm):
    """A form whose facade is that of jobs."""

    def refuse_input(self, error: InputInvalid) -> None:
        """Says beside the field at fault what the facade says; else above the form."""
        name, colon, rest = str(error).partition(": ")
        name = FIELD_OF.get(name, name)
        sentence = rest if colon and name in self.fields else str(error)
        text = f"{sentence[:1].upper()}{sentence[1:]}".rstrip(".") + "."
        self.add_error(name if name in self.fields else None, text)


class BoundsForm(JobForm):
    """What can be changed while a job is unfinished; empty takes it away."""

    def __init__(self, *args: Any, zone: ZoneInfo, currency: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields |= _bounds(zone, currency)


class FilesField(forms.Field):
    """Ids of files that were uploaded, as the page's list has them."""

    widget = forms.SelectMultiple

    def clean(self, value: Any) -> list[UUID]:
        """Each once, in their order; raises ValidationError."""
        texts = list(dict.fromkeys(text for text in value or () if text))
        if not texts:
            raise forms.ValidationError("Upload a file, or choose one.")
        if len(texts) > settings.SUMMARY_INPUT_FILES_MAX:
            raise forms.ValidationError(f"At most {settings.SUMMARY_INPUT_FILES_MAX} files.")
        try:
            return [UUID(text) for text in texts]
        except ValueError:
            raise forms.ValidationError("This is no file's id.") from None


class SchemaField(forms.CharField):
    """A JSON schema, as text."""

    widget = forms.Textarea({"rows": 4, "spellcheck": "false", "class": "form-control font-mono"})

    def clean(self, value: Any) -> Any:
        """None where it is empty; raises ValidationError for what is no JSON."""
        text = super().clean(value)
        if not text:
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise forms.ValidationError("This is no JSON.") from None


class _FilesForm(JobForm):
    file_ids = FilesField(label="Files")
    name = forms.CharField(
        label="Name",
        max_length=NAME_CHARS_MAX,
        required=False,
        help_text="What you call this job. Optional.",
    )


class BatchForm(_FilesForm):
    """What a batch is made of."""

    endpoint = forms.ChoiceField(
        label="Endpoint",
        choices=[(path, path) for path in ENDPOINTS],
        help_text="Each line of the file names it too.",
    )


class SummaryForm(_FilesForm):
    """What a summarisation job is made of."""

    model = forms.ChoiceField(label="Model")
    length = forms.ChoiceField(label="Length", choices=LENGTHS)
    language = forms.CharField(
        label="Language", max_length=200, required=False, help_text="Empty is that of the document."
    )
    style = forms.CharField(
        label="Style", max_length=200, required=False, help_text="For example: dry, for lawyers."
    )
    instruction = forms.CharField(
        label="Instruction",
        max_length=8000,
        required=False,
        widget=forms.Textarea({"rows": 3}),
        help_text="What a summary shall say. Empty is a plain summary.",
    )
    text_field = forms.CharField(
        label="Field of the text",
        max_length=200,
        required=False,
        help_text="Of rows. Empty is text, document or content.",
    )
    id_field = forms.CharField(
        label="Field of the id",
        max_length=200,
        required=False,
        help_text="Of rows. Empty is id or custom_id.",
    )
    schema = SchemaField(
        label="JSON schema",
        max_length=TEXT_CHARS_MAX,
        required=False,
        help_text="Each summary is then JSON of this schema.",
    )

    def __init__(
        self, *args: Any, models: Sequence[str], zone: ZoneInfo, currency: str, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        model = self.fields["model"]
        assert isinstance(model, forms.ChoiceField)
        model.choices = [(name, name) for name in models]
        if not models:
            model.help_text = "No model is for sale at the batch price."
        self.initial.setdefault("model", settings.SUMMARY_MODEL)
        self.fields |= _bounds(zone, currency)

    @staticmethod
    def options_of(asked: Mapping[str, Any]) -> dict[str, Any]:
        """The options that the fields spell; empty ones are left out."""
        return {name: asked[name] for name in OPTIONS if asked[name] not in ("", None)}


def _bounds(zone: ZoneInfo, currency: str) -> dict[str, forms.Field]:
    return {
        "budget": AmountField(
            label=f"Budget in {currency}",
            required=False,
            help_text="The job pauses before it would cost more. Empty is no budget.",
        ),
        "deadline_at": MomentField(
            zone,
            label="Deadline",
            required=False,
            help_text="You are told as soon as it would be missed. It makes nothing faster.",
        ),
    }
