"""The processes of a house: what the operator's variables make of their command lines."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.standalone.data_folder import REPOSITORY, DataFolder, SetUpError
from headrace.standalone.embedded_servers import Addresses
from headrace.standalone.processes import House, ProcessSpec, process_specs


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    folder = DataFolder(tmp_path / "data")
    folder.create()
    return folder


def specs(folder: DataFolder, extra: Mapping[str, str] | None = None) -> dict[str, ProcessSpec]:
    addresses = Addresses("app", "owner", "housekeeper", "redis")
    house = House(folder, addresses, folder.models, 8000, extra or {})
    return {spec.name: spec for spec in process_specs(house)}


def test_each_process_is_given_the_time_that_its_drain_takes(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DRAIN_TIMEOUT_S", "100")
    monkeypatch.setenv("HEADRACE_ABORT_TIMEOUT_S", "40")

    found = specs(folder)

    assert found["engine"].argv[-2:] == ("--drain-s", "100")
    assert found["engine"].stop_grace_s > 100
    assert found["web"].stop_grace_s > 140


def test_a_house_of_its_own_environment_goes_by_that(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DRAIN_TIMEOUT_S", "100")

    found = specs(folder, {"HEADRACE_DRAIN_TIMEOUT_S": "4"})

    assert found["engine"].argv[-2:] == ("--drain-s", "4")


def test_no_stand_in_for_stripe_runs_in_a_public_house(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STRIPE_API_KEY", raising=False)

    private = specs(folder)
    public = specs(folder, {"HEADRACE_PUBLIC_URL": "https://llm.example.com"})

    assert "stripe_fake" in private
    assert private["web"].environment["STRIPE_API_KEY"].startswith("sk_test_")
    assert "stripe_fake" not in public
    assert public["web"].environment["STRIPE_API_KEY"] == ""
    assert public["web"].environment["STRIPE_WEBHOOK_SECRETS"] == ""


def test_the_back_office_runs_where_a_port_is_given_for_it(folder: DataFolder) -> None:
    port = {"HEADRACE_ADMIN_PORT": "8001"}
    without, found = specs(folder), specs(folder, port)

    assert "back_office" not in without
    assert found["back_office"].argv[-2:] == ("--port", "8001")
    assert found["back_office"].environment["DATABASE_HOUSEKEEPER_URL"] == "housekeeper"
    assert "DATABASE_OWNER_URL" not in found["back_office"].environment
    assert not found["back_office"].environment["STRIPE_API_KEY"]
    assert "DATABASE_HOUSEKEEPER_URL" not in found["web"].environment


def test_engine_options_come_last_split_as_a_shell_would(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_ENGINE_OPTIONS", "--device cpu --engine-id 'number 1'")

    found = specs(folder)

    assert found["engine"].argv[-4:] == ("--device", "cpu", "--engine-id", "number 1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEADRACE_DRAIN_TIMEOUT_S", "soon"),
        ("HEADRACE_ENGINE_OPTIONS", "--device 'cpu"),
        ("HEADRACE_ADMIN_PORT", "80000"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(SetUpError, match=name):
        specs(folder)


def test_only_the_worker_holds_the_housekeepers_database(folder: DataFolder) -> None:
    found = specs(folder)

    holders = [spec.name for spec in found.values() if "housekeeper" in spec.environment.values()]
    assert holders == ["worker"]
    assert not any("owner" in spec.environment.values() for spec in found.values())


def test_a_house_without_a_stripe_key_runs_a_stand_in_under_secrets_of_its_own(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STRIPE_API_KEY", raising=False)
    found = specs(folder)

    fake, web = found["stripe_fake"], found["web"]
    assert f"--port {web.environment['STRIPE_API_BASE'].rsplit(':')[-1]}" in " ".join(fake.argv)
    for name in ("STRIPE_API_KEY", "STRIPE_WEBHOOK_SECRETS"):
        assert fake.environment[name] == web.environment[name]
        assert len(web.environment[name]) > 32
        assert web.environment[name] not in " ".join(fake.argv)
        assert name not in found["engine"].environment
    assert "DATABASE_URL" not in fake.environment


def test_a_house_with_a_stripe_key_talks_to_stripe(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", "sk_live_of_the_operator")
    monkeypatch.setenv("STRIPE_WEBHOOK_SECRETS", "whsec_of_the_operator")
    found = specs(folder)

    assert "stripe_fake" not in found
    for name in ("web", "worker", "beat"):
        assert found[name].environment["STRIPE_API_KEY"] == "sk_live_of_the_operator"
        assert found[name].environment["STRIPE_WEBHOOK_SECRETS"] == "whsec_of_the_operator"
        assert found[name].environment["STRIPE_API_BASE"] == ""
    assert "STRIPE_API_KEY" not in found["engine"].environment


def test_the_demo_never_takes_the_folder_of_make_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADRACE_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("HEADRACE_DEMO_DATA", raising=False)
    default = DataFolder.of_demo()
    monkeypatch.setenv("HEADRACE_DEMO_DATA", str(tmp_path / "demo"))
    named = DataFolder.of_demo()

    assert default.root == REPOSITORY / ".demo"
    assert named.root == tmp_path / "demo"


def test_what_identity_providers_share_reaches_the_web_process_alone(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_OIDC_PROVIDERS", "[shared]")
    found = specs(folder)

    told = [name for name, spec in found.items() if "[shared]" in spec.environment.values()]
    assert told == ["web"]
