"""`bench fanout` at its smallest: all servers deliver, and what is missing is said."""

import shutil
from pathlib import Path

import pytest

from sensorgrid.benchmarks import fanout, fanout_peer, fanout_servers
from sensorgrid.benchmarks.fanout import FanoutSize, Flood, MissingError, Row
from sensorgrid.benchmarks.fanout_peer import Greeting, PeerError, ReceivingSide, compile_peer, write_plan
from sensorgrid.benchmarks.fanout_servers import OWN, SAME, frame, masked

FIELDS = {
    "server", "clients", "block_bytes", "tls", "boxes", "cpu_seconds_per_gb", "mb_per_second", "p50_s", "p99_s",
}  # fmt: skip
TINY = FanoutSize(clients=(9,), blocks=(4096,), round_bytes=1 << 20, rounds=2)


def quiet(text: str) -> None:
    pass


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = compile_peer(tmp_path_factory.mktemp("peer"))
    if found is None:
        pytest.skip("no C compiler with OpenSSL's headers")
    return found


def test_every_server_delivers_every_block_with_and_without_tls(program: Path) -> None:
    rows, notes = fanout.run(TINY, 1, quiet)

    missing = {note.split(" left out")[0].removeprefix("rows of ") for note in notes}
    for tls in (False,) if "rows with TLS" in missing else (False, True):
        found = {(row["server"], row["boxes"]): row for row in rows if row["tls"] == tls}
        assert set(found) == {
            ("sensorgrid", SAME), ("sensorgrid", OWN), ("c-epoll", SAME),
            *((name, SAME) for name in ("mosquitto", "nats-server") if name not in missing),
        }  # fmt: skip
        for row in found.values():
            assert set(row) == FIELDS
            assert row["cpu_seconds_per_gb"] > 0
            assert 0 < row["p50_s"] <= row["p99_s"]
    assert len(list(fanout.ratios(rows))) >= 2


def test_a_flood_is_delivered_around_the_one_that_reads_nothing(program: Path) -> None:
    (row,) = fanout.flood(Flood(clients=12, block_bytes=4096, ticks=5, interval_s=0.05), 1, quiet)

    assert (row["clients"], row["stalled"], row["ticks"]) == (12, 1, 5)
    assert 0 < row["p50_s"] <= row["p99_s"]
    assert row["memory_bytes"] > 1 << 20


def test_servers_that_are_not_installed_are_left_out_with_the_reason(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fanout_servers, "_installed", lambda name: None)
    monkeypatch.setattr(fanout, "_certificate", lambda folder: None)

    rows, notes = fanout.run(FanoutSize((2,), (4096,), 1 << 16, 1), 1, quiet)

    assert {row["server"] for row in rows} == {"sensorgrid", "c-epoll"}
    assert len(notes) == 3
    assert all("left out: " in note for note in notes)


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout_peer.shutil, "which", lambda name: None)

    with pytest.raises(MissingError, match="found no C compiler"):
        fanout.run(TINY, 1, quiet)


def test_a_block_that_does_not_arrive_is_an_error_and_not_a_figure(program: Path, tmp_path: Path) -> None:
    server = fanout_servers.c_epoll(program, 4096, None)
    try:
        server.wait_up()
        write_plan(
            tmp_path / "plan", server.publisher, [Greeting(((0, b"C"),), 2)], server.heads(1), server.tail
        )
        peer = ReceivingSide(program, server.port, server.protocol, False, 1000, tmp_path / "plan")
        peer.wait_ready()
        server.process.kill()
        with pytest.raises(PeerError, match=r"closed a connection|publishing"):
            peer.publish(1)
        peer.stop()
    finally:
        server.stop()


def test_ratios_compare_within_a_case_and_say_what_holds() -> None:
    def row(server: str, boxes: str, cost: float, clients: int = 16) -> Row:
        return {
            "server": server, "boxes": boxes, "cpu_seconds_per_gb": cost, "clients": clients,
            "block_bytes": 1 << 14, "tls": False,
        }  # fmt: skip

    found = fanout.ratios(
        [row("sensorgrid", SAME, 3.0), row("sensorgrid", OWN, 4.0), row("c-epoll", SAME, 2.0),
         row("mosquitto", SAME, 2.5), row("sensorgrid", SAME, 1.0, 128), row("nats-server", SAME, 2.0, 128)]
    )  # fmt: skip

    assert [(r["clients"], r["other"], r["boxes"], r["ratio"], r["holds"]) for r in found] == [
        (16, "c-epoll", SAME, 1.5, True),
        (16, "c-epoll", OWN, 2.0, True),
        (16, "mosquitto", SAME, 1.2, False),
        (128, "nats-server", SAME, 0.5, True),
    ]


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_frames_have_the_length_that_they_say(size: int) -> None:
    payload = bytes(size)

    assert frame(payload)[0] == masked(payload)[0] == 0x82
    assert frame(payload).endswith(payload)
    assert len(masked(payload)) == len(frame(payload)) + 4
    assert masked(payload)[1] == frame(payload)[1] | 0x80


def test_the_programs_it_needs_are_found_where_servers_live() -> None:
    if shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin") is None:
        pytest.skip("mosquitto is not installed")

    assert fanout_servers._installed("mosquitto")
