"""What a forward pass costs: attention, and each part of the bill on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from course.checks.check import Challenge, Check, Evidence, Verdict, check, failed, passed
from course.checks.comparing import outcome
from course.checks.counts import NUMBER_OR_WORDS, in_words, plain
from course.checks.recorded import Recorded
from course.checks.roofline import questions
from course.checks.roofline.misread import Result, first_wrong, question_about
from course.checks.roofline.passes import (
    LONG,
    Case,
    Truth,
    call_text,
    case_of_defaults,
    cases,
    draw_long_passes,
    draw_passes,
    draw_passes_beyond,
)
from course.model.config import GPTConfig

QUESTION_OF_DEFAULTS = "What does the signature say where nothing is given?"
Bill = dict[str, Any]
"""What was read of a returned cost, or "kind", words for what came in its place."""


def wrong_number(results: list[Result], texts: Mapping[str, str]) -> str | None:
    """Tell the first wrong one of a student's numbers, and ask for what all of them look like."""
    if (one := first_wrong(results)) is None:
        return None
    if isinstance(one.got, str):
        return f"{one.case} gave {one.got}; wanted is one number. What do you return?"
    return (
        f"{one.case} gave {one.got:,}; counted one by one it is {one.right:,}. "
        f"{question_about_all(results, one, texts)}"
    )


def question_about_all(results: list[Result], one: Result, texts: Mapping[str, str]) -> str:
    """Choose a question: by what a function keeps, by a known misreading, by the case's own size."""
    first, again = results[0], results[-1]
    if first.case == again.case and first.got != again.got:
        return f"The same call gave {again.got:,} later on. What do you keep between two calls?"
    if known := question_about(results, texts):
        return known
    if results.index(one) >= LONG:
        return "Smaller ones are right. Is there a largest number in your count, or in its type?"
    others = [other for other in results if other.right == one.got]
    if others:
        return f"That is right for {others[0].case}. What is different here?"
    return texts[""]


# --- attention -----------------------------------------------------------------------------------


