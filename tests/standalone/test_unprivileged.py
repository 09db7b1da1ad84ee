"""PostgreSQL as root: in a namespace, or dropped to an account, or a refusal that says why."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.standalone.data_folder import DataFolder, SetUpError
from headrace.standalone.embedded_postgres import EmbeddedPostgres, binaries
from headrace.standalone.unprivileged import choose_account, dropped_account

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")


@pytest.fixture
def reachable_folder() -> Iterator[DataFolder]:
    """Below the temporary folder itself: pytest's own folders are closed to other users."""
    root = Path(tempfile.mkdtemp(prefix="headrace-drop-"))
    folder = DataFolder(root / "data")
    folder.create()
    root.chmod(0o711)
    yield folder
    shutil.rmtree(root)


def test_what_runs_under_the_chosen_account_is_not_root(reachable_folder: DataFolder) -> None:
    account = choose_account(reachable_folder, binaries() / "postgres")

    done = subprocess.run([*account.prefix, "id", "-u"], capture_output=True, text=True, check=True)

    assert done.stdout.strip() != "0"


def test_without_namespaces_the_server_runs_under_an_unprivileged_account(
    reachable_folder: DataFolder,
) -> None:
    nobody = pwd.getpwnam("nobody")
    postgres = binaries() / "postgres"
    try:
        account = dropped_account(reachable_folder, postgres, nobody)
    except SetUpError:
        pytest.skip(f"{postgres} is not reachable for other users here")
    server = EmbeddedPostgres(reachable_folder, durable=False, account=account)
    server.start()
    try:
        url = server.url("headrace_app", reachable_folder.secrets().postgres_app)
        with psycopg.connect(url) as connection:
            answer = connection.execute("SELECT 1").fetchone()
        assert server.child is not None
        runs_as = (Path("/proc") / str(server.child.pid)).stat().st_uid
    finally:
        server.stop()

    assert answer == (1,)
    assert runs_as == nobody.pw_uid
    assert reachable_folder.postgres.stat().st_uid == nobody.pw_uid


def test_an_unreachable_folder_is_refused_by_name_and_its_parents_stay_closed(
    tmp_path: Path,
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    folder = DataFolder(closed / "data")
    folder.create()
    postgres = binaries() / "postgres"

    with pytest.raises(SetUpError) as refusal:
        dropped_account(folder, postgres, pwd.getpwnam("nobody"))

    assert str(postgres) in str(refusal.value)
    assert str(folder.root) in str(refusal.value)
    assert closed.stat().st_mode & 0o777 == 0o700
