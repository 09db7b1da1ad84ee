"""How to run PostgreSQL when we are root, which it refuses to be, without changing the machine.

First choice is a user namespace: the kernel still sees root, so no file needs another owner.
Where namespaces are refused, an unprivileged account that exists already. Called by
`embedded_postgres` only; adds no account and changes no permission outside the data folder.
"""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headrace.standalone.data_folder import DataFolder, SetUpError

PROBE_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Account:
    """A command prefix that runs what follows unprivileged, and who must own the files it writes.

    `owner` is None when that is us.
    """

    prefix: tuple[str, ...]
    owner: tuple[int, int] | None


def choose_account(folder: DataFolder, binary: Path) -> Account:
    """The account to run `binary` (initdb, postgres) under, on data within `folder`.

    Raises SetUpError naming both paths when we are root and no unprivileged process reaches them.
    """
    if os.geteuid() != 0 and _has_account(os.geteuid()):
        return Account((), None)
    # initdb looks its user up by name, so the namespace maps us to one that exists.
    nobody = _nobody()
    namespace = _namespace_prefix(nobody)
    if namespace is not None:
        return Account(namespace, None)
    if os.geteuid() != 0:
        raise SetUpError(
            f"the user id {os.geteuid()} has no account (getpwuid), which PostgreSQL needs, and "
            "this machine refuses user namespaces: run Headrace as a user of this machine"
        )
    return dropped_account(folder, binary, nobody)


def dropped_account(folder: DataFolder, binary: Path, user: pwd.struct_passwd) -> Account:
    """Drops to `user` for real; the fallback where user namespaces are refused."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise SetUpError("`setpriv` is missing: install the package util-linux")
    prefix = (
        *(setpriv, "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid)),
        *("--clear-groups", "--"),
    )
    folder.root.chmod(0o711)
    reached = subprocess.run(
        [*prefix, "/bin/sh", "-c", 'test -x "$1" && test -x "$2"', "sh", binary, folder.root],
        timeout=PROBE_TIMEOUT_S,
        check=False,
    )
    if reached.returncode != 0:
        raise SetUpError(
            "PostgreSQL refuses to run as root, this machine refuses user namespaces, and the "
            f"account `{user.pw_name}` cannot reach {binary} or {folder.root}: run Headrace as a "
            "plain user, or move the repository and HEADRACE_DATA where other users may go"
        )
    return Account(prefix, (user.pw_uid, user.pw_gid))


def _has_account(user_id: int) -> bool:
    try:
        pwd.getpwuid(user_id)
    except KeyError:
        return False
    return True


def _nobody() -> pwd.struct_passwd:
    for user in sorted(pwd.getpwall(), key=lambda each: each.pw_name != "nobody"):
        if user.pw_uid != 0:
            return user
    raise SetUpError("this machine has no account but root, and PostgreSQL refuses to run as root")


def _namespace_prefix(user: pwd.struct_passwd) -> tuple[str, ...] | None:
    unshare = shutil.which("unshare")
    if unshare is None:
        return None
    prefix = (unshare, "--user", f"--map-user={user.pw_uid}", f"--map-group={user.pw_gid}", "--")
    probe = subprocess.run(
        [*prefix, "true"], timeout=PROBE_TIMEOUT_S, check=False, capture_output=True
    )
    return prefix if probe.returncode == 0 else None
