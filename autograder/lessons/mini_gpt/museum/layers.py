"""Wrong answers to `attention_layer`."""

from autograder.lessons.mini_gpt.museum import MUSEUM
from course.minigpt import mini_gpt as right

bug = MUSEUM.section("attention_layer", check="layer_joins_its_parts")

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
