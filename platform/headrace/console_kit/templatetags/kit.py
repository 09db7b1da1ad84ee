"""What templates of the consoles are made of: numbers, tiles, cards, tables, meters, charts.

Each component has one template under `kit/components/`. Loaded in all templates by settings.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import forms, template
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from headrace.console_kit import formats
from headrace.console_kit.charts import Chart, Scatter
from headrace.console_kit.forms import wear_classes
from headrace.console_kit.tables import Table

register = template.Library()
FULL_PERCENT = 100
WARNING_PERCENT = 80
TONES = frozenset({"green", "yellow", "red", "blue", "gray"})


@register.simple_tag(takes_context=True)
def money(context: Mapping[str, Any], amount_pico: int | None, currency: str = "") -> SafeString:
    """`{% money pico %}` in the organization's currency, or another."""
    return formats.money(amount_pico, currency or context["currency"])


@register.simple_tag(takes_context=True)
def exactly(context: Mapping[str, Any], amount_pico: int | None, currency: str = "") -> SafeString:
    """`{% exactly pico %}`: money with all its decimals, as on documents."""
    shown = formats.money_exact(amount_pico, currency or context["currency"])
    return format_html('<span class="num">{}</span>', shown)


@register.simple_tag
def count(number: int | None) -> SafeString:
    """`{% count tokens %}`: 12.3k, exact on hover."""
    return formats.count(number)


@register.simple_tag
def percent(part: int | None, whole: int | None) -> str:
    """`{% percent part whole %}`: 38 %."""
    return formats.percent_text(part, whole)


@register.simple_tag
def duration(duration_ms: int | None) -> str:
    """`{% duration ms %}`: 340 ms, 2.41 s."""
    return formats.duration_text(duration_ms)


@register.simple_tag
def short_duration(duration_us: int | None) -> str:
    """`{% short_duration us %}`: 8.35 ms."""
    return formats.short_duration_text(duration_us)


@register.simple_tag(takes_context=True)
def moment(context: Mapping[str, Any], at: datetime | None) -> SafeString:
    """`{% moment at %}` in the organization's zone."""
    return formats.moment(at, context["zone"])


@register.simple_tag(takes_context=True)
def day(context: Mapping[str, Any], at: datetime | None) -> str:
    """`{% day at %}`: 29 Nov 2026."""
    return formats.day_text(at, context["zone"])


@register.simple_tag(takes_context=True)
def age(context: Mapping[str, Any], at: datetime | None) -> SafeString:
    """`{% age at %}`: 3 h ago, exact on hover."""
    return formats.age(at, context["zone"], context["now"])


@register.simple_tag
def badge(text: str, tone: str = "gray") -> SafeString:
    """`{% badge "revoked" "red" %}`: a word, with a colour that says the same."""
    if tone not in TONES:
        raise template.TemplateSyntaxError(f"no tone {tone!r}")
    return format_html('<span class="badge badge-{}">{}</span>', tone, text)


@register.inclusion_tag("kit/components/table.html")
def table(table: Table) -> dict[str, Any]:
    """`{% table table %}`."""
    return {"table": table}


@register.inclusion_tag("kit/components/chart.html")
def chart(chart: Chart | Scatter) -> dict[str, Any]:
    """`{% chart chart %}`: the drawing, its table twin and its CSV."""
    return {"chart": chart, "data_id": f"{chart.name}-data"}


