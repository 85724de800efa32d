"""The engine's server, with the official client library: texts, streams, errors, and many at once."""

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
import torch
import uvicorn
from patience import PATIENCE

from course.engine import Engine
from course.minigpt.kv_cache import generate_cached
from course.model import MiniGPT
from course.published.texts import StoryWords
from course.serving.server import make_app
from course.serving.service import Service
from course.widgets.server import page_of
from course.world.evaluation import held_out
from course.world.tokenizer import decode, encode
from lessons import ROOT

GREEDY = {"temperature": 0.0}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def served(engine: Engine, **limits: int) -> Iterator[str]:
    """Serve the story model from a thread of this process; give its address."""
    port = free_port()
    app = make_app(engine, StoryWords(), "story", **limits)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def story() -> MiniGPT:
    return MiniGPT.from_weights("story")


@pytest.fixture
def engine(story) -> Engine:
    return Engine(story)


@pytest.fixture
def url(engine) -> Iterator[str]:
    with served(engine) as url:
        yield url


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)


def ask(client: openai.OpenAI, text: str, **settings):
    said = [{"role": "user", "content": text}]
    return client.chat.completions.create(model="story", messages=said, **{**GREEDY, **settings})


def expected(story: MiniGPT, text: str, n_new: int) -> str:
    """What the model writes alone, up to the token that ends a story."""
    prompt = encode(text)[0]
    out = generate_cached(story, prompt[None], n_new)[0, len(prompt) :].tolist()
    ends = [n for n, token in enumerate(out) if token in StoryWords.ends]
    return decode(out[: ends[0]] if ends else out)


def state_of(url: str) -> dict:
    with urllib.request.urlopen(f"{url}/state") as answer:
        return json.load(answer)


def metrics_of(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = re.findall(r"^(second_token_\w+) (\S+)$", answer.read().decode(), re.MULTILINE)
    return {name: float(value) for name, value in lines}


# --- one client ----------------------------------------------------------------------------------


def test_an_answer_whole_and_piece_by_piece(story, url):
    client = client_of(url)
    assert [model.id for model in client.models.list()] == ["story"]
    whole = ask(client, "The cat sat", max_tokens=20)
    text = expected(story, "The cat sat", 20)
    assert whole.choices[0].message.content == text
    assert whole.choices[0].finish_reason == "length"
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (3, 20)
    pieces = list(
        ask(
            client,
            "The cat sat",
            max_tokens=20,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == text
    assert sum(bool(p.choices and p.choices[0].delta.content) for p in pieces) == 20
    assert pieces[-2].choices[0].finish_reason == "length"
    assert pieces[-1].usage == whole.usage


def test_an_answer_ends_at_the_end_of_a_story_and_known_prompts_are_counted(story, url):
    client, text = client_of(url), held_out(1)[0].text.removesuffix("<end>").strip()
    beginning = " ".join(text.split()[:-8])
    answers = [ask(client, beginning, max_tokens=200) for _ in range(2)]
    assert answers[0].choices[0].finish_reason == "stop"
    assert answers[0].choices[0].message.content == expected(story, beginning, 200)
    assert answers[0].choices == answers[1].choices
    cached = answers[1].usage.prompt_tokens_details.cached_tokens
    assert cached == (len(beginning.split()) - 1) // 16 * 16 > 0


def test_drawn_answers_follow_their_seed(url):
    client = client_of(url)
    texts = [
        ask(client, "It was a", max_tokens=30, temperature=1.5, seed=seed)
        .choices[0]
        .message.content
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"model": "gpt-5"}, openai.NotFoundError, "'gpt-5' is not here; this server has 'story'"),
        ({"messages": []}, openai.BadRequestError, "at least one message"),
        (
            {"messages": [{"role": "cook", "content": "x"}]},
            openai.BadRequestError,
            "role is one of",
        ),
        ({"messages": [{"role": "user", "content": "xyzzy"}]}, openai.BadRequestError, "'xyzzy'"),
        ({"max_tokens": 0}, openai.BadRequestError, "at least 1, got 0"),
        ({"max_tokens": 1023}, openai.BadRequestError, "more than the 1024 that the model reads"),
        ({"max_tokens": "many"}, openai.BadRequestError, "max_tokens must be a number"),
        ({"temperature": -1}, openai.BadRequestError, "temperature must be 0 or more"),
        ({"top_p": 0}, openai.BadRequestError, "top_p must lie above 0"),
        ({"n": 2}, openai.BadRequestError, "n is not supported, got 2"),
        ({"stop": ["."]}, openai.BadRequestError, "stop is not supported"),
        ({"seed": 10**30}, openai.BadRequestError, "seed is out of range"),
    ],
    ids=str,
)
def test_what_cannot_be_answered_gets_the_protocols_error(url, settings, kind, words):
    asked = {"model": "story", "messages": [{"role": "user", "content": "The cat"}], **settings}
    with pytest.raises(kind) as caught:
        client_of(url).chat.completions.create(**asked)
    assert words in caught.value.body["message"]
    assert caught.value.body["type"] == "invalid_request_error"


