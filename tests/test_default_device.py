"""What a function does on another device, found out on a machine without a GPU."""

import re
from pathlib import Path

import pytest
import torch

import course.checks
from autograder.sandbox.launch import ALSO_SLOW
from course.checks.default_device import (
    beside_default,
    cache_elsewhere,
    on_another_device,
    wrong_device,
)

ELSEWHERE = torch.ones(3, device="meta")
SHORT = torch.ones(3, device="meta", dtype=torch.bfloat16)


def test_a_tensor_that_is_made_on_the_default_device_is_noticed():
    x = torch.ones(3)
    assert beside_default(lambda: x + torch.ones(3, device=x.device)) == ""
    assert beside_default(lambda: (x, torch.tensor(x.tolist(), device=x.device))) == ""
    assert "RuntimeError" in beside_default(lambda: torch.cat([x, torch.ones(3)]))
    assert beside_default(lambda: torch.zeros(2)) == "the result lies on meta"
    assert "does not say where" in wrong_device("the result lies on meta")
    assert wrong_device("") is None


def test_a_tensor_of_the_cpu_among_those_of_another_device_is_noticed():
    assert on_another_device(lambda: ELSEWHERE + torch.ones(3, device=ELSEWHERE.device)) == ""
    assert on_another_device(lambda: (ELSEWHERE * torch.tensor(2.0), None)) == ""
    mixed = on_another_device(lambda: ELSEWHERE.masked_fill(torch.ones(3, dtype=torch.bool), 0))
    assert "it stopped (" in mixed
    assert mixed.endswith("does not say where?")
    assert "the result lies on the cpu" in on_another_device(lambda: torch.zeros(2))


def test_numbers_of_another_dtype_are_noticed_where_one_is_asked_for():
    def product(right):
        return on_another_device(lambda: SHORT @ right, torch.bfloat16)

    assert product(SHORT) == ""
    assert product(ELSEWHERE).endswith("does not say of which dtype?")
    assert "the result is torch.float32" in on_another_device(SHORT.float, torch.bfloat16)
    assert on_another_device(SHORT.float) == ""


class Cache:
    def __init__(self, device=None):
        self.rows = torch.zeros(3, device=device)

    def append(self, rows):
        self.rows[:] = rows


class GrowingCache(Cache):
    def append(self, rows):
        self.rows = torch.cat([self.rows, rows])


@pytest.mark.parametrize("Kind", [Cache, GrowingCache])
def test_a_cache_on_the_cpu_beside_a_model_elsewhere_is_noticed(Kind):
    assert "a new cache" in cache_elsewhere(lambda: Kind().append(ELSEWHERE))
    assert cache_elsewhere(lambda: Kind(ELSEWHERE.device).append(ELSEWHERE)) == ""


def test_a_copy_elsewhere_is_not_laid_at_the_cache_s_door():
    assert cache_elsewhere(lambda: torch.zeros(3).copy_(ELSEWHERE)) == ""
    assert cache_elsewhere(ELSEWHERE.tolist) == ""


def test_code_that_looks_at_numbers_is_not_blamed():
    assert on_another_device(ELSEWHERE.tolist) == ""
    assert on_another_device(ELSEWHERE.numpy) == ""
    assert on_another_device(lambda: bool(ELSEWHERE.any())) == ""


@pytest.mark.parametrize("run", [beside_default, on_another_device])
def test_what_is_not_written_yet_stays_that(run):
    def stub():
        raise NotImplementedError

    with pytest.raises(NotImplementedError):
        run(stub)


def test_lessons_that_compute_on_another_device_do_not_wait_for_the_compiler():
    """Else each student's process would import it anew."""
    asks = re.compile("on_another_device|cache_elsewhere")
    files = Path(course.checks.__file__).parent.glob("*/*.py")
    lessons = {file.parent.name for file in files if asks.search(file.read_text(encoding="utf-8"))}
    assert lessons == set(ALSO_SLOW)
