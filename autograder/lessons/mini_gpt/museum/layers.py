"""Wrong answers to `attention_layer`."""

from autograder.lessons.mini_gpt.museum import MUSEUM
from course.minigpt import mini_gpt as right

TURN = "q, k = attn.rotate(q, positions), attn.rotate(k, positions)"
ATTEND = "causal_attention(q, k, v)"
bug, patch = MUSEUM.section("attention_layer", check="layer_joins_its_parts")
patch(
    "wo_forgotten",
    "wiring",
    "a layer without its last matrix",
    "The merged heads go out without the last matrix: shapes fit, so nothing complains.",
    (f"attn.wo(merge_heads({ATTEND}))", f"merge_heads({ATTEND})"),
)
patch(
    "keys_for_values",
    "wiring",
    "a layer whose values come from the matrix of the keys",
    "A line was copied: the values come from wk.",
    ("attn.wv(x)", "attn.wk(x)"),
)
patch(
    "keys_split_by_query_heads",
    "head order",
    "a layer that cuts keys and values into as many heads as the queries",
    "Keys and values are cut into n_heads, though there are only n_kv_heads of them.",
    ("attn.wk(x), attn.n_kv_heads", "attn.wk(x), attn.n_heads"),
    ("attn.wv(x), attn.n_kv_heads", "attn.wv(x), attn.n_heads"),
)
patch(
    "merged_by_reshape",
    "head order",
    "a layer that merges its heads while the token axis still stands between them",
    "The layer merges by itself with reshape(B, T, C), and tokens are scrambled.",
    (f"merge_heads({ATTEND})", f"{ATTEND}.reshape(x.shape)"),
)
patch(
    "residual_added",
    "wiring",
    "a layer that adds its own input",
    "x is added here, and a second time by the model.",
    ("attn.wo(", "x + attn.wo("),
)
patch(
    "query_and_key_exchanged",
    "wiring",
    "a layer in which keys ask and queries answer",
    "Keys ask and queries answer: the score of (t, s) is that of (s, t).",
    (
        TURN,
        "k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))\n"
        "    q, k = attn.rotate(k, positions), attn.rotate(q, positions)",
    ),
)
patch(
    "nothing_turned_at_the_start",
    "position",
    "a layer that rotates nothing where a text starts at position 0",
    "Position 0 is no rotation, so a text that starts there is not rotated at all.",
    (TURN, f"if positions[0] > 0:\n        {TURN}"),
)
patch(
    "keys_and_values_exchanged",
    "wiring",
    "a layer whose keys and values come from each other's matrices",
    "wk and wv changed places.",
    ("k = split_heads(attn.wk(x)", "v = split_heads(attn.wk(x)"),
    ("v = split_heads(attn.wv(x)", "k = split_heads(attn.wv(x)"),
)
patch(
    "values_handed_over_as_keys",
    "wiring",
    "a layer that hands values over as keys, and keys as values",
    "causal_attention(q, v, k): shapes fit, so nothing complains.",
    (ATTEND, "causal_attention(q, v, k)"),
)
patch(
    "scaled_twice",
    "softmax",
    "a layer that scales its queries although attention scales the scores",
    "The division by √D stands here and in causal_attention.",
    ("attn.rotate(q, positions),", "attn.rotate(q, positions) / attn.head_dim**0.5,"),
)
patch(
    "batch_of_one_dropped",
    "form",
    "a layer that drops the axis of a single text",
    "squeeze(0) at the end: written for one text, and only for one it hurts.",
    (
        "return attn.wo(merge_heads(causal_attention(q, k, v)))",
        "return attn.wo(merge_heads(causal_attention(q, k, v))).squeeze(0)",
    ),
    kind="batch",
)
patch(
    "layer_in_float32",
    "form",
    "a layer whose result is float32, whatever came in",
    "A .float() at the end, once needed for a picture.",
    (
        "return attn.wo(merge_heads(causal_attention(q, k, v)))",
        "return attn.wo(merge_heads(causal_attention(q, k, v))).float()",
    ),
    kind="dtype",
)
patch(
    "result_written_into_x",
    "state",
    "a layer that writes its result into its input",
    "x is overwritten to save memory, and the model still has to add it.",
    (
        "return attn.wo(merge_heads(causal_attention(q, k, v)))",
        "return x.copy_(attn.wo(merge_heads(causal_attention(q, k, v))))",
    ),
    kind="arguments",
)

