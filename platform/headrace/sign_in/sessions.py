"""Sessions that ended by themselves: rows nobody will ask for again. Called by an hourly task."""

from django.contrib.sessions.models import Session
from django.utils import timezone


def forget_ended_sessions(using: str = "housekeeper") -> int:
    """Deletes them, and says how many they were."""
    deleted, _ = Session.objects.using(using).filter(expire_date__lt=timezone.now()).delete()
    return deleted
