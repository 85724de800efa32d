"""What a forward pass costs: attention, and each part of the bill on its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from course.checks.check import Challenge, Check, Evidence, Verdict, failed, passed
from course.checks.counts import in_words, plain
from course.checks.roofline import questions
from course.checks.roofline.passes import (
    Bill,
    Call,
    Sizes,
    Truth,
    call_text,
    case_of_defaults,
    cases,
    draw_passes,
)
from course.checks.roofline.weighing import weigh
from course.config import GPTConfig

NUMBER = (int, float, str)
"""The form of a returned number, or of the words for what came in its place."""
QUESTION_OF_DEFAULTS = "What does the signature say where nothing is given?"

# --- attention -----------------------------------------------------------------------------------


def probe_attention(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    config, call = case_of_defaults(challenge)
    return {
        "attention_flops": [
            plain(student.attention_flops(GPTConfig(**config), *call[:3]))
            for config, call in cases(challenge)
        ],
        "by_default": plain(student.attention_flops(GPTConfig(**config), *call[:2])),
    }


def form_of_attention(challenge: Challenge) -> Any:
    return {"attention_flops": [NUMBER] * len(cases(challenge)), "by_default": NUMBER}


def judge_attention(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    for (config, call), got in zip(cases(challenge), evidence["attention_flops"], strict=True):
        case, wanted = call_text(config, call, "attention_flops"), truth(config, call)
        right = wanted["attention_flops"]
        if isinstance(got, str):
            return failed(f"{case} gave {got}; wanted is one number. What do you return?")
        if got != right:
            question = questions.ask_about_attention(config, call, got, right)
            return failed(f"{case} gave {got:,}; pair by pair it is {right:,}. {question}")
    (config, call), got = case_of_defaults(challenge), evidence["by_default"]
    right = truth(config, call)["attention_flops"]
    if got != right:
        return failed(
            f"{call_text(config, call, 'attention_flops', by_default=True)} gave {got}; pair by pair "
            f"it is {right:,}. {QUESTION_OF_DEFAULTS}"
        )
    return passed("Every pair that may look, in every head: a score, and a share of a value.")


attention_is_causal = Check(
    "attention_is_causal",
    ("attention_flops",),
    draw_passes,
    probe_attention,
    judge_attention,
    evidence=form_of_attention,
    truth=weigh,
)

# --- reading and comparing bills -----------------------------------------------------------------


def read_cost(value: Any, fields: tuple[str, ...]) -> dict[str, Any]:
    """Read fields of what `phase_cost` returned as plain numbers.

    Of what lacks one of them, "kind" says what it is; otherwise it is "".
    """
    is_cost = all(hasattr(value, field) for field in fields)
    kind = "" if is_cost else in_words(value)
    return {"kind": kind, **{field: plain(getattr(value, field, None)) for field in fields}}


def read_costs(student: SimpleNamespace, challenge: Challenge, *fields: str) -> Evidence:
    bills = [
        read_cost(student.phase_cost(GPTConfig(**config), *call), fields)
        for config, call in cases(challenge)
    ]
    return {"bills": bills}


def form_of_bills(*fields: str) -> Callable[[Challenge], Any]:
    """Declare one bill with these fields for each case."""
    bill = {"kind": str, **dict.fromkeys(fields, NUMBER)}
    return lambda challenge: {"bills": [bill] * len(cases(challenge))}


def wrong_bill(
    challenge: Challenge,
    evidence: Evidence,
    truth: Truth,
    ask: Callable[[Sizes, Call, Bill, Bill], str],
) -> str | None:
    """Tell the first field of the first bill that is wrong; None where all are right."""
    for (config, call), bill in zip(cases(challenge), evidence["bills"], strict=True):
        case, right = call_text(config, call), truth(config, call)
        if wrong := wrong_field(case, bill, right, partial(ask, config, call)):
            return wrong
    return None


def wrong_field(case: str, bill: Bill, right: Bill, ask: Callable[[Bill, Bill], str]) -> str | None:
    """Tell the first field of a bill that is wrong; None where all are right."""
    if bill["kind"]:
        return f"{case} gave {bill['kind']}; wanted is a Cost. What do you return?"
    found = {name: value for name, value in bill.items() if name != "kind"}
    for field, value in found.items():
        if isinstance(value, str):
            return f"{case}: {field} is {value}; wanted is one number. Which one?"
    if "flops" in found:
        found = without_attention(found)
    for field, value in found.items():
        if value != right[field]:
            what = "flops without attention" if field == "matrix_flops" else field
            return (
                f"{case}: {what} is {value:,}; counted one by one it is {right[field]:,}. "
                f"{ask(found, right)}"
            )
    return None


def without_attention(bill: Bill) -> Bill:
    """Take the FLOPs of attention off, as the same student counts them: one mistake there shall
    cost one point and not two."""
    return {"matrix_flops": bill["flops"] - bill["attention_flops"]}


# --- the four parts of a bill --------------------------------------------------------------------


def probe_matrices(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    evidence = read_costs(student, challenge, "flops")
    for (config, call), bill in zip(cases(challenge), evidence["bills"], strict=True):
        of_attention = (
            None if bill["kind"] else student.attention_flops(GPTConfig(**config), *call[:3])
        )
        bill["attention_flops"] = plain(of_attention)
    return evidence


def judge_matrices(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    if wrong := wrong_bill(challenge, evidence, truth, questions.ask_about_matrices):
        return failed(wrong)
    return passed(
        "Every matrix product is counted, as PyTorch counts it: with logits of the last token alone."
    )


matrices_match_the_counter = Check(
    "matrices_match_the_counter",
    ("phase_cost", "attention_flops"),
    draw_passes,
    probe_matrices,
    judge_matrices,
    evidence=form_of_bills("flops", "attention_flops"),
    truth=weigh,
)


def probe_weights(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return read_costs(student, challenge, "weight_bytes")


def judge_weights(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    if wrong := wrong_bill(challenge, evidence, truth, questions.ask_about_weights):
        return failed(wrong)
    return passed("Each matrix is read once a forward pass, for all tokens of all rows together.")


weights_are_read_once = Check(
    "weights_are_read_once",
    ("phase_cost",),
    draw_passes,
    probe_weights,
    judge_weights,
    evidence=form_of_bills("weight_bytes"),
    truth=weigh,
)


CACHE_FIELDS = ("kv_written_bytes", "kv_read_bytes")


def probe_cache(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    """Ask for every bill, and for one with batch and bytes_per_element left out."""
    config, call = case_of_defaults(challenge)
    by_default = read_cost(student.phase_cost(GPTConfig(**config), *call[:2]), CACHE_FIELDS)
    return {**read_costs(student, challenge, *CACHE_FIELDS), "by_default": by_default}


def form_of_cache(challenge: Challenge) -> Any:
    by_default = {"kind": str, **dict.fromkeys(CACHE_FIELDS, NUMBER)}
    return {**form_of_bills(*CACHE_FIELDS)(challenge), "by_default": by_default}


def judge_cache(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    config, call = case_of_defaults(challenge)
    case = call_text(config, call, by_default=True)
    if wrong := wrong_bill(challenge, evidence, truth, questions.ask_about_cache) or wrong_field(
        case, evidence["by_default"], truth(config, call), lambda *_: QUESTION_OF_DEFAULTS
    ):
        return failed(wrong)
    return passed(
        "New rows are written; old and new ones are read, of G heads, for each row of the batch."
    )


cache_is_read_and_written = Check(
    "cache_is_read_and_written",
    ("phase_cost",),
    draw_passes,
    probe_cache,
    judge_cache,
    evidence=form_of_cache,
    truth=weigh,
)


def probe_activations(student: SimpleNamespace, challenge: Challenge) -> Evidence:
    return read_costs(student, challenge, "activation_bytes")


def judge_activations(challenge: Challenge, evidence: Evidence, truth: Truth) -> Verdict:
    if wrong := wrong_bill(challenge, evidence, truth, questions.ask_about_activations):
        return failed(wrong)
    return passed("Rows go into every matrix and come out of it.")


activations_go_in_and_out = Check(
    "activations_go_in_and_out",
    ("phase_cost",),
    draw_passes,
    probe_activations,
    judge_activations,
    evidence=form_of_bills("activation_bytes"),
    truth=weigh,
)