def probe_attention(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    config, call, _ = case_of_defaults(challenge)
    return {
        "attention_flops": [
            plain(student.attention_flops(GPTConfig(**config), *call[:3]))
            for config, call, _ in cases(challenge)
        ],
        "by_default": plain(student.attention_flops(GPTConfig(**config), *call[:2])),
    }


def form_of_attention(challenge: Challenge) -> Any:
    return {
        "attention_flops": [NUMBER_OR_WORDS] * len(cases(challenge)),
        "by_default": NUMBER_OR_WORDS,
    }


@check("attention_flops", draw=draw_long_passes, probe=probe_attention, evidence=form_of_attention)
def attention_is_causal(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    results = [
        Result(call_text(case, "attention_flops"), got, **truth(*case)["attention_flops"])
        for case, got in zip(cases(challenge), evidence["attention_flops"], strict=True)
    ]
    case, got = case_of_defaults(challenge), evidence["by_default"]
    text = call_text(case, "attention_flops", by_default=True)
    by_default = Result(text, got, **truth(*case)["attention_flops"])
    if wrong := wrong_number(results, questions.ATTENTION) or wrong_number(
        [by_default], {"": QUESTION_OF_DEFAULTS}
    ):
        return failed(wrong)
    return passed("Every pair that may look, in every head: a score, and a share of a value.")


# --- reading and comparing bills -----------------------------------------------------------------


def read_cost(value: Any, fields: tuple[str, ...]) -> Bill:
    """Read fields of what `phase_cost` returned as plain numbers.

    Of what lacks one of them, "kind" says what it is; otherwise it is "".
    """
    is_cost = all(hasattr(value, field) for field in fields)
    kind = "" if is_cost else in_words(value)
    return {"kind": kind, **{field: plain(getattr(value, field, None)) for field in fields}}


def read_costs(student: SimpleNamespace, challenge: Challenge, fields: tuple[str, ...]) -> Evidence:
    bills = [
        read_cost(student.phase_cost(GPTConfig(**config), *call), fields)
        for config, call, _ in cases(challenge)
    ]
    return {"bills": bills}


def form_of_bills(*fields: str) -> Callable[[Challenge], Any]:
    """Declare one bill with these fields for each case."""
    bill = {"kind": str, **dict.fromkeys(fields, NUMBER_OR_WORDS)}
    return lambda challenge: {"bills": [bill] * len(cases(challenge))}


def wrong_kind(challenge: Challenge, bills: list[Bill]) -> str | None:
    """Tell the first bill that is none, or that has no number where one belongs."""
    for case, bill in zip(cases(challenge), bills, strict=True):
        if bill["kind"]:
            return f"{call_text(case)} gave {bill['kind']}; wanted is a Cost. What do you return?"
        for field, value in bill.items():
            if isinstance(value, str) and field != "kind":
                return f"{call_text(case)}: {field} is {value}; wanted is one number. Which one?"
    return None


def wrong_field(
    challenge: Challenge, bills: list[Bill], truth: Truth, field: str, texts: Mapping[str, str]
) -> str | None:
    """Tell the first bill in which a field is wrong; None where all are right."""
    return wrong_number(
        [
            Result(f"{call_text(case)}: {field}", bill[field], **truth(*case)[field])
            for case, bill in zip(cases(challenge), bills, strict=True)
        ],
        texts,
    )


# --- the four parts of a bill --------------------------------------------------------------------


def of_attention(case: Case) -> dict[str, tuple[int, int, int]]:
    """List what a bill may ask attention for: T, P and B, and by mistake other numbers."""
    T, P, B, _ = case.call
    results = {"as asked": (T, P, B)}
    if case.telling:
        results |= {"of one row": (T, P, 1), "without the old": (T, 0, B)}
        results |= {"exchanged": (P, T, B) if P else (T, P, B)}
    return results


def probe_matrices(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Read FLOPs with attention, and what the same student's attention costs: one mistake there shall
    cost one point and not two."""
    evidence = read_costs(student, challenge, ("flops",))
    attention = [
        {
            name: plain(student.attention_flops(GPTConfig(**case.config), *sizes))
            for name, sizes in of_attention(case).items()
        }
        for case in cases(challenge)
    ]
    return {**evidence, "attention": attention}


def form_of_matrices(challenge: Challenge) -> Any:
    attention = [dict.fromkeys(of_attention(case), NUMBER_OR_WORDS) for case in cases(challenge)]
    return {**form_of_bills("flops")(challenge), "attention": attention}


@check(
    "phase_cost",
    "attention_flops",
    draw=draw_passes,
    probe=probe_matrices,
    evidence=form_of_matrices,
)
def matrices_match_the_counter(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    bills, counts = evidence["bills"], evidence["attention"]
    if wrong := wrong_kind(challenge, bills):
        return failed(wrong)
    results = []
    for case, bill, attention in zip(cases(challenge), bills, counts, strict=True):
        sizes = ", ".join(map(str, case.call[:3]))
        text = f"{call_text(case)}: flops less your attention_flops(config, {sizes})"
        if words := next((count for count in attention.values() if isinstance(count, str)), ""):
            return failed(f"{text}: attention_flops gave {words}. What does it return?")
        answer, own = truth(*case)["matrix_flops"], attention["as asked"]
        misread = {
            "no attention": -own,
            "attention twice": own,
            "attention in every layer": (case.config["n_layers"] - 1) * own,
            **{f"attention {name}": count - own for name, count in attention.items()},
        }
        misread = {name: answer["right"] + more for name, more in misread.items()}
        misread |= answer["misread"]
        results.append(Result(text, bill["flops"] - own, answer["right"], misread))
    if wrong := wrong_number(results, questions.MATRICES):
        return failed(wrong)
    return passed(
        "Every matrix product is counted, as PyTorch counts it: with logits of the last token alone."
    )


def check_field(name: str, field: str, texts: Mapping[str, str], praise: str) -> Check:
    """Check one field of a bill."""

    def verdict(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
        bills = evidence["bills"]
        if wrong := wrong_kind(challenge, bills) or wrong_field(
            challenge, bills, truth, field, texts
        ):
            return failed(wrong)
        return passed(praise)

    probe, form = partial(read_costs, fields=(field,)), form_of_bills(field)
    truth = Recorded("roofline", name)
    return Check(name, ("phase_cost",), draw_passes, probe, verdict, evidence=form, truth=truth)


weights_are_read_once = check_field(
    "weights_are_read_once",
    "weight_bytes",
    questions.WEIGHTS,
    "Each matrix is read once a forward pass, for all tokens of all rows together.",
)
activations_go_in_and_out = check_field(
    "activations_go_in_and_out",
    "activation_bytes",
    questions.ACTIVATIONS,
    "Rows go into every matrix and come out of it.",
)


CACHE_FIELDS = ("kv_written_bytes", "kv_read_bytes")
REFUSED = (
    {"n_new": 0, "n_past": 1},
    {"n_new": 1, "n_past": -1},
    {"n_new": 1, "n_past": 0, "batch": 0},
    {"n_new": 1, "n_past": 0, "bytes_per_element": 0},
)
"""Sizes of which one is refused by the lines above the gap."""


def probe_cache(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Ask for every bill, for one with batch and bytes_per_element left out, and for some that cannot
    be."""
    config, call, _ = case_of_defaults(challenge)
    sizes = GPTConfig(**config)
    return {
        **read_costs(student, challenge, CACHE_FIELDS),
        "by_default": read_cost(student.phase_cost(sizes, *call[:2]), CACHE_FIELDS),
        "refused": [outcome(lambda w=wrong: student.phase_cost(sizes, **w)) for wrong in REFUSED],
    }


def form_of_cache(challenge: Challenge) -> Any:
    by_default = {"kind": str, **dict.fromkeys(CACHE_FIELDS, NUMBER_OR_WORDS)}
    bills = form_of_bills(*CACHE_FIELDS)(challenge)
    return {**bills, "by_default": by_default, "refused": [str] * len(REFUSED)}


def wrong_default(challenge: Challenge, bill: Bill, truth: Truth) -> str | None:
    """Tell whether a bill for which no batch and no element size was named is another one's."""
    case = case_of_defaults(challenge)
    text = call_text(case, by_default=True)
    if bill["kind"]:
        return f"{text} gave {bill['kind']}; wanted is a Cost. What do you return?"
    results = [Result(f"{text}: {name}", bill[name], **truth(*case)[name]) for name in CACHE_FIELDS]
    return wrong_number(results, {"": QUESTION_OF_DEFAULTS})


def wrong_refusal(outcomes: list[str]) -> str | None:
    """Tell the first impossible size that was not refused with a ValueError."""
    for sizes, came in zip(REFUSED, outcomes, strict=True):
        if came != "ValueError":
            call = ", ".join(f"{name}={size}" for name, size in sizes.items())
            return (
                f"phase_cost(config, {call}) {'raised ' * (came != 'returned')}{came}; wanted is a "
                f"ValueError. Do the lines above the gap stand where they stood?"
            )
    return None


@check("phase_cost", draw=draw_passes_beyond, probe=probe_cache, evidence=form_of_cache)
def cache_is_read_and_written(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    bills = evidence["bills"]
    if wrong := (
        wrong_kind(challenge, bills)
        or wrong_field(challenge, bills, truth, "kv_written_bytes", questions.WRITTEN)
        or wrong_field(challenge, bills, truth, "kv_read_bytes", questions.READ)
        or wrong_default(challenge, evidence["by_default"], truth)
        or wrong_refusal(evidence["refused"])
    ):
        return failed(wrong)
    return passed(
        "New rows are written; old and new ones are read, of G heads, for each row of the batch."
    )
