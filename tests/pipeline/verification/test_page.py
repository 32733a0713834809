"""The page is one file that fetches nothing and shows what the rows say."""

import re

import pytest

from pipeline_networks import made
from sensorgrid.pipeline.verification.page import page
from sensorgrid.pipeline.verification.verify import verify


@pytest.fixture(scope="module")
def text() -> str:
    pytest.importorskip("matplotlib")
    return page("Truth & <grids>", ["Ten folds."], verify(made(40, ticks=3), 5))


def test_it_fetches_nothing(text: str) -> None:
    outside = re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)([^"']*)""", text)

    assert outside == []
    assert not re.search(r"<script|<link|@import|url\((?!#)", text)


def test_it_has_maps_and_plots_and_the_figures_of_every_kernel(text: str) -> None:
    (found,) = verify(made(40, ticks=3), 5)

    assert text.count("<svg") == 3
    for row in found.rows:
        assert f"<td>{row['ratio_to_idw']:.3f}</td>" in text
        assert f"<td>{row['kernel'].replace('_', ' ')}</td>" in text
    assert "top percent" in text
    assert "longitude" not in text  # the network is a plane


def test_names_are_text_and_not_markup(text: str) -> None:
    assert "<h1>Truth &amp; &lt;grids&gt;</h1>" in text
    assert "<grids>" not in text
