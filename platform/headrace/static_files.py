"""Style sheets and scripts that pages of ours load: from installed packages, never from elsewhere.

They are few and small; a proxy in front may keep them. Only what an app ships in its `static/`
folder is found.
"""

import mimetypes
from pathlib import Path

from django.contrib.staticfiles import finders
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

MAX_AGE_S = 3600


@require_safe
def static_file(request: HttpRequest, path: str) -> HttpResponse:
    """One file, whole; raises Http404."""
    try:
        found = finders.find(path)
    except ValueError:  # a path that leaves its folder
        found = None
    if not isinstance(found, str):
        raise Http404(path)
    kind, _ = mimetypes.guess_type(found)
    return HttpResponse(
        Path(found).read_bytes(),
        content_type=kind or "application/octet-stream",
        headers={"Cache-Control": f"public, max-age={MAX_AGE_S}"},
    )
