"""Known wrong answers to lesson 17: caches of states that are written out."""

from __future__ import annotations

from typing import ClassVar

from autograder.lessons.linear_state.museum import MUSEUM
from course.minigpt import linear_state as right

bug = MUSEUM.section("HybridCache", check="every_split_keeps_the_same")


@bug("state", "states that all caches share", kind="instances")
class TwoCachesShareStates(right.HybridCache):
    """A dict of the class and not of the object."""

    shared: ClassVar[dict] = {}

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.shared.clear()
        self.shared.update(self.now)
        self.now = self.shared

    def advance(self, n):
        self.length += n
        self.shared.update(self.coming)
        self.coming = {}


@bug("state", "rows that all caches share", kind="instances")
class TwoCachesShareRows(right.HybridCache):
    """One storage of the class, as long as its shape fits."""

    storage: ClassVar[dict] = {}

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        places = self.storage.setdefault("rows", self.rows)
        alike = places.shape[:4] == self.rows.shape[:4] and places.dtype == self.rows.dtype
        alike = alike and places.device == self.rows.device
        if alike and places.shape[4] >= self.rows.shape[4]:
            self.rows = places
        self.storage["rows"] = self.rows


@bug("state", "a text that is recomputed from a number, and no state", kind="cheapest")
class ZerosForEver(right.HybridCache):
    """Nothing is kept."""

    def keep(self, layer, S, tail):
        pass


@bug("state", "the states of passes of one token alone")
class KeepsSingleTokens(right.HybridCache):
    """Long passes are thought to be prompts that nobody continues."""

    def advance(self, n):
        if n > 1 and self.length:
            self.coming = {}
        super().advance(n)


bug = MUSEUM.section("HybridCache", check="goes_back_or_refuses")


@bug("state", "rows that are cut, beside states that stay as they were")
class CutsRowsOnly(right.HybridCache):
    """Rapid-MLX PR #14: the length is cut, the states still know what was taken back."""

    def truncate(self, n):
        if not 0 <= n <= self.length:
            raise ValueError(n)
        self.length, self.coming = n, {}
        self.remembered = {at: kept for at, kept in self.remembered.items() if at <= n}


@bug("state", "states that begin anew, beside rows that are cut")
class StatesAreReset(right.HybridCache):
    """mlx-lm PR #1253: "the recurrent layers recompute". Nobody feeds those tokens again."""

    def truncate(self, n):
        if not 0 <= n <= self.length:
            raise ValueError(n)
        kept = {at: states for at, states in self.remembered.items() if at <= n}
        if n < self.length:
            super().truncate(0)
        self.length, self.remembered, self.coming = n, kept, {}


@bug("state", "a cut that says yes and does nothing")
class SaysYesAndDoesNothing(right.HybridCache):
    """llama.cpp #26695: the call comes back, and everything is as it was."""

    def truncate(self, n):
        if not 0 <= n <= self.length:
            raise ValueError(n)


@bug("choice", "the nearest checkpoint below, where there is none of this length")
class NearestCheckpointBelow(right.HybridCache):
    """llama.cpp PR #29117: rows of n tokens beside a state of fewer."""

    def truncate(self, n):
        below = [at for at in (0, *self.checkpoints, self.length) if at <= n]
        length = self.length
        if not 0 <= n <= length:
            raise ValueError(n)
        super().truncate(max(below))
        self.length = n


@bug("choice", "a length that is cut to the nearest checkpoint, and not to what was asked")
class GoesBackFurtherThanAsked(right.HybridCache):
    """Safe, and another number of tokens than the caller counts with."""

    def truncate(self, n):
        if not 0 <= n <= self.length:
            raise ValueError(n)
        super().truncate(max(at for at in (0, *self.checkpoints, self.length) if at <= n))


@bug("choice", "the nearest checkpoint above")
class NearestCheckpointAbove(right.HybridCache):
    """A state that knows a little too much."""

    def truncate(self, n):
        above = [at for at in (0, *self.checkpoints, self.length) if at >= n]
        if not 0 <= n <= self.length:
            raise ValueError(n)
        super().truncate(min(above))
        self.length = n


@bug("formula", "a rule that is run backwards")
class RunsBackwards(right.HybridCache):
    """lattice #176: do not invert. Here the last step is taken back by what is remembered of it."""

    def advance(self, n):
        self.before = {
            **dict(list(getattr(self, "before", {}).items())[-1:]),
            self.length: self.now,
        }
        super().advance(n)

    def truncate(self, n):
        before = getattr(self, "before", {})
        if n in before and n < self.length and n not in self.remembered:
            self.length, self.now, self.coming = n, before[n], {}
            self.remembered = {at: kept for at, kept in self.remembered.items() if at <= n}
            return
        super().truncate(n)


bug = MUSEUM.section("HybridCache", check="a_checkpoint_costs_a_state")


@bug("cost", "a copy of the rows beside each checkpoint", kind="cost")
class CopiesRowsAsWell(right.HybridCache):
    """Rows stay where they are; copying them costs what was to be saved."""

    def checkpoint(self):
        super().checkpoint()
        self.copies = {**getattr(self, "copies", {}), self.length: self.rows.clone()}


@bug("cost", "a state for every token", kind="cost")
class AStateForEachToken(right.HybridCache):
    """Then one could go back anywhere. The states of n tokens take more than their rows."""

    def advance(self, n):
        super().advance(n)
        self.history = [*getattr(self, "history", []), self.now]


@bug("cost", "two states, of which one waits for the next pass", kind="cost")
class TwoBuffers(right.HybridCache):
    """What was kept is copied over, and stays as well."""

    def advance(self, n):
        waiting = self.coming
        super().advance(n)
        self.waiting = {layer: (S.clone(), tail.clone()) for layer, (S, tail) in waiting.items()}


bug = MUSEUM.section("HybridCache", check="checkpoints_are_of_this_text")


@bug("state", "checkpoints that all caches share", kind="instances")
class TwoCachesShareCheckpoints(right.HybridCache):
    """A dict of the class and not of the object."""

    shared: ClassVar[dict] = {}

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        if not self.shared or len(arguments) > 99:
            self.shared.clear()
        self.remembered = self.shared

    def truncate(self, n):
        super().truncate(n)
        for at in [at for at in self.shared if at > n]:
            del self.shared[at]
        self.remembered = self.shared
