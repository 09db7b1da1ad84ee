"""`make gpu-check`: kernels and engine on a GPU, checked and measured within four minutes.

Needs torch, triton and, to compare with it, transformers. Without a GPU it is a dry run, which says
so: the same lines at tiny sizes through Triton's interpreter, and every kernel compiled for GPUs.
Prints one table, writes gpu_check.json into the folder that OUT names, and exits with 1 if any
check failed.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.gpu_check.findings import Finding, read_findings, table
from benchmarks.gpu_check.processes import Job, Running, run_all

TIME_MAX_S = 228.0
DRY = "DRY RUN: no GPU here, nothing below was measured or checked on one"


def main() -> int:
    """The whole check, or some sections of it in this process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check")
    parser.add_argument("--dry", action="store_true", help="a dry run even beside a GPU")
    parser.add_argument("--only", nargs="+", default=[], help="these sections alone")
    parser.add_argument("--sections", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=TIME_MAX_S, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sections:
        return run_here(options.sections, options.folder, options.seconds, dry=options.dry)

    import torch

    dry = options.dry or not torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as folder:
        return run_check(Path(folder), options.only, dry=dry)


def run_here(sections: Sequence[str], folder: Path, seconds: float, *, dry: bool) -> int:
    """Sections in this process."""
    import torch

    from benchmarks.gpu_check.sections import run_section
    from benchmarks.gpu_check.sizes import FULL, TINY
    from benchmarks.gpu_check.timing import Place

    if dry:
        torch.set_num_threads(1)
    if os.environ.get("TRITON_INTERPRET") == "1":
        from benchmarks.gpu_check.interpreting import interpret_as_gpu

        interpret_as_gpu()
    ends_at_s = time.monotonic() + seconds
    place = Place(torch.device("cpu" if dry else "cuda:0"))
    for name in sections:
        run_section(name, folder, TINY if dry else FULL, place, ends_at_s - time.monotonic())
    return 0


def run_check(folder: Path, only: Sequence[str], *, dry: bool) -> int:
    """All sections in processes of their own, then the table."""
    began_s = time.monotonic()
    print(DRY if dry else "GPU check", flush=True)
    ended = dry_run(folder, only) if dry else gpu_run(folder, only, began_s)
    findings = [finding for process in ended for finding in found_by(process, folder)]
    findings += against_transformers(findings)
    for process in ended:
        failed = process.failure or any(
            finding.held is False
            for name in process.job.sections
            for finding in read_findings(folder / f"{name}.jsonl")
        )
        if failed and (tail := process.log_tail()):
            print(f"\n--- the end of what {process.job.name} printed\n{tail}")
    print(f"\n{table(findings)}\n")
    failed_checks = [finding for finding in findings if finding.held is False]
    held = sum(finding.held is True for finding in findings)
    skipped = sum(finding.remark.startswith("skipped") for finding in findings)
    taken_s = time.monotonic() - began_s
    summary = (
        f"{held} checks passed, {len(failed_checks)} failed, {skipped} parts skipped, "
        f"{taken_s:.0f} s"
    )
    write_json(findings, summary, dry=dry)
    for finding in failed_checks:
        print(f"FAILED {finding.section}: {finding.what} {finding.value} {finding.remark}")
    print(summary)
    if dry:
        print(DRY)
    return 1 if failed_checks or not held else 0


def gpu_run(folder: Path, only: Sequence[str], began_s: float) -> list[Running]:
    """Phase by phase, within the time of each and of all."""
    from benchmarks.gpu_check.sections import PHASE_TIMES_MAX_S, SECTIONS

    ended = []
    for phase, phase_s in enumerate(PHASE_TIMES_MAX_S):
        jobs = [
            Job((name,), dry=False)
            for name, plan in SECTIONS.items()
            if plan.phase == phase and (not only or name in only)
        ]
        left_s = began_s + TIME_MAX_S - time.monotonic()
        at_once = max(2, os.cpu_count() or 1)
        print(f"{', '.join(job.name for job in jobs)}", flush=True)
        ended += run_all(jobs, folder, seconds=min(phase_s, left_s), at_once=at_once)
    return ended


def dry_run(folder: Path, only: Sequence[str]) -> list[Running]:
    """A few processes, two at a time."""
    from benchmarks.gpu_check.sections import DRY_GROUPS, DRY_TIME_MAX_S

    groups = [tuple(n for n in group if not only or n in only) for group in DRY_GROUPS]
    jobs = [Job(group, dry=True) for group in groups if group]
    return run_all(jobs, folder, seconds=DRY_TIME_MAX_S, at_once=2)


def found_by(process: Running, folder: Path) -> list[Finding]:
    """What its sections wrote, and how it ended if it did not end well."""
    findings = []
    for name in process.job.sections:
        findings += read_findings(folder / f"{name}.jsonl")
    if process.failure is not None:
        # What merely compiles ahead may run out of time: what measures then compiles itself.
        held = None if process.job.name.startswith("compile-") else False
        findings.append(Finding(process.job.name, "process", held=held, remark=process.failure))
    return findings


def against_transformers(findings: Sequence[Finding]) -> list[Finding]:
    """Our decoding rates beside those of transformers, where both are known."""
    theirs = {f.what: f.value for f in findings if f.section == "transformers"}
    return [
        replace(ours, section="serving", against="transformers", bound=theirs[ours.what])
        for ours in findings
        if ours.section.startswith("serving-") and ours.what in theirs
    ]


def write_json(findings: Sequence[Finding], summary: str, *, dry: bool) -> None:
    """gpu_check.json for programs, if OUT names a folder."""
    out = os.environ.get("OUT")
    if not out:
        return
    report = {
        "dry_run": dry,
        "summary": summary,
        "findings": [asdict(finding) | {"ratio": finding.ratio} for finding in findings],
    }
    path = Path(out) / "gpu_check.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    sys.exit(main())
