"""Known wrong answers to lesson 07: what `QuantizedKVCache` keeps, refuses, forgets and counts."""

from __future__ import annotations

from autograder.lessons.quantized_cache.museum import MUSEUM
from course.minigpt.quantized_cache import QuantizedKVCache
from course.model.bounds import check_between

bug = MUSEUM.section("QuantizedKVCache", check="a_refusal_changes_nothing")


@bug("state", "a length that moves before advance")
class CountsInAppend(QuantizedKVCache):
    """The length moves with the first layer's append, before the forward pass is through."""

    def append(self, layer, k, v):
        counted = 0 if layer == 0 else k.shape[2]
        self.length -= counted
        pair = super().append(layer, k, v)
        self.length += k.shape[2]
        return pair

    def advance(self, n):
        self.length -= n
        super().advance(n)


bug = MUSEUM.section("QuantizedKVCache", check="quantized_cache_can_go_back")


@bug("state", "a truncate that leaves the groups counted")
class TruncatesTheLengthOnly(QuantizedKVCache):
    """The groups stay counted, so tokens that were forgotten come back."""

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        self.length, self.pending = n, {}
        if n == 0:
            self.n_groups = 0


@bug("state", "a truncate after which a cut group is read from an old window")
class ForgetsTheCutGroup(QuantizedKVCache):
    """The first tokens of a cut group are not brought back; what lies in the window is read."""

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        self.length, self.pending = n, {}
        self.n_groups = min(self.n_groups, n // self.group)


@bug("state", "a truncate that stops only at the end of a group")
class KeepsTheCutGroupWhole(QuantizedKVCache):
    """A cut group stays whole: more tokens are held than were asked for."""

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        whole = min(self.n_groups, -(-n // self.group))
        self.length, self.pending, self.n_groups = max(n, whole * self.group), {}, whole


@bug("capacity", "a truncate that drops as many tokens as it should keep")
class TruncatesByN(QuantizedKVCache):
    """n tokens are dropped instead of kept."""

    def truncate(self, n):
        check_between("n", n, 0, len(self))
        super().truncate(len(self) - n)


bug = MUSEUM.section("QuantizedKVCache", check="bytes_match_codes_scales_window")


@bug("form", "a cache that keeps original keys beside their codes")
class KeepsTheOriginals(QuantizedKVCache):
    """The original keys are kept as well, just in case."""

    def advance(self, n):
        kept = [k.clone() for k, _ in self.pending.values()]
        self.originals = [*getattr(self, "originals", []), *kept]
        super().advance(n)
