"""The reference page says what the code says, all of it, and is the one in docs/."""

from pathlib import Path
from typing import Any

import pytest

from sensorgrid.cli.reference import keys_of, page_text
from sensorgrid.pipeline.ingest.attributes import KNOWN
from sensorgrid.pipeline.settings import FileSource, PipelineSettings
from sensorgrid.pipeline.sources import mapping as mappings
from sensorgrid.pipeline.sources.mapping import mapping_of

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
EVERYTHING: dict[str, Any] = {
    "format": "json", "sensor": {"columns": ["s"], "aliases": [{"pattern": "a", "to": "b"}]},
    "position": {"longitude": "x", "latitude": "y"}, "time": {"column": "t"}, "stations": {"id": "i"},
    "rules": [{"missing": "a", "where": {"x": {"eq": 1}}}],
}  # fmt: skip
WIDE = {"values": {"air_temperature": {"column": "v", "unit": "K"}}, "rules": []}
LONG = {"record": {"value": "v", "attribute": "a", "default_unit": "m"}}


def test_the_page_in_docs_is_the_one_that_the_code_makes() -> None:
    assert PAGE.read_text() == page_text(), (
        "docs/reference.md is old: sensorgrid reference --page docs/reference.md"
    )


def test_every_key_that_a_mapping_can_have_is_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    take = mappings._Table.take

    def record(self: Any, key: str, *rest: Any) -> Any:
        asked.add(self._at(key))
        return take(self, key, *rest)

    monkeypatch.setattr(mappings._Table, "take", record)
    mapping_of(EVERYTHING | WIDE, name="wide.toml")
    mapping_of(EVERYTHING | LONG, name="long.toml")

    page = page_text().split("## Attributes")[0]
    names = {key.split(".")[-1].split("[")[0] for key in asked} - {
        "air_temperature",
        "x",
        "eq",
        "pattern",
        "to",
    }
    assert len(names) > 30
    missing = [name for name in sorted(names) if f"`{name}`" not in page and f"[{name}" not in page]
    assert not missing


def test_every_key_has_a_meaning_and_every_attribute_a_line() -> None:
    lines = PAGE.read_text().splitlines()

    assert [line for line in lines if line.startswith("| `") and line.endswith("|  |")] == []
    assert [name for name in KNOWN if not any(line.startswith(f"| `{name}` |") for line in lines)] == []


def test_every_key_of_the_configuration_is_on_the_page() -> None:
    page = PAGE.read_text().split("## Configuration")[1]

    def names(kind: Any) -> set[str]:
        return set(kind.model_fields)

    for name, field in PipelineSettings.model_fields.items():
        if name == "sources":
            continue
        wanted = names(type(field.default)) if hasattr(type(field.default), "model_fields") else {name}
        assert [key for key in sorted(wanted) if f"`{key}`" not in page and f"{key}]`" not in page] == []


def test_kinds_defaults_and_meanings_are_those_of_the_class() -> None:
    keys = keys_of(FileSource)

    assert keys["max_files"].kind == "whole number"
    assert keys["max_files"].default == "100000"
    assert keys["learn_stations"].default == "false"
    assert keys["format"].kind == '"metar", "bufr"'
    assert keys["path"].meaning == "a folder, a file or a pattern"
    assert "_find_mapping" not in keys