@register.inclusion_tag("kit/components/meter.html")
def meter(
    used: int, limit: int | None, held: int = 0, label: str = "", used_text: object = ""
) -> dict[str, Any]:
    """`{% meter used limit held=... label="Tokens today" %}`: used, held and free, with a word."""
    whole = limit or 0
    share = FULL_PERCENT * (used + held) // whole if whole else FULL_PERCENT
    word, tone = "ok", "ok"
    if limit is not None and share >= FULL_PERCENT:
        word, tone = "reached", "full"
    elif share >= WARNING_PERCENT:
        word, tone = "nearly reached", "warning"
    return {
        "label": label,
        "used": min(used, whole),
        "held": min(held, max(0, whole - used)),
        "limit": limit,
        "word": word,
        "tone": tone,
        "share_text": formats.percent_text(used + held, limit),
        "used_text": used_text,
        "used_width": min(FULL_PERCENT, FULL_PERCENT * used // whole) if whole else 0,
        "held_width": min(FULL_PERCENT, FULL_PERCENT * held // whole) if whole else 0,
    }


@register.inclusion_tag("kit/components/spark.html")
def spark(values: list[int], label: str) -> dict[str, Any]:
    """`{% spark values "Requests, last 14 days" %}`: a line as wide as a cell, drawn as SVG."""
    top = max(values, default=0) or 1
    steps = max(1, len(values) - 1)
    points = " ".join(
        f"{100 * index // steps},{24 - 22 * value // top}" for index, value in enumerate(values)
    )
    return {"points": points, "label": label, "total": sum(values)}


@register.simple_block_tag
def card(
    content: str, title: str = "", note: str = "", name: str = "", *, body: bool = True
) -> str:
    """`{% card title="Keys" note="..." %}...{% endcard %}`; `body=False` for tables."""
    context = {"content": content, "title": title, "note": note, "name": name, "body": body}
    return render_to_string("kit/components/card.html", context)


@register.simple_block_tag
def stat(content: str, label: str, note: str = "", href: str = "", name: str = "") -> str:
    """`{% stat label="Spend" note="..." %}$12.30{% endstat %}`: one big number with its name."""
    context = {"content": content, "label": label, "note": note, "href": href, "name": name}
    return render_to_string("kit/components/stat.html", context)


@register.simple_block_tag
def empty(content: str, title: str, icon: str = "info-circle") -> str:
    """`{% empty title="No keys yet" icon="key" %}what to do next{% endempty %}`."""
    context = {"content": content, "title": title, "icon": icon}
    return render_to_string("kit/components/empty.html", context)


@register.simple_block_tag
def code(content: str, language: str = "") -> str:
    """`{% code "bash" %}...{% endcode %}`: a block with a copy button."""
    text = SafeString(content.strip("\n"))  # escaped where it was written
    context = {"content": text, "language": language}
    return render_to_string("kit/components/code.html", context)


@register.simple_block_tag
def dialog(content: str, name: str, title: str, label: str, tone: str = "") -> str:
    """`{% dialog name="new-key" title="New key" label="Create key" %}form{% enddialog %}`: a button
    that opens a dialog, with its content."""
    context = {"content": content, "name": name, "title": title, "label": label, "tone": tone}
    return render_to_string("kit/components/dialog.html", context)


@register.inclusion_tag("kit/components/field.html")
def field(field: forms.BoundField) -> dict[str, Any]:
    """`{% field form.name %}`: a control with its label, its hint, and what is wrong with it."""
    wear_classes(field.field)
    widget = field.field.widget
    kind = "line"
    if isinstance(widget, forms.CheckboxSelectMultiple | forms.RadioSelect):
        kind = "many"
    elif isinstance(widget, forms.CheckboxInput):
        kind = "one"
    return {"field": field, "kind": kind}


@register.simple_tag
def fields(form: forms.Form) -> SafeString:
    """`{% fields form %}`: what is wrong with the whole form, and each of its fields."""
    drawn = [render_to_string("kit/components/field.html", field(one)) for one in form]
    return format_html("{}{}", form.non_field_errors(), SafeString("".join(drawn)))


@register.inclusion_tag("kit/components/live.html", takes_context=True)
def live(context: Mapping[str, Any], *topics: str) -> dict[str, Any]:
    """`{% live "usage" "job:..." %}` in the block `live`: parts of the page that follow these."""
    return {"href": f"{context['view'].live_path}?{urlencode({'topics': ','.join(topics)})}"}
