"""The doctor, with something wrong each time."""

import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from gateways import network
from sensorgrid.cli import doctor_config, doctor_machine
from sensorgrid.cli.doctor_machine import Finding
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.settings import read_settings
from servers import free_port

CONFIG = """
[grid]
shape = [32, 16]
tick = 5
resolution_bits = 1
region_digits = 2
{more}
"""


def findings(folder: Path, more: str = "") -> dict[str, Finding]:
    path = folder / "grid.toml"
    path.write_text(CONFIG.format(more=more))
    return {f.subject: f for f in doctor_config.check(path)}


def wrong(found: dict[str, Finding], status: str = "fail") -> list[str]:
    return [f.subject for f in found.values() if f.status == status]


@contextmanager
def listening() -> Iterator[int]:
    """A port on which somebody listens who hangs up on everybody."""

    class HangsUp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.close()

    with socketserver.TCPServer(("127.0.0.1", 0), HangsUp) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def test_a_good_machine_has_nothing_to_complain_about() -> None:
    found = {f.subject: f for f in doctor_machine.check(clients=10)}

    assert wrong(found) == []
    assert {"Python", "Java", "pyspark", "pandas", "open files", "clock"} <= set(found)


def test_too_many_clients_for_the_limit_of_open_files_is_a_warning() -> None:
    found = {f.subject: f for f in doctor_machine.check(clients=100_000_000)}

    assert found["open files"].status == "warn"
    assert "100,000,200 or more" in found["open files"].expected


def test_libraries_that_are_missing_old_or_too_new_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = {"numpy": ("99", None), "pandas": ("1", "1.5"), "no-such-thing": ("1", None)}
    monkeypatch.setattr(doctor_machine, "LIBRARIES", libraries)

    found = {f.subject: f for f in doctor_machine.check(clients=10)}

    assert wrong(found) == ["numpy", "pandas", "no-such-thing"]
    assert found["no-such-thing"].found == "not installed"


def test_a_configuration_that_cannot_be_read_is_one_finding(tmp_path: Path) -> None:
    found = findings(tmp_path, "[nonsense]\nx = 1")

    assert wrong(found) == ["configuration"]
    assert "nonsense" in found["configuration"].found


def test_sources_out_of_reach_are_told_by_host_and_port(tmp_path: Path) -> None:
    port = free_port()
    with listening() as other:
        found = findings(
            tmp_path,
            f"""
[[sources]]
kind = "mqtt"
name = "away"
host = "127.0.0.1"
port = {port}
topics = ["x"]
[[sources]]
kind = "nats"
name = "there"
stream = "S"
servers = "nats://127.0.0.1:{other}"
""",
        )

    assert wrong(found) == ["source away"]
    assert f"127.0.0.1:{port} does not answer" in found["source away"].found
    assert found["source there"].status == "ok"


def test_a_mapping_with_a_mistake_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('format = "poem"')

    found = findings(tmp_path, '[[sources]]\nkind = "files"\npath = "in"\nmapping = "mine.toml"')

    assert wrong(found) == ["mappings"]


def test_areas_are_read_and_laid_on_the_grid(tmp_path: Path) -> None:
    more = """
    [areas.A]
    bbox = [0, 0, 90, 45]
    [areas.B]
    polygon = [[0, 0], [10, 0], [0, 10], [10, 10]]
    [areas.C]
    file = "none.geojson"
    """

    found = findings(tmp_path, more)

    assert found["area A"].found == "32 points, 8.84% of the grid"
    assert "not simple" in found["area B"].found
    assert "none.geojson: found no file" in found["area C"].found
    assert found["area C"].status == "fail"


def test_the_lake_is_looked_at(tmp_path: Path) -> None:
    assert "none yet" in findings(tmp_path)["lake"].found

    lake = Lake(str(tmp_path / "lake")).create()
    assert "can be written" in findings(tmp_path)["lake"].found

    lake.write_text("lake.json", '{"format": 99}')
    found = findings(tmp_path)
    assert wrong(found) == ["lake"]
    assert "found format 99" in found["lake"].found


def test_a_folder_with_a_roster_and_nothing_else_is_no_lake_yet(tmp_path: Path) -> None:
    (tmp_path / "lake" / "roster").mkdir(parents=True)
    assert "none yet" in findings(tmp_path)["lake"].found

    (tmp_path / "lake" / "thesis.doc").write_text("x")
    found = findings(tmp_path)
    assert wrong(found) == ["lake"]
    assert "found no lake.json" in found["lake"].found


def test_a_lake_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORGRID_LAKE", "/proc/lake")  # where not even root may write

    found = findings(tmp_path)

    assert "lake" in wrong(found)
    assert "/proc cannot be written" in found["lake"].found


def test_a_free_port_is_good_and_a_taken_one_is_not(tmp_path: Path) -> None:
    port = free_port()
    found = findings(tmp_path, f"[network]\nport = {port}")
    assert found["broker 0"] == Finding("ok", "broker 0", f"127.0.0.1:{port} is free")

    with listening() as taken:
        found = findings(tmp_path, f"[network]\nport = {taken}")
    assert wrong(found) == ["broker 0"]
    assert "something else listens" in found["broker 0"].found


