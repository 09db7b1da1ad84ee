"""The codes with which reading an input fails, and what the documentation says of them."""

import ast
import re
from pathlib import Path

from batch_jobs import summaries
from batch_jobs.contracts import StorageFull, TooMuchEnqueued

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "summary-inputs.md"
TELLING = {"InputUnreadable", "DocumentUnreadable", "Unreadable", "LineError", "refuse", "failed"}
"""What is called with a code."""
CODE = re.compile("[a-z]+(_[a-z]+)+|encrypted")
OF_CONTRACTS = {StorageFull.code, TooMuchEnqueued.code}


def told_by(module: Path) -> set[str]:
    """The codes that a module tells."""
    told = set()
    for node in ast.walk(ast.parse(module.read_text())):
        spoken: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            spoken = node.args if node.func.id in TELLING else []
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            spoken = node.value.elts
        texts = [str(each.value) for each in spoken if isinstance(each, ast.Constant)]
        told.update([text for text in texts if CODE.fullmatch(text)][:1])
    return told


def test_every_code_is_documented_and_no_other() -> None:
    modules = Path(summaries.__file__).parent.rglob("*.py")
    told = OF_CONTRACTS.union(*map(told_by, modules))
    rows = re.findall(r"^\| (`.+?`) \| [^|]+ \|$", DOCUMENTATION.read_text(), re.MULTILINE)

    assert {code for row in rows for code in re.findall("`(.+?)`", row)} == told
