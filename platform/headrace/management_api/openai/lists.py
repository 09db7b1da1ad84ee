"""What OpenAI's administration objects have in common: times in seconds, deletions, pages.

Called by the views under `/v1/organization/`.
"""

from datetime import datetime
from typing import Any

from rest_framework import serializers


class DeletedShown(serializers.Serializer[Any]):
    """An object that is gone."""

    object = serializers.CharField()
    id = serializers.UUIDField()
    deleted = serializers.BooleanField()


def deleted(kind: str, identifier: object) -> dict[str, Any]:
    """`DeletedShown`."""
    return {"object": f"{kind}.deleted", "id": str(identifier), "deleted": True}


def seconds(moment: datetime | None) -> int | None:
    """A time as OpenAI writes it."""
    return None if moment is None else int(moment.timestamp())