def test_what_is_no_request_gets_an_error_and_nobody_else_notices(story, url):
    complete = f"{url}/v1/chat/completions"
    for body, status in ((b"{", 400), (b"[]", 400), (b"\xff", 400), (b'"' + b"x" * 2**21, 413)):
        answer = httpx.post(complete, content=body)
        assert answer.status_code == status
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert httpx.get(complete).status_code == 405
    assert "there is no GET /v2" in httpx.get(f"{url}/v2").json()["error"]["message"]
    assert ask(client_of(url), "The cat", max_tokens=5).choices[0].message.content == expected(
        story, "The cat", 5
    )


# --- many clients --------------------------------------------------------------------------------


def test_a_call_that_was_cancelled_is_not_made_and_the_engine_goes_on(story, engine, url):
    """As where a client leaves while its request is put into the queue."""
    service = Service(engine)
    cancelled = service.between_passes(lambda: pytest.fail("nobody waits for it"))
    assert cancelled.cancel()
    with service:
        assert service.between_passes(lambda: 7).result(30) == 7


def test_32_clients_at_once_get_their_texts_and_nobody_starves(story, engine, url, monkeypatch):
    texts = [" ".join(one.text.split()[: 4 + n]) for n, one in enumerate(held_out(32))]
    begun, step = [], Engine.step

    def note(engine: Engine) -> list[tuple[int, int]]:
        written = step(engine)
        begun.extend(id for id, _ in written if id not in begun)
        return written

    monkeypatch.setattr(Engine, "step", note)

    def talk(n: int) -> str:
        written = []
        for piece in ask(client_of(url), texts[n], max_tokens=10 + n, stream=True):
            if piece.choices and piece.choices[0].delta.content:
                written.append(piece.choices[0].delta.content)
        return "".join(written)

    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(talk, range(32)))
    assert answers == [expected(story, text, 10 + n) for n, text in enumerate(texts)]
    assert sorted(begun) == list(range(32))  # by id, in the order in which they came
    assert all(abs(place - id) <= engine.max_running for place, id in enumerate(begun))
    values = metrics_of(url)
    assert values["second_token_ttft_seconds_count"] == 32
    assert values["second_token_tokens_total"] == values["second_token_itl_seconds_count"] + 32
    assert values["second_token_running"] == values["second_token_waiting"] == 0
    assert values["second_token_pages"] == engine.memory.pool.n_blocks
    assert values["second_token_pages_used"] == values["second_token_pages_known"] <= 256
    assert 0 <= values["second_token_goodput"] <= 32


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_pages(story, engine, url, stream):
    """While another one goes on."""

    async def leave() -> None:
        body = {"model": "story", "messages": [{"role": "user", "content": "The cat sat"}]}
        body |= {"max_tokens": 1000, "stream": stream, **GREEDY}
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            asking = asyncio.create_task(client.post(f"{url}/v1/chat/completions", json=body))
            while not any(  # this one, of three words, has begun
                one["prompt"] == 3 and one["written"] > 3
                for one in (await asyncio.to_thread(state_of, url))["running"]
            ):
                await asyncio.sleep(0.01)
            asking.cancel()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(ask, client_of(url), "Anna Stone came in", max_tokens=900)
        asyncio.run(leave())
        written = 0
        while left := [one for one in state_of(url)["running"] if one["prompt"] == 3]:
            written = left[0]["written"]
            time.sleep(0.02)
        assert written < 900  # it was ended long before its 1,000 tokens
        assert other.result().choices[0].message.content == expected(
            story, "Anna Stone came in", 900
        )
    memory = engine.memory
    assert len(memory.pool.allocator) + len(memory.known) == memory.pool.n_blocks


