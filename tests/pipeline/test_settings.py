"""The configuration: defaults, environment, and messages that name file and key."""

from pathlib import Path

import pytest

from sensorgrid.pipeline.settings import GriddingSettings, SettingsError, read_settings

MINIMAL = """
[[sources]]
kind = "files"
path = "in"
mapping = "metar"
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "grid.toml"
    file.write_text(text)
    return file


def test_a_few_lines_are_enough_and_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    settings = read_settings(written(tmp_path, MINIMAL))

    grid = settings.grid.grid()
    timing = settings.timing_of(grid)
    assert settings.lake == str(tmp_path / "lake")
    assert settings.checkpoint_of() == str(tmp_path / "lake.checkpoint")
    assert settings.sources[0].path == str(tmp_path / "in")  # type: ignore[union-attr]
    assert (timing.settle_s, timing.lateness_s, timing.max_age_s) == (60.0, 1200.0, 7200.0)


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENSORGRID_SPARK__MASTER", "spark://somewhere:7077")
    monkeypatch.setenv("SENSORGRID_TIMING__SETTLE", "2min")

    settings = read_settings(written(tmp_path, MINIMAL + '[spark]\nmaster = "local[1]"\ntrigger = "5s"\n'))

    assert settings.spark.master == "spark://somewhere:7077"
    assert settings.spark.trigger == 5.0
    assert settings.timing_of(settings.grid.grid()).settle_s == 120.0


@pytest.mark.parametrize(
    ("tick", "settle", "trigger"),
    [
        (5, 1, 1.0),
        (600, 60, 2.0),
        (25, 2.5, 1.25),
        (10, 3, 1.0),
        (30, 5, 1.25),
        (4, 0.4, 0.4),
        (7, 1.001, 1.001),  # nothing sensible divides both
    ],
)
def test_a_batch_begins_when_a_tick_falls_due(
    tmp_path: Path, tick: float, settle: float, trigger: float
) -> None:
    text = MINIMAL + f"[grid]\ntick = {tick}\n[timing]\nsettle = {settle}\n"
    settings = read_settings(written(tmp_path, text))

    assert settings.trigger_of(settings.grid.grid()) == trigger


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lake = ", "grid.toml: found no TOML"),
        ("[grid]\ntick = 'soon'", "grid.tick: found 'soon'.*expected a duration such as 90s"),
        ("[grid]\nshape = [100, 64]", r"shape: found \(100, 64\), expected two powers of two"),
        ("[gird]\ntick = 5", "gird: found a key that is not known, expected grid, perhaps"),
        ("[grid]\ntik = 5", "grid.tik: found a key that is not known, expected tick, perhaps"),
        ("[grid]\nqq = 5", "grid.qq: found a key that is not known, expected one of attributes, coordinates"),
        (
            "[[sources]]\nkind = 'files'\npth = 'x'",
            "pth: found a key that is not known, expected path, perhaps",
        ),
        ("[[sources]]\nkind = 'fles'", "sources.0: found kind = 'fles', expected files, perhaps"),
        ("[[sources]]\npath = 'x'", "sources.0: found no 'kind', expected this key"),
        ("[grid]\nextent = [30, 60, -10, 35]", r"grid.extent: found .* perhaps \(-10.0, 35.0, 30.0, 60.0\)"),
        (
            "[[sources]]\nkind = 'kafka'\npassword = 'hunter2'",
            r"^(?!.*hunter2).*password: found a key that is not",
        ),
        ("[timing]\nlateness = -5", "timing.lateness: found -5"),
        ("[grid]\nattributes = ['wind_speed']", "expected wind as eastward_wind and northward_wind"),
        ("[gridding]\nkernel = 'spline'", "gridding.kernel: found 'spline', expected one of nearest"),
        ("[[sources]]\nkind = 'ftp'", "sources.0: found .*'ftp'"),
        ("[[sources]]\nkind = 'mqtt'", "topics: found nothing, expected this key"),
        (
            "[quality.attributes.snow]\nstep = 1",
            "quality.attributes.snow: found no such attribute in the grid",
        ),
        ("[timing]\nmax_age = 5", "timing.max_age: found 5 s, expected a tick or more"),
        ("[quality.attributes.air_temperature]\nflat = '1 fortnight'", "expected a duration"),
        (
            "[gridding.snow]\nmean = 1",
            "gridding.snow: found no such attribute in the grid, expected one of air_temp",
        ),
        ("[gridding.air_temperature]\ntransform = 'cube'", "transform"),
        (
            "[areas.A]\nbbox = [1, 2, 3, 4]\nfile = 'a.geojson'",
            "areas.A: found bbox and file, expected one of",
        ),
        ("[areas.3h]\nbbox = [1, 2, 3, 4]", "areas.3h: found a name that looks like a time or a file"),
    ],
)
def test_a_mistake_is_told_with_file_key_found_and_expected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_settings(written(tmp_path, text))

    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"none.toml: found no such file, expected a configuration in TOML"
    ):
        read_settings(tmp_path / "none.toml")


@pytest.mark.parametrize(("name", "transform"), [("wind_speed", "bounded"), ("soil_moisture", "bounded")])
def test_a_transform_that_an_attribute_has_no_limits_for_is_refused(name: str, transform: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}.transform: found '{transform}', expected"):
        GriddingSettings.model_validate({name: {"transform": transform}})
