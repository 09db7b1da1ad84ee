"""What the operator's pages show live: read here, shown by `templates/operator_console/live/`.

A topic's template is included by the page that follows it too. Named by the live socket, which the
ASGI application makes.
"""

from collections.abc import Mapping, Sequence

from headrace.console_kit.live.operator_topics import OperatorTopic
from headrace.console_kit.live.topics import Context
from headrace.gateway.announcing import EngineReport
from headrace.operator_console.fleet.curves import curves_context
from headrace.operator_console.fleet.page import fleet_context


def fleet(reports: Sequence[EngineReport] | None) -> Context:
    """The engines that report; None while nobody knows."""
    return fleet_context(reports)


def curves(reports: Sequence[EngineReport] | None) -> Context:
    """Where they are on their curves; other than before only when a mark was made."""
    return curves_context(reports)


OPERATOR_TOPICS: Mapping[str, OperatorTopic] = {
    topic.name: topic
    for topic in (
        OperatorTopic("fleet", "operator_console/live/fleet.html", fleet),
        OperatorTopic("curves", "operator_console/live/curves.html", curves),
    )
}
