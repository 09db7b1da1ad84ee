"""`make demo`: a house of its own, in `.demo/`, and a story told by stock clients against it.

Runs the steps of `demo_story` in order, stops at the first that does not come out as told, and
says which. Called by `python -m headrace.standalone demo`; leaves `make up`'s data alone.
"""

import os

from headrace.standalone.data_folder import DataFolder, SetUpError
from headrace.standalone.loopback_server import free_port
from headrace.standalone.processes import set_up_environment
from headrace.standalone.running_house import RunningHouse
from headrace.standalone.supervisor import StopRequested, house_running, stop_signals


def demo() -> int:
    """Tells the whole story (0), or names the step that failed (1)."""
    folder = DataFolder.of_demo()
    print(f"Setting up a house in {folder.root} (its logs: {folder.logs})", flush=True)
    try:
        with (
            stop_signals(),
            house_running(folder, free_port(), "`make demo`", say=_say) as running,
        ):
            return _tell(running)
    except StopRequested:
        print("Interrupted.")
        return 1
    except SetUpError as error:
        print(f"FAILED in the set-up: {error}")
        return 1


def _say(text: str) -> None:
    print(f"  {text}", flush=True)


def _tell(running: RunningHouse) -> int:
    os.environ.update(set_up_environment(running.house))
    import django

    django.setup()
    from headrace.standalone.demo_story import STEPS, Story

    story = Story(running.house)
    try:
        for number, (title, step) in enumerate(STEPS, start=1):
            print(f"\n{number}. {title}", flush=True)
            try:
                step(story)
            except Exception as error:  # noqa: BLE001 - the edge: whatever it was, name the step
                print(f"\nFAILED in step {number} ({title}): {type(error).__name__}: {error}")
                return 1
    finally:
        story.close()
    print(f"\nThe whole story held: {len(STEPS)} steps.", flush=True)
    return 0
