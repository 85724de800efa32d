"""`python -m course.engine`: what it prints, how it ends, and what it says of bad input."""

import io
import re
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from checkpoint_folder import write_checkpoint

from course.engine import Engine, main
from course.fast.decode import FastDecoder
from course.minigpt.kv_cache import generate_cached
from course.model import MiniGPT
from course.published.texts import StoryWords, open_model
from course.serving.alone import Pace
from course.serving.screen import Lines
from course.world.tokenizer import decode, encode

TEMPLATE = (
    "{% for message in messages %}{% if message.role not in ('user', 'assistant') %}"
    "{{ raise_exception('no ' + message.role) }}{% endif %}\n"
    "{{ message.role + ' ' + message.content | trim }}{{ eos_token }}\n{% endfor %}\n"
    "{% if add_generation_prompt %}assistant {% endif %}"
)


@pytest.fixture(scope="module")
def story() -> MiniGPT:
    return MiniGPT.from_weights("story")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("llama"), chat_template=TEMPLATE)


def alone(model: MiniGPT, prompt: list[int], n_new: int) -> list[int]:
    return generate_cached(model, torch.tensor([prompt]), n_new)[0, len(prompt) :].tolist()


def test_the_command_streams_a_checkpoints_words(checkpoint, capsys):
    main(["once upon a time", "--model", str(checkpoint), "--new", "8"])
    model, words = open_model(checkpoint)
    tokens = words.encode("once upon a time")
    out = alone(model, tokens, 8)
    if 1 in out:
        out = out[: out.index(1)]
    assert capsys.readouterr().out == words.decode([*tokens, *out]) + "\n"


def test_the_command_streams_a_story(story, capsys):
    main(["The cat sat", "--new", "12"])
    prompt = encode("The cat sat")[0].tolist()
    assert capsys.readouterr().out == decode([*prompt, *alone(story, prompt, 12)]) + "\n"
    main(["The cat sat", "Anna Stone came in", "--new", "5"])
    texts = [
        alone(story, encode(text)[0].tolist(), 5) for text in ("The cat sat", "Anna Stone came in")
    ]
    both = capsys.readouterr()
    assert both.out.split("\n\n") == [
        decode([*encode("The cat sat")[0].tolist(), *texts[0]]),
        decode([*encode("Anna Stone came in")[0].tolist(), *texts[1]]) + "\n",
    ]
    assert re.fullmatch(
        r"\[10 tokens, \d+ a second, the first after \d+ ms; 0 of 7 prompt tokens reused; "
        r"0\.1 MB of keys and values\]\n"
        r"\[of the lessons: 01 greedy_next, .* · 03 .*forward_cached.* · 09 attend_part, .* · 11 .*\]\n",
        both.err,
    )


def test_the_command_ends_at_the_end_token(story, capsys, monkeypatch):
    """Whether one prompt streams or several are answered together; no pass is made behind the end."""
    monkeypatch.setattr(Pace, "pays", False)
    prompt = encode("The cat sat")[0].tolist()
    out = alone(story, prompt, 12)
    monkeypatch.setattr(StoryWords, "ends", frozenset({out[5]}))
    text = decode([*prompt, *out[: out.index(out[5])]])
    steps, step = [], FastDecoder.step
    monkeypatch.setattr(FastDecoder, "step", lambda *given: steps.append(step(*given)) or steps[-1])
    main(["The cat sat", "--new", "12"])
    assert capsys.readouterr().out == text + "\n"
    assert len(steps) == out.index(out[5])  # the prompt's pass wrote the first
    main(["The cat sat", "The cat sat", "--new", "12"])
    assert capsys.readouterr().out == f"{text}\n\n{text}\n"


def test_an_interrupt_ends_the_command_without_a_traceback(capsys, monkeypatch):
    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "step", interrupted)
    monkeypatch.setattr(FastDecoder, "step", interrupted)
    with pytest.raises(SystemExit, match="130"):
        main(["The cat sat"])
    assert capsys.readouterr().out == "The cat sat on\n"
    with pytest.raises(SystemExit, match="130"):
        main(["The cat sat", "Anna Stone"])
    assert capsys.readouterr().out == "The cat sat\n\nAnna Stone\n\n"


