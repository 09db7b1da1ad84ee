"""Makes families_greedy.json: greedy answers of transformers to toy models of each family.

transformers is no dependency of the project. In an environment that has it beside the project's
own: `python -m tests.goldens.make_family_goldens`. Refuses weights whose answers hang on rounding
or say nothing, so that the tests can ask for every token.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from tests.inference.models.toy_families import TOYS, VOCABULARY, Toy, write_folder

PROMPT_LENGTHS = (1, 6, 33, 80)
OUTPUT_TOKENS = 40
MARGIN_MIN = 1e-3
DISTINCT_MIN = 8
GOLDENS = Path(__file__).with_name("families_greedy.json")


def main() -> None:
    """Write the goldens of every toy."""
    import transformers  # type: ignore[import-not-found, unused-ignore]  # see above

    cases = [case for toy in TOYS for case in _cases(toy, transformers)]
    raw = {"reference": f"transformers {transformers.__version__}, float32, greedy", "cases": cases}
    lines = ",\n".join(json.dumps(case) for case in cases)
    GOLDENS.write_text(json.dumps(raw | {"cases": []})[:-2] + f"\n{lines}\n]}}\n")


def _cases(toy: Toy, transformers: Any) -> list[dict[str, Any]]:  # a module without types here
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder), toy)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        )
    generator = torch.Generator().manual_seed(100 + toy.seed)
    cases = []
    for length in PROMPT_LENGTHS:
        prompt = torch.randint(0, VOCABULARY, (length,), generator=generator).tolist()
        output, margin = _greedy(model, prompt)
        sys.stdout.write(f"{toy.name} {length}: margin {margin:.4f}, {len(set(output))} distinct\n")
        if margin < MARGIN_MIN or len(set(output)) < DISTINCT_MIN:
            raise SystemExit(f"{toy.name}: choose another seed")
        cases.append({"toy": toy.name, "prompt_ids": prompt, "output_ids": output})
    return cases


@torch.inference_mode()
def _greedy(model: Any, prompt: list[int]) -> tuple[list[int], float]:
    """The answer, and by how much its least certain token led. Recomputes the whole each time."""
    tokens, margins = list(prompt), []
    for _ in range(OUTPUT_TOKENS):
        best = model(torch.tensor([tokens]), use_cache=False).logits[0, -1].topk(2)
        tokens.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
    return tokens[len(prompt) :], min(margins)


if __name__ == "__main__":
    main()