def test_a_broker_of_this_grid_that_runs_already_is_good(tmp_path: Path) -> None:
    findings(tmp_path)
    grid = read_settings(tmp_path / "grid.toml").grid.grid()
    with network(grid, 2) as brokers:
        tables = "".join(f'[[network.brokers]]\nid = {b.number}\nurl = "{b.url}"\n' for b in brokers.brokers)
        crossed = "".join(
            f'[[network.brokers]]\nid = {1 - b.number}\nurl = "{b.url}"\n' for b in brokers.brokers
        )
        good = findings(tmp_path, tables)
        wrong_way = findings(tmp_path, crossed)
        other = findings(tmp_path, 'attributes = ["sea_level"]\n' + tables)

    assert [good[f"broker {n}"].status for n in (0, 1)] == ["ok", "ok"]
    assert "broker 1 at" in wrong_way["broker 0"].found
    assert wrong(other) == ["broker 0", "broker 1"]
    assert "another grid" in other["broker 0"].found


class Certificates:
    """A certificate for localhost that is valid for some days."""

    def __init__(self, folder: Path, days: int = 90) -> None:
        self.authority = trustme.CA()
        end = datetime.now(UTC) + timedelta(days=days, hours=1)
        begin = datetime.now(UTC) - timedelta(days=200)
        self.issued = self.authority.issue_cert("localhost", not_before=begin, not_after=end)
        self.folder = folder
        self.issued.private_key_pem.write_to_path(str(folder / "key.pem"))
        for number, blob in enumerate(self.issued.cert_chain_pems):
            blob.write_to_path(str(folder / "cert.pem"), append=number > 0)
        self.authority.cert_pem.write_to_path(str(folder / "ca.pem"))

    def config(self, host: str = "localhost") -> str:
        return f"""
[network]
host = "{host}"
port = {free_port()}
[network.tls]
cert_file = "cert.pem"
key_file = "key.pem"
ca_file = "ca.pem"
"""


def test_good_certificates_are_good(tmp_path: Path) -> None:
    found = findings(tmp_path, Certificates(tmp_path).config())

    assert wrong(found) == []
    assert wrong(found, "warn") == ["sources"]
    assert "ends in 90 days" in found["tls certificate"].found
    assert "good for localhost" in found["tls trust"].found


def test_a_certificate_that_ends_soon_is_a_warning_and_one_that_has_ended_a_fault(tmp_path: Path) -> None:
    assert wrong(findings(tmp_path, Certificates(tmp_path, days=3).config()), "warn")[1:] == [
        "tls certificate"
    ]

    found = findings(tmp_path, Certificates(tmp_path, days=-3).config())

    assert wrong(found) == ["tls certificate"]
    assert "expired" in found["tls certificate"].found


def test_certificates_for_another_name_of_another_authority_or_with_another_key_are_faults(
    tmp_path: Path,
) -> None:
    mine = Certificates(tmp_path)

    assert wrong(findings(tmp_path, mine.config("127.0.0.1"))) == ["tls trust"]
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    assert wrong(findings(tmp_path, mine.config())) == ["tls trust"]
    mine.authority.issue_cert("localhost").private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    assert wrong(findings(tmp_path, mine.config())) == ["tls"]
    (tmp_path / "key.pem").unlink()
    assert wrong(findings(tmp_path, mine.config())) == ["tls key_file"]


def run(*arguments: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "sensorgrid", "doctor", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_command_says_what_is_wrong_and_its_exit_code_tells(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text(CONFIG.format(more=f"[network]\nport = {free_port()}"))
    bad.write_text(CONFIG.format(more="[grid2]"))

    code, output = run(str(good), "--json", "-")
    assert code == 0, output
    report = json.loads(output)
    assert {row["status"] for row in report["rows"]} <= {"ok", "warn"}
    code, output = run(str(bad))
    assert code == 1
    assert "fail configuration" in output
    assert "grid2" in output


def test_a_slip_in_an_attribute_and_files_that_are_not_there_are_warnings(tmp_path: Path) -> None:
    more = (
        'attributes = ["air_temprature"]\n[[sources]]\nkind = "files"\npath = "none/*.csv"\nmapping = "metar"'
    )

    found = findings(tmp_path, more)

    assert "air_temperature, if that is meant" in found["attributes"].expected
    assert {"attributes", "source files"} <= set(wrong(found, "warn"))


def test_an_error_that_says_what_was_found_is_told_once(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from sensorgrid.cli.main import app

    said = CliRunner().invoke(app, ["doctor", str(tmp_path / "none.toml")]).output

    (line,) = [line for line in said.splitlines() if line.startswith("fail configuration")]
    assert line.count("found ") == line.count("expected ") == 1


def test_an_open_network_with_few_regions_is_warned_of_and_its_roster_is_told(tmp_path: Path) -> None:
    from sensorgrid.configuration.network import read_network
    from sensorgrid.runtime.rosters import RosterStore

    few = findings(tmp_path, "[network]\nopen = true\nbrokers = 3")
    network = read_network(tmp_path / "grid.toml")
    RosterStore(network.lake, founds=True).write(network.roster)
    (Path(network.lake) / "roster" / "0000000000002.json").write_text("{}")

    broken = findings(tmp_path, "[network]\nopen = true\nbrokers = 2")

    assert few["regions"].found == "4 for 3 brokers"
    assert few["regions"].status == "warn"
    assert few["roster"].found == "version 1, 3 brokers"
    assert broken["roster"].status == "fail"
    assert "0000000000002.json: found no roster" in broken["roster"].found
