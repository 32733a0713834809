"""The synchronous face: the same fields, for programs without an event loop."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import sensorgrid
from net_thread import NetThread
from nets import truth
from sensorgrid import Query
from sensorgrid.client import connection
from sensorgrid.client.assembly import Tick
from sensorgrid.client.fields import Field
from sensorgrid.client.sync import Stream
from servers import PATIENCE_S, Stopped, wait_for

T, W = "air_temperature", "wind_speed"
GRID = {"attributes": [T, W]}
BOX = Query(T, bbox=(-45, -45, 45, 45))


def threads() -> int:
    return sum(t.name == "sensorgrid client" for t in threading.enumerate())


def test_for_and_with_and_what_a_connection_knows(tmp_path: Path) -> None:
    with NetThread(tmp_path, grid=GRID) as net:
        net.publish(3)
        with sensorgrid.connect(net.url()) as grid:
            ticks = []
            for field in grid.stream(BOX, after=-1):
                ticks.append(int(field.tick))
                expected = truth(net.net.network.grid, 0, ticks[-1])[8:24, 24:40]
                assert np.array_equal(field.values, expected)
                if len(ticks) == 3:
                    break

            assert ticks == [0, 1, 2]
            assert grid.attributes == (T, W)
            assert "64 × 32 points, 2 brokers" in repr(grid)
            assert grid.explain(BOX).points_per_tick == 2 * 256
            assert "512 values per tick" in str(grid.explain(BOX))
        assert grid.closed
        with pytest.raises(sensorgrid.ConnectionLost):
            grid.stream(BOX)
        grid.close()
    assert threads() == 0


def test_errors_come_out_as_they_are_and_leave_no_thread(tmp_path: Path) -> None:
    with pytest.raises(sensorgrid.NotConnected, match="found no broker that answers"):
        sensorgrid.connect("ws://127.0.0.1:1")
    assert threads() == 0
    with NetThread(tmp_path, grid=GRID) as net, sensorgrid.connect(net.url()) as grid:
        with pytest.raises(sensorgrid.SensorGridError, match="expected one of"):
            grid.stream(Query("rain"))
        stream = grid.stream(BOX, after=-1)
        with pytest.raises(sensorgrid.TimedOut, match=r"within 0.2 s"):
            stream.next(timeout_s=0.2)
        net.publish(1)
        assert stream.next(timeout_s=PATIENCE_S).tick == 0  # type: ignore[union-attr]


def test_time_that_runs_out_while_a_tick_is_being_given_does_not_lose_it(tmp_path: Path) -> None:
    with NetThread(tmp_path, grid=GRID) as net, sensorgrid.connect(net.url()) as grid:
        stream = grid.stream(BOX, after=-1)
        label, labelled = stream._stream.field_of, list[int]()

        def slow(tick: Tick) -> Field:
            labelled.append(tick.tick)
            time.sleep(0.2)
            return label(tick)

        stream._stream.field_of = slow  # type: ignore[method-assign]
        net.publish(2)
        wait_for(lambda: stream.waiting == 2, "both ticks")
        seen: list[int] = []
        while len(labelled) < 2:  # on a busy machine, time may run out before a tick is even looked for
            with contextlib.suppress(sensorgrid.TimedOut):
                seen.append(int(stream.next(timeout_s=0.1).tick))  # type: ignore[union-attr]

        assert seen == labelled == [0, 1]


def test_ctrl_c_while_a_tick_is_being_given_does_not_lose_it(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place, noticed = tmp_path / "place.json", threading.Event()

    def stop(number: int, frame: object) -> None:
        noticed.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with NetThread(tmp_path, grid=GRID) as net, sensorgrid.connect(net.url()) as grid:
        stream = grid.stream(BOX, after=-1, resume=place)
        label, main = stream._stream.field_of, threading.get_ident()

        def interrupted(tick: Tick) -> Field:
            stream._stream.field_of = label  # type: ignore[method-assign]
            signal.pthread_kill(main, signal.SIGINT)
            noticed.wait(PATIENCE_S)
            time.sleep(
                0.1
            )  # so that it mostly comes before the tick, and now and then after it: both must do
            return label(tick)

        stream._stream.field_of = interrupted  # type: ignore[method-assign]
        net.publish(2)
        with pytest.raises(KeyboardInterrupt):
            stream.next()

        assert (stream.tick, stream.waiting > 0, place.exists()) == (None, True, False)
        assert [int(f.tick) for f in stream.take(2)] == [0, 1]
        assert '"next": 1' in place.read_text()


def test_latest_and_a_field_at_a_time_block_until_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "datetime", Stopped)
    with NetThread(tmp_path, grid=GRID) as net, sensorgrid.connect(net.url()) as grid:
        published = net.publish_soon(0.2, 4)
        with grid.field(BOX) as fields:
            assert fields.at(np.datetime64("1970-01-01T00:00:02.5"), timeout_s=PATIENCE_S).tick == 2
        published.result(PATIENCE_S)
        net.net.tick = Stopped.TICK
        net.publish(1)
        assert grid.latest(BOX, timeout_s=PATIENCE_S).tick == Stopped.TICK


def test_a_model_couples_on_its_own_grid_and_restarts_after_a_tick(tmp_path: Path) -> None:
    model = xr.Dataset(
        {"t2m": (("lat", "lon"), np.zeros((5, 7)), {"standard_name": T})},
        coords={"lat": np.linspace(-20, 20, 5), "lon": np.linspace(330, 390, 7) % 360},
    )
    with NetThread(tmp_path, grid=GRID) as net, sensorgrid.connect(net.url()) as grid:
        net.publish(4)
        query = Query.like(model.sortby("lon"), T)
        field = next(iter(grid.stream(query, after=1, onto=model)))

        assert field.tick == 2
        assert field.dims == ("lat", "lon")
        lon = (model.lon.values + 180) % 360 - 180
        dx, dy = grid.grid.spacing
        x, y = (lon + 180) / dx - 0.5, (model.lat.values + 90) / dy - 0.5
        assert field.values == pytest.approx(x[None, :] + 100 * y[:, None] + 20_000, abs=0.1)
        assert field["air_temperature_standard_error"].shape == (5, 7)


@pytest.mark.parametrize("ending", [".nc", ".zarr", ".parquet"])
def test_a_stream_goes_to_a_file_and_goes_on_there(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out{ending}"
    write = {".nc": "to_netcdf", ".zarr": "to_zarr", ".parquet": "to_parquet"}[ending]
    with NetThread(tmp_path, grid=GRID) as net, sensorgrid.connect(net.url()) as grid:
        net.publish(5)
        getattr(grid, write)(BOX, path, after=-1, ticks=2)
        getattr(grid, write)(BOX, path, after=-1, ticks=2)
        table = grid.to_pandas(BOX, ticks=2, after=-1, errors=False)

    if ending == ".nc":
        with xr.open_dataset(path) as data:
            assert data.tick.values.tolist() == [0, 1, 2, 3]
    elif ending == ".zarr":
        with xr.open_zarr(path) as data:
            assert data.tick.values.tolist() == [0, 1, 2, 3]
    assert list(table.columns) == ["time", "tick", "latitude", "longitude", T]
    assert len(table) == 512


def test_progress_of_an_export_is_told_in_the_thread_of_the_caller_who_may_use_the_connection(
    tmp_path: Path,
) -> None:
    told: list[object] = []
    with NetThread(tmp_path, grid=GRID) as net, sensorgrid.connect(net.url()) as grid:
        net.publish(3)

        def begun(stream: Stream) -> None:
            told.append((threading.get_ident(), stream.query, grid.explain(BOX).points_per_tick))

        def written(field: Field, stream: Stream) -> None:
            told.append((threading.get_ident(), int(field.tick), stream.tick))
            if field.tick == 1:
                stream.close()

        def broken(field: Field, stream: Stream) -> None:
            raise ZeroDivisionError

        export = threading.Thread(  # a thread of its own, so that it can hang
            target=lambda: grid.to_netcdf(
                BOX, tmp_path / "out.nc", after=-1, on_field=written, on_stream=begun
            ),
            daemon=True,
        )
        export.start()
        export.join(PATIENCE_S)
        assert not export.is_alive()
        with pytest.raises(ZeroDivisionError):
            grid.to_zarr(BOX, tmp_path / "out.zarr", after=-1, on_field=broken)
        with pytest.raises(sensorgrid.SensorGridError, match="thread of its own loop"):
            grid._thread.call(lambda: grid.explain(BOX))

    assert told == [(export.ident, BOX, 512), (export.ident, 0, 0), (export.ident, 1, 1)]
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == ["out.nc", "out.zarr"]


def test_a_program_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    program = (
        "import sys, sensorgrid\n"
        "with sensorgrid.connect(sys.argv[1]) as grid:\n"
        "    query = sensorgrid.Query('air_temperature', bbox=(-45, -45, 45, 45))\n"
        "    for field in grid.stream(query, after=-1, resume=sys.argv[2]):\n"
        "        print(int(field.tick), flush=True)\n"
    )
    place = tmp_path / "place.json"
    seen: list[list[int]] = []
    with NetThread(tmp_path, grid=GRID) as net:
        for kill in (signal.SIGKILL, signal.SIGKILL, signal.SIGINT):
            net.publish(3)
            child = subprocess.Popen(
                [sys.executable, "-c", program, net.url(), str(place)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ},
            )  # fmt: skip
            assert child.stdout is not None
            try:
                lines = [int(child.stdout.readline()) for _ in range(3)]
                next_one = f'"next": {lines[-1] + 1}'
                wait_for(lambda n=next_one: n in place.read_text(), "the third one to be processed")
                child.send_signal(kill)
                child.communicate(timeout=PATIENCE_S)
            finally:
                child.kill()
            seen.append(lines)

    assert seen == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_importing_sensorgrid_does_not_import_xarray() -> None:
    code = (
        "import sys, sensorgrid; assert 'xarray' not in sys.modules; assert 'connect' in dir(sensorgrid);"
        " sensorgrid.connect; assert 'xarray' in sys.modules"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