def test_the_command_says_what_is_wrong(tmp_path, checkpoint, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for arguments, said in (
        (["xyzzy"], "unknown word 'xyzzy'"),
        (["The cat", "--model", str(tmp_path / "nowhere")], "there is no folder"),
        (["The cat", "--model", str(tmp_path)], "has no config.json"),
        (["The cat sat", "--new", "0"], "--new must be at least 1, got 0"),
        (["The cat sat", "--pages", "0"], "--pages must be at least 1, got 0"),
        (["The cat", "The dog", "--pages", "2"], "need 4 blocks of 16; the whole pool has 2"),
        (["The cat sat", "--new", "1022"], "3 tokens and --new 1022 are more than the 1024"),
        (["The cat sat", "--temperature", "-1"], "temperature must be 0 or more, got -1"),
        (["The cat sat", "--top-k", "-1"], "top_k must be 0"),
        (["The cat sat", "--top-p", "0"], "top_p must lie above 0"),
        ([], "name prompts, or --chat"),
        (["The cat sat", "--chat"], "one of them"),
        (["--serve", "--chat"], "one of them"),
        (["--chat"], "the story models cannot chat"),
        (["The cat sat", "--device", "cuda"], "finds no CUDA"),
    ):
        with pytest.raises(SystemExit, match=said):
            main(arguments)
        assert capsys.readouterr().out == ""  # not even the prompt
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"has no tokenizer\.json"):
        main(["The cat", "--model", str(tmp_path)])
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(SystemExit, match="is no tokenizer"):
        main(["The cat", "--model", str(tmp_path)])
    (tmp_path / "tokenizer.json").write_text((checkpoint / "tokenizer.json").read_text())
    with pytest.raises(SystemExit, match="architecture is that of llama"):
        main(["once", "--model", str(tmp_path)])


def test_a_model_that_chats_has_ends_in_two_files(checkpoint, tmp_path):
    """Llama 3 ends a turn with a token that config.json does not name."""
    folder = shutil.copytree(checkpoint, tmp_path / "copy")
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 7]}')
    assert open_model(folder)[1].ends == {1, 7}
    (folder / "generation_config.json").unlink()
    assert open_model(folder)[1].ends == {1}


# --- a terminal, standard input, a conversation --------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_several_texts_grow_side_by_side_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "9")
    screen = Terminal()
    lines = Lines(screen, 2)
    lines.draw(["The cat", "A dog"])
    lines.draw(["The cat sat", "A dog\nran"])
    lines.end(["The cat sat .", "A dog\nran ."])
    back = "\x1b[2A\x1b[J"  # two lines up, and all below is cleared
    assert screen.getvalue() == (
        f"The cat\nA dog\n{back} cat sat\n dog ran\n{back}The cat sat .\n\nA dog\nran .\n"
    )


def test_standard_input_can_be_the_prompt(story, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("The cat sat"))
    main(["-", "--new", "3"])
    prompt = encode("The cat sat")[0].tolist()
    assert capsys.readouterr().out == decode([*prompt, *alone(story, prompt, 3)]) + "\n"


def test_the_same_seed_draws_the_same_text(capsys):
    texts = []
    for seed in ("3", "3", "4"):
        main(["It was a", "--temperature", "1.5", "--seed", seed, "--new", "30"])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


def test_a_conversation_is_written_as_the_models_template_says_and_keeps_its_cache(
    checkpoint, capsys, monkeypatch
):
    said = 2 * ["once upon a time there was a small engine that wrote one token after the other"]
    model, words = open_model(checkpoint)
    theirs = transformers.AutoTokenizer.from_pretrained(checkpoint)
    messages, expected, known = [], [], []
    for text in said:
        messages.append({"role": "user", "content": text})
        prompt = words.encode_chat(messages)
        assert words._chat(messages) == theirs.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        assert prompt == theirs.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
        out = alone(model, prompt, 20)
        out = out[: out.index(1)] if 1 in out else out
        expected.append(words.decode(out))
        shared = [a == b for a, b in zip(known, prompt, strict=False)]
        reused = min([*shared, False].index(False), len(prompt) - 1)
        known = [*prompt, *out[:-1]]  # its last token was never fed
        messages.append({"role": "assistant", "content": expected[-1]})
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(said)))
    main(["--chat", "--model", str(checkpoint), "--new", "20"])
    shown = capsys.readouterr()
    assert shown.out.splitlines() == expected
    assert f"{reused} of {len(prompt)} prompt tokens reused" in shown.err.splitlines()[2]
    assert reused > 0
    with pytest.raises(ValueError, match="the model's chat template: no system"):
        words.encode_chat([{"role": "system", "content": "Be brief."}])