def test_more_than_may_wait_are_sent_away(story):
    with served(Engine(story, max_running=1), max_waiting=2) as url, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, client_of(url), "The cat", max_tokens=300) for _ in range(8)]
        failed = [one.exception() for one in asked]
    refused = [error for error in failed if error]
    assert 0 < len(refused) <= 6
    assert all(isinstance(error, openai.InternalServerError) for error in refused)
    assert all(error.body["code"] == "overloaded" for error in refused)
    assert {one.result().choices[0].message.content for one in asked if not one.exception()} == {
        expected(story, "The cat", 300)
    }


def test_a_mistake_in_a_function_reaches_its_clients_and_the_server_goes_on(
    story, engine, url, monkeypatch
):
    step, client = Engine.step, client_of(url)

    def fail(engine: Engine):
        raise ZeroDivisionError("in a student's function")

    monkeypatch.setattr(Engine, "step", fail)
    with pytest.raises(
        openai.InternalServerError, match="ZeroDivisionError: in a student's function"
    ):
        ask(client, "The cat", max_tokens=5)
    with pytest.raises(openai.APIError, match="ZeroDivisionError"):
        list(ask(client, "The cat", max_tokens=5, stream=True))
    monkeypatch.setattr(Engine, "step", step)
    answer = ask(client, "The cat", max_tokens=5).choices[0].message.content
    assert answer == expected(story, "The cat", 5)
    assert (
        len(engine.memory.pool.allocator) + len(engine.memory.known) == engine.memory.pool.n_blocks
    )


# --- the command, and who looks on ---------------------------------------------------------------


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted(story):
    port = free_port()
    command = [sys.executable, "-m", "course.engine", "--serve", "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert f"story at http://127.0.0.1:{port}/v1" in process.stdout.readline()
        client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=8
        )
        answer = ask(client, "The cat sat", max_tokens=8).choices[0].message.content
        assert answer == expected(story, "The cat sat", 8)
        second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert (second.returncode, second.stdout) == (1, "")
        assert re.fullmatch(rf"--host 127.0.0.1 --port {port}: .*in use\n", second.stderr)
    finally:
        process.send_signal(2)
        assert process.wait(30) in (0, 130)


def test_who_looks_on_sees_pages_and_the_batch(engine):
    prompts = [encode(" ".join(one.text.split()[:40]))[0].tolist() for one in held_out(2)]
    shared = prompts[0][:32]
    engine.add([engine.conversation([*shared, *prompts[1][:4]], 2)])
    while engine.queue or engine.running:
        engine.step()
    conversations = [engine.conversation([*shared, *prompt[:9]], 20) for prompt in prompts]
    engine.add(conversations)
    engine.step()
    with served(engine) as url:
        page = page_of(state_of(url))
    assert re.search(
        r"<p>\d+ of 256 pages are used; 2 conversations share each pass, 0 wait\.", page
    )
    assert page.count("<rect") == 256
    assert page.count('fill="#000000"') == 2  # the pages of the beginning that both share
    assert page.count("<tr>") == 3
    assert "41 of 41 tokens" in page
    nothing = {"n_blocks": 8, "known": [], "waiting": 0, "running": []}
    assert page_of(nothing).count('fill="#FFFFFF"') == 8


def test_a_conversation_that_is_cut_ends_with_its_next_token(story):
    engine = Engine(story, budget=16)
    long = engine.conversation(torch.arange(3, 203).tolist(), 50)
    short = engine.conversation([5, 6, 7], 12)
    waiting = engine.conversation([8, 9], 12)
    engine.add([long, short])
    engine.step()
    engine.add([waiting])
    engine.leave(waiting)
    engine.leave(long)
    passes = 0
    while engine.queue or engine.running:
        engine.step()
        passes += 1
    assert len(long.out) == 1
    assert long.fed < 40
    assert waiting.out == []
    assert short.out == generate_cached(story, torch.tensor([[5, 6, 7]]), 12)[0, 3:].tolist()
    assert passes <= 13
