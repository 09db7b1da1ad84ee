"""What files, batches and summaries say alike: ids with a prefix, metadata, times of expiry."""

import re
from typing import Any
from uuid import UUID

from rest_framework import serializers

from batch_jobs.contracts import FileMissing
from headrace.management_api.bodies import Body

FILE_PREFIX = "file-"
METADATA_PAIRS_MAX = 16
METADATA_KEY_CHARS_MAX = 64
METADATA_VALUE_CHARS_MAX = 512
EXPIRES_S_MIN = 3600
EXPIRES_S_MAX = 30 * 24 * 3600
_HEX = re.compile(r"[0-9a-f]{32}")


class ExpiresAfterBody(Body):
    """When a file goes, counted from when it was made."""

    anchor = serializers.ChoiceField(["created_at"])
    seconds = serializers.IntegerField(min_value=EXPIRES_S_MIN, max_value=EXPIRES_S_MAX)


class MetadataField(serializers.DictField):
    """Up to 16 pairs of short strings, of the owner's making."""

    child = serializers.CharField(max_length=METADATA_VALUE_CHARS_MAX, allow_blank=True)

    def to_internal_value(self, data: Any) -> Any:
        """Raises ValidationError; a number is not taken for a string."""
        found = super().to_internal_value(data)
        if len(found) > METADATA_PAIRS_MAX:
            raise serializers.ValidationError(f"More than {METADATA_PAIRS_MAX} pairs.")
        for key, value in data.items():
            if len(key) > METADATA_KEY_CHARS_MAX:
                raise serializers.ValidationError(
                    f"A key of more than {METADATA_KEY_CHARS_MAX} characters."
                )
            if not isinstance(value, str) or "\0" in key:
                raise serializers.ValidationError({key: "Not a valid string."})
        return found


def parse_id(prefix: str, text: str) -> UUID:
    """The id in a prefixed one; raises ValueError for what we never gave out."""
    if not text.startswith(prefix) or not _HEX.fullmatch(text, len(prefix)):
        raise ValueError(f"{text[:100]!r} is no id")
    return UUID(text[len(prefix) :])


def file_id_of(text: str) -> UUID:
    """A file's id in a body; raises FileMissing for what cannot be one."""
    try:
        return parse_id(FILE_PREFIX, text)
    except ValueError:
        raise FileMissing(f"No such File object: {text[:100]}") from None


def file_id_shown(file_id: UUID | None) -> str | None:
    """A file's id as its owner sees it."""
    return None if file_id is None else f"{FILE_PREFIX}{file_id.hex}"