FIRST = []


@bug("state", "a layer that computes with the matrices of the first one", kind="instances")
def matrices_of_the_first_layer(attn, x, positions):
    """The matrices are looked up once and kept: all later layers get the first one's."""
    FIRST.append(attn)
    return right.attention_layer(FIRST[0], x, positions)


LAYER_OUTPUTS = {}


@bug("state", "a layer whose result lies where the next call writes", kind="results")
def one_buffer_for_all_layers(attn, x, positions):
    """One result tensor for each shape, to save memory."""
    out = LAYER_OUTPUTS.setdefault((x.shape, x.dtype), x.new_empty(x.shape))
    return out.copy_(right.attention_layer(attn, x, positions))


patch(
    "room_for_64_tokens",
    "capacity",
    "a layer that computes the first 64 tokens only",
    "Its buffers were made for the small model's texts.",
    (
        "return attn.wo(merge_heads(causal_attention(q, k, v)))",
        "out = attn.wo(merge_heads(causal_attention(q, k, v)))\n    out[:, 64:] = 0\n    return out",
    ),
    kind="sizes",
)

bug, patch = MUSEUM.section("attention_layer", check="layer_obeys_positions")
patch(
    "positions_counted_anew",
    "position",
    "a layer that takes its tokens for neighbours, whatever positions it is given",
    "arange(T) in the place of the positions given: right until a text does not start at 0.",
    (TURN, f"positions = torch.arange(x.shape[1])\n    {TURN}"),
)
patch(
    "nothing_turned",
    "position",
    "a layer that rotates nothing",
    "No rotation at all: a query cannot tell in which order its keys stand.",
    (f"    {TURN}\n", ""),
)
patch(
    "keys_not_turned",
    "position",
    "a layer that rotates queries and not keys",
    "Only the query is turned: the score then depends on where a text starts.",
    ("attn.rotate(k, positions)", "k"),
)
patch(
    "queries_not_turned",
    "position",
    "a layer that rotates keys and not queries",
    "Only the key is turned: the score then depends on where a text starts.",
    ("attn.rotate(q, positions)", "q"),
)
patch(
    "values_turned",
    "position",
    "a layer that rotates values, too",
    "Query, key and value are treated alike, but a value is carried, not compared.",
    (ATTEND, "causal_attention(q, k, attn.rotate(v, positions))"),
)
patch(
    "keys_turned_backwards",
    "position",
    "a layer whose keys stand at the positions in reverse order",
    "Keys get the positions in reverse order.",
    ("attn.rotate(k, positions)", "attn.rotate(k, positions.flip(0))"),
)
patch(
    "turned_twice",
    "position",
    "a layer that rotates twice",
    "The line stands there twice, as after an edit: every distance counts double.",
    (TURN, f"{TURN}\n    {TURN}"),
)
patch(
    "queries_counted_from_0",
    "position",
    "a layer whose queries count from 0 while its keys stand at the positions given",
    "Two counters, of which one starts anew.",
    ("attn.rotate(q, positions)", "attn.rotate(q, positions - positions[0])"),
)
patch(
    "positions_one_late",
    "position",
    "a layer whose queries stand one place behind their keys",
    "Off by one: the query of token t is turned as if it came after it.",
    ("attn.rotate(q, positions)", "attn.rotate(q, positions - 1)"),
)
patch(
    "distances_grow_only_to_8",
    "position",
    "a layer in which large distances look alike",
    "Positions are cut off at a number that short texts never reach.",
    (TURN, f"positions = positions.clamp(max=positions[0] + 8)\n    {TURN}"),
    kind="sizes",
)
