"""Words become numbers and numbers words again, and nothing unknown slips through."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course.world.stories import tell
from course.world.tokenizer import END, PAD, VOCAB_SIZE, WORDS, decode, encode

ids = st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1)


def test_the_cat_sat_is_three_tokens():
    tokens = encode("The cat sat")
    assert tokens.shape == (1, 3)
    assert tokens.dtype == torch.int64


def test_a_full_stop_is_a_token_with_and_without_a_space_before_it():
    assert encode("on the mat.").tolist() == encode("on the mat .").tolist()
    assert encode("on the mat.").shape == (1, 4)


def test_a_capital_makes_another_word():
    assert encode("The").item() != encode("the").item()


def test_the_specials_are_words_too():
    assert encode("<pad> <end>").tolist() == [[PAD, END]]
    assert (WORDS[PAD], WORDS[END]) == ("<pad>", "<end>")


def test_no_word_stands_twice_in_the_vocabulary():
    assert len(set(WORDS)) == len(WORDS) == VOCAB_SIZE


@given(ids)
def test_encoding_undoes_decoding(numbers):
    assert encode(decode(numbers)).tolist() == [numbers]


@pytest.mark.parametrize("seed", range(20))
def test_a_story_survives_the_round_trip(seed):
    text = tell(seed).text
    assert decode(encode(text)) == text


@given(ids, ids)
def test_texts_decoded_apart_join_with_a_space(first, second):
    assert decode(first + second) == f"{decode(first)} {decode(second)}"


@pytest.mark.parametrize("tokens", [[3, 4], torch.tensor([3, 4]), torch.tensor([[3, 4]])])
def test_decode_takes_a_list_one_row_or_a_batch_of_one(tokens):
    assert decode(tokens) == f"{WORDS[3]} {WORDS[4]}"


def test_decoding_nothing_gives_an_empty_text():
    assert decode([]) == ""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("The cap sat", ["'cap'", "word 2 of 3", "cat"]),
        ("mia came in", ["'mia'", "word 1 of 3", "Mia"]),
        ("The cat sat !", ["'!'", "word 4 of 4", "."]),
    ],
)
def test_an_unknown_word_is_named_with_its_place_and_its_neighbours(text, named):
    with pytest.raises(ValueError, match="unknown word") as error:
        encode(text)
    for part in named:
        assert part in str(error.value)


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_a_text_without_words_is_refused(text):
    with pytest.raises(ValueError, match="holds no word"):
        encode(text)


@pytest.mark.parametrize("text", [None, 3, b"The cat", ["The", "cat"]])
def test_encode_refuses_what_is_not_a_text(text):
    with pytest.raises(ValueError, match="takes a str, got"):
        encode(text)


@pytest.mark.parametrize("number", [-1, VOCAB_SIZE, 1.5])
def test_decode_names_an_id_that_is_no_word(number):
    with pytest.raises(ValueError, match=f"token 1 .*{number}"):
        decode([0, number])


@pytest.mark.parametrize("tokens", ["The cat", 3, None, torch.tensor(3), torch.zeros(2, 3).long()])
def test_decode_refuses_what_is_not_one_row_of_ids(tokens):
    with pytest.raises(ValueError, match="decode takes"):
        decode(tokens)
