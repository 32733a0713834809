"""The stage of the demo: its configuration can be read by those who run it, and its records are found again."""

import json
from pathlib import Path

import pytest

from sensorgrid.configuration.network import read_network
from sensorgrid.demo.again import read_times_ms
from sensorgrid.demo.stage import DemoStage, audience, free_ports, write_configuration
from sensorgrid.pipeline.jobs import JobError
from sensorgrid.pipeline.settings import read_settings


def test_the_configuration_serves_pipeline_and_brokers(tmp_path: Path) -> None:
    config = write_configuration(DemoStage(), tmp_path)

    network, settings = read_network(config), read_settings(config)

    assert len(network.addresses) == 8
    assert {region.owner for region in network.regions} == set(range(8))
    assert len({region.cell for region in network.regions}) == 16
    assert settings.entrance_of() is not None
    assert settings.timing_of(settings.grid.grid()).lateness_s == 8
    for guest in audience():
        guest.query.box(network.grid)


def test_ports_are_free_and_each_another() -> None:
    assert len(set(free_ports(8))) == 8


def test_the_plan_is_fitted_to_what_the_sensors_said(tmp_path: Path) -> None:
    stage = DemoStage(stations=300)
    settings = read_settings(write_configuration(stage, tmp_path))

    plan = stage.plan(settings, 1.79e9)

    assert all("fitted to" in note for note in plan.notes())


def test_the_span_that_the_stream_has_read_is_in_its_checkpoint(tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for batch, arrival in (("9", 5000), ("10", 7000)):
        lines = [
            "v1",
            "{}",
            json.dumps({"due": 3}),
            json.dumps({"arrival_ms": arrival, "start_ms": 1000, "began_ms": 1}),
        ]
        (offsets / batch).write_text("\n".join(lines))

    assert read_times_ms(str(tmp_path)) == (1000, 7000)


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}")

    with pytest.raises(JobError, match="found no offset of the synthetic source"):
        read_times_ms(str(tmp_path))
