"""Known wrong answers to lesson 04: `latency_metrics`."""

from __future__ import annotations

from autograder.lessons.prefill_and_decode.museum import MUSEUM

bug, patch = MUSEUM.section("latency_metrics", check="first_token_is_no_gap")
patch(
    "latency_with_the_first_gap",
    "formula",
    "gaps among which is the wait for the first token",
    "The gaps are counted from the start: TTFT is one of them.",
    (", len(gaps) / gaps.sum())", ", rate)"),
    (
        "p50, p99 = np",
        "rate, gaps = len(gaps) / gaps.sum(), np.diff([start, *stamps])\n    p50, p99 = np",
    ),
)
patch(
    "latency_mean_over_everything",
    "formula",
    "a mean gap that is the whole time divided by the tokens",
    "Total time by tokens: the prefill is spread over all of them.",
    ("gaps.mean()", "(stamps[-1] - start) / len(stamps)"),
)
patch(
    "latency_mean_by_tokens",
    "off by one",
    "a mean over as many gaps as there are tokens",
    "n tokens have n - 1 gaps, and the sum is divided by n.",
    ("gaps.mean()", "gaps.sum() / len(stamps)"),
)
patch(
    "latency_p99_is_the_longest",
    "formula",
    "a 99th percentile that is simply the longest gap",
    "With few gaps the longest is near p99, and with many it is not.",
    ("p50, p99, ", "p50, gaps.max(), "),
)
patch(
    "latency_nearest_rank",
    "formula",
    "percentiles that are always one of the gaps, with no line between two",
    "The percentile is one of the gaps: the nearest-rank rule.",
    ("[50, 99]", '[50, 99], method="inverted_cdf"'),
)
patch(
    "latency_places_from_one",
    "off by one",
    "percentiles looked up one place too far",
    "q · m in place of q · (m - 1).",
    (
        "np.percentile(gaps, [50, 99])",
        "np.interp(np.array([0.5, 0.99]) * len(gaps), range(len(gaps)), np.sort(gaps))",
    ),
)
patch(
    "latency_unsorted",
    "formula",
    "percentiles of gaps in the order in which they came",
    "The gaps are not sorted before a place among them is taken.",
    (
        "np.percentile(gaps, [50, 99])",
        "np.interp(np.array([0.5, 0.99]) * (len(gaps) - 1), range(len(gaps)), gaps)",
    ),
)
patch(
    "latency_median_is_the_mean",
    "formula",
    "a median that is the mean",
    "p50 is taken for the mean.",
    ("p50, p99, ", "gaps.mean(), p99, "),
)
patch(
    "latency_rate_with_prefill",
    "formula",
    "a rate whose seconds include the prefill",
    "All tokens by all seconds: the rate falls as the prompt grows.",
    ("len(gaps) / gaps.sum()", "len(stamps) / (stamps[-1] - start)"),
)
patch(
    "latency_rate_of_all_tokens",
    "off by one",
    "a rate that counts the first token among those of the decode phase",
    "The seconds of the decode phase, and the tokens of both.",
    ("len(gaps) / gaps.sum()", "len(stamps) / gaps.sum()"),
)
patch(
    "latency_zero_for_no_gap",
    "formula",
    "a latency of zero where there is no gap at all",
    "One token, so every gap is 0: the best latency of all.",
    ("None, None, None, None", "0.0, 0.0, 0.0, 0.0"),
    kind="sizes",
)
patch(
    "latency_in_float32",
    "form",
    "gaps between stamps that were rounded to float32",
    "torch.tensor(stamps) is float32: milliseconds of a clock of days are lost.",
    ("np.diff(stamps)", "np.diff(np.float32(stamps))"),
    kind="dtype",
)
patch(
    "latency_start_in_float32",
    "form",
    "a start and stamps that were both rounded to float32",
    "torch.tensor([start, *stamps]) is float32: gaps and the first wait lose their digits.",
    (
        "ttft, gaps = stamps[0] - start, np.diff(stamps)",
        "ttft, *gaps = np.diff(np.float32([start, *stamps])).astype(float)\n"
        "    gaps = np.array(gaps)",
    ),
    kind="dtype",
)
patch(
    "latency_ttft_to_the_second",
    "off by one",
    "a time to first token that ends at the second",
    "The stamp at index 1 is taken for the first.",
    ("stamps[0] - start", "stamps[min(1, len(stamps) - 1)] - start"),
)
patch(
    "latency_zero_is_no_start",
    "formula",
    "a start at 0 seconds that is taken for none",
    "`start or …`: 0.0 is false, so the first stamp stands in for the start, and nobody waited.",
    ("stamps[0] - start", "stamps[0] - (start or stamps[0])"),
)
patch(
    "latency_nan_for_no_gap",
    "formula",
    "NaN where there is no gap at all",
    "The mean of no gaps is NaN, and it is given back as it is.",
    ("None, None, None, None", 'float("nan"), float("nan"), float("nan"), float("nan")'),
    kind="sizes",
)
patch(
    "latency_rate_zero_for_no_gap",
    "formula",
    "a rate of zero where no phase was measured",
    "The gaps are None, and the rate of a single token is given as 0.",
    ("None, None, None, None", "None, None, None, 0.0"),
    kind="sizes",
)
patch(
    "latency_none_for_one_gap",
    "off by one",
    "no gap found between two tokens",
    "Two tokens have one gap; it is taken for too little to measure.",
    ("len(gaps) == 0", "len(gaps) <= 1"),
    kind="sizes",
)
patch(
    "latency_without_the_first_gap",
    "off by one",
    "gaps without that between the first two tokens",
    "The first gap is left out, as if the prefill were still in it.",
    ("np.diff(stamps)", "np.diff(stamps)[1:]"),
)
patch(
    "latency_gaps_since_the_first",
    "formula",
    "times since the first token in the place of gaps between neighbours",
    "stamps[1:] less stamps[0]: each counts all that came before it.",
    ("np.diff(stamps)", "np.asarray(stamps[1:]) - stamps[0]"),
)
patch(
    "latency_gaps_of_everything",
    "formula",
    "a decode phase that begins with the request: its gaps, and its rate, hold the wait for the first "
    "token",
    "np.diff of the start and all stamps: TTFT counts as a gap everywhere.",
    ("np.diff(stamps)", "np.diff([start, *stamps])"),
)
patch(
    "latency_rate_since_the_start",
    "formula",
    "a rate of the decode phase's tokens over all the seconds",
    "The tokens after the first, by the seconds since the request.",
    ("len(gaps) / gaps.sum()", "len(gaps) / (stamps[-1] - start)"),
)
patch(
    "latency_rate_by_the_median",
    "formula",
    "a rate that is one by the median gap",
    "1 / p50: one long gap does not count.",
    ("len(gaps) / gaps.sum()", "1 / p50"),
)
patch(
    "latency_rate_from_the_mean_of_rates",
    "formula",
    "a rate that is the mean of each gap's rate",
    "The mean of 1 / gap is not 1 / mean gap; and a gap of 0 has no rate.",
    ("len(gaps) / gaps.sum()", "np.mean(1 / np.maximum(gaps, 1e-9))"),
)
patch(
    "latency_p99_of_one",
    "formula",
    "a 99th percentile that is the 0.99th",
    "np.percentile takes 0 … 100, and was given 0.99.",
    ("[50, 99]", "[50, 0.99]"),
)
patch(
    "latency_next_higher_gap",
    "formula",
    "percentiles that are the next longer gap, with no line between two",
    'method="higher", or math.ceil of the place.',
    ("[50, 99]", '[50, 99], method="higher"'),
)
patch(
    "latency_next_lower_gap",
    "formula",
    "percentiles that are the next shorter gap, with no line between two",
    "int(q * (m - 1)): the place is cut down to a whole one.",
    ("[50, 99]", '[50, 99], method="lower"'),
)
patch(
    "latency_nearest_gap",
    "formula",
    "percentiles that are the nearest gap, with no line between two",
    "round(q * (m - 1)): the place is rounded to a whole one.",
    ("[50, 99]", '[50, 99], method="nearest"'),
)
patch(
    "latency_upper_median",
    "off by one",
    "a median that is the upper one of the two in the middle",
    "sorted(gaps)[m // 2], also where m is even.",
    ("p50, p99, ", "np.sort(gaps)[len(gaps) // 2], p99, "),
)
patch(
    "latency_exclusive_percentiles",
    "formula",
    "percentiles of a population from which the gaps are taken as a sample",
    "statistics.quantiles as it is: places count from q · (m + 1).",
    ("[50, 99]", '[50, 99], method="weibull"'),
)
patch(
    "latency_in_milliseconds",
    "formula",
    "milliseconds where seconds were asked for",
    "Everything is multiplied by 1,000, as the lesson prints it.",
    (
        "return Latency(ttft, gaps.mean(), p50, p99,",
        "return Latency(ttft * 1e3, gaps.mean() * 1e3, p50 * 1e3, p99 * 1e3,",
    ),
)
patch(
    "latency_gaps_in_milliseconds",
    "formula",
    "gaps in milliseconds, beside a first token in seconds",
    "The gaps are multiplied by 1,000, as the lesson prints them, and the rest is not.",
    (
        "return Latency(ttft, gaps.mean(), p50, p99,",
        "return Latency(ttft, gaps.mean() * 1e3, p50 * 1e3, p99 * 1e3,",
    ),
)
patch(
    "latency_rounded_to_milliseconds",
    "rounding",
    "gaps that were rounded to whole milliseconds",
    "round(…, 3) for a nice picture: the digits below are gone.",
    ("np.diff(stamps)", "np.diff(stamps).round(3)"),
)
patch(
    "latency_ttft_since_zero",
    "timing",
    "a time to first token that is the reading of the clock itself",
    "The first stamp is taken for a duration: the clock did not start with the request.",
    ("ttft, gaps = stamps[0] - start", "ttft, gaps = stamps[0]"),
)
patch(
    "latency_takes_the_first_stamp_away",
    "arguments",
    "a list of stamps from which the first was taken away",
    "stamps.pop(0) is short, and changes the caller's list (and a tuple has no pop).",
    ("stamps[0] - start, np.diff(stamps)", "stamps.pop(0) - start, np.diff([start, *stamps])[1:]"),
    kind="arguments",
)
patch(
    "latency_of_lists_alone",
    "form",
    "stamps that are taken to be a list",
    "A list is added to a slice: with a tuple that stops.",
    ("np.diff(stamps)", "np.diff([stamps[0]] + stamps[1:])"),
    kind="layout",
)
patch(
    "latency_unchecked",
    "arguments",
    "stamps that no stream has, and that are measured all the same",
    "The line that checks the stamps is gone.",
    ("    check_stamps(start, stamps)\n", ""),
    kind="refusals",
)
