"""No float, no Decimal and no division comes near money."""

import ast
from pathlib import Path

import billing

INEXACT_NAMES = {"float", "Decimal", "decimal", "fractions", "FloatField", "DecimalField", "round"}


def inexact_nodes(source: str) -> list[str]:
    """What in this module could lose a pico-unit."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, float | complex):
            found.append(f"line {node.lineno}: {node.value}")
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
            found.append(f"line {node.lineno}: division")
        elif isinstance(node, ast.Name) and node.id in INEXACT_NAMES:
            found.append(f"line {node.lineno}: {node.id}")
        elif isinstance(node, ast.Attribute) and node.attr in INEXACT_NAMES:
            found.append(f"line {node.lineno}: {node.attr}")
    return found


def test_billing_has_no_inexact_arithmetic() -> None:
    folder = Path(billing.__file__).parent
    modules = sorted(folder.rglob("*.py"))

    assert len(modules) > 10
    assert {
        str(path): found for path in modules if (found := inexact_nodes(path.read_text()))
    } == {}


def test_the_check_sees_floats_divisions_and_decimals() -> None:
    assert (
        len(inexact_nodes("x = 0.5\ny = x / 2\nz = Decimal('1')\nx /= 3\nmodels.FloatField()")) == 5
    )
