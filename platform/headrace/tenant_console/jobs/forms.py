"""Forms of jobs: what bounds one, and what one is made of.

They check shape; what may be is `batch_jobs`' to say, whose refusals name the field at fault.
"""

from typing import Any
from zoneinfo import ZoneInfo

from batch_jobs.contracts import InputInvalid
from headrace.console_kit.amounts import AmountField
from headrace.console_kit.forms import KitForm, MomentField

FIELD_OF = {"budget_pico": "budget"}
"""Fields of forms by the facade's names for them, where they differ."""


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
        self.fields["budget"] = AmountField(
            label=f"Budget in {currency}",
            required=False,
            help_text="The job pauses before it would cost more. Empty is no budget.",
        )
        self.fields["deadline_at"] = MomentField(
            zone,
            label="Deadline",
            required=False,
            help_text="You are told as soon as it would be missed. It makes nothing faster.",
        )
