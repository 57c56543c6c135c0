"""The page of measurements at scale: no figure is typed by hand."""

import pytest
from benchmarks import scale_page


def test_the_page_is_made_of_the_records():
    page = scale_page.PAGE.read_text()
    assert scale_page.with_blocks(page) == page
    for name in scale_page.BLOCKS:
        assert f"<!-- {name} -->\n|" in page or f"<!-- {name} -->\n" in page
        assert f"<!-- {name} -->\n<!-- end" not in page


def test_the_exchange_of_gradients():
    assert scale_page.exchange(10**6, 1) == 0
    speed, latency = scale_page.NVLINK
    # Two processes send all they have once each, in two steps.
    assert scale_page.exchange(10**6, 2) == pytest.approx(4e6 / speed + 2 * latency)
    speed, latency = scale_page.NETWORK
    wanted = 2 * 63 / 64 * 4e6 / speed + 12 * latency
    assert scale_page.exchange(10**6, 64) == pytest.approx(wanted)


def test_more_gpus_take_less_time_where_there_is_work(monkeypatch):
    trained = [{"from": "stream", "rows_per_second": rate} for rate in (8e5, 1e6)]
    rows = [{"work": "survey", "rows_per_second": 1e7}]
    sections = {"gpu-training": {"rows": trained}, "reading": {"rows": rows}}
    monkeypatch.setattr(scale_page, "record", lambda: sections)
    few, many = (scale_page.reckoned(10**6, gpus, 1e10)[0] for gpus in (1, 64))
    assert many < few / 20
    assert scale_page.reckoned(100, 1, 1e6)[1] == "reading"
    rows[0]["rows_per_second"] = 1e5
    assert scale_page.reckoned(100, 1, 1e6)[1] == "first pass"
    assert scale_page.reckoned(10**9, 1, 1e6)[1] == "computing"
