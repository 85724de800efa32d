"""The story world: a small grammar whose stories can only be told by remembering.

    story = tell(seed=7)
    print(story.text)

A few people visit a house by the sea. Each brings a thing and puts it somewhere; later someone asks
where it is, and in the end all go home. Names, things and places are drawn anew for every story, so
a surname, or the place of a key, cannot be learnt by heart: it must be read from what was said
before. `Story.questions` lists those words. A model that has lost its old keys and values says a
wrong name, and everyone can see it.

Two rules make a text easy to test: a first name is always followed by the surname, and "Where is
the red key ?" is answered by "In the" and the place.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

WOMEN = (
    "Mia", "Ada", "Amina", "Anna", "Ella", "Ines", "Lena", "Nora", "Priya", "Rosa", "Yuki", "Zoe",
)  # fmt: skip
MEN = (
    "Tom", "Amir", "Ben", "Finn", "Hugo", "Jonas", "Kenji", "Leo", "Omar", "Otto", "Ravi", "Sam",
)  # fmt: skip
SURNAMES = (
    "Stone", "Baker", "Bell", "Brook", "Cook", "Dale", "Ford", "Fox", "Frost", "Hart", "Hill",
    "Lake", "Lane", "Marsh", "Miller", "Moss", "Park", "Reed", "Rivers", "Snow", "Winter", "Wolf",
    "Wood", "Young",
)  # fmt: skip
COLOURS = ("red", "black", "blue", "brown", "golden", "green", "silver", "white", "yellow")
THINGS = (
    "key", "ball", "bell", "book", "coin", "drum", "hat", "kite", "lamp", "letter", "map", "pen",
    "ring", "scarf", "shell", "spoon",
)  # fmt: skip
PLACES = (
    "box", "attic", "bag", "barn", "basket", "boat", "bowl", "cart", "cellar", "chest", "cupboard",
    "drawer", "garden", "jar", "oven", "shed",
)  # fmt: skip
PRONOUNS = ("She", "she", "He", "he")

# The cat sentence is said twice as often as any other: it is the course's favourite prompt.
OPENINGS = (
    "The cat sat on the mat .",
    "The cat sat on the mat .",
    "The dog slept by the door .",
    "The bird sang in the tree .",
    "The sun rose over the hill .",
    "The rain fell on the roof .",
    "The wind blew from the sea .",
)
SETTINGS = (
    "It was a cold winter day in the house by the sea .",
    "It was a grey autumn day in the house by the sea .",
    "It was a bright spring day in the house by the sea .",
    "It was a quiet summer day in the house by the sea .",
)
ARRIVALS = (
    "{a} came in from the rain with a {x} .",
    "{a} came up the path with a {x} .",
    "Then {a} opened the door and showed everyone a {x} .",
    "Next came {a} , who had found a {x} by the river .",
    "Soon {a} knocked and came in with a {x} .",
)
PUTS = (
    "{a.She} put the {x} in the {x.place} .",
    "{a.She} put the {x} in the {x.place} and sat down by the fire .",
    "{a.She} smiled and put the {x} in the {x.place} .",
    "{a.She} was tired , so {a.she} put the {x} in the {x.place} and sat down .",
    "{a} put the {x} in the {x.place} .",
)
PAUSES = (
    "The cat sat on the mat .",
    "The fire burned low .",
    "The kettle sang on the stove .",
    "The clock ticked on the wall .",
    "The bread was warm and the tea was hot .",
    "Outside , a horse walked down the road .",
    "Nobody was in a hurry .",
    "Somewhere a window closed , and then all was still .",
)
MEETINGS = (
    "{a} made tea for {b} .",
    "{a} cut the bread , and {b} poured the milk .",
    "{a} told {b} a long story about the sea .",
    "{a} sang an old song , and {b} sang too .",
    "{a} laughed at a joke , and {b} laughed even more .",
    "{a} and {b} played cards until the candle was short .",
)
EVENINGS = (
    "In the evening the wind grew strong .",
    "It grew dark , and the moon rose over the hill .",
    "When the clock struck ten , it was time to go home .",
)
ASKINGS = (
    "Where is the {x} ? asked {b} . In the {x.place} , said {a} .",
    "Where is the {x} ? In the {x.place} , said {a} .",
    "{b} looked around . Where is the {x} ? In the {x.place} .",
    "Where is the {x} ? In the {x.place} , and {b} went to look .",
    "And where is the {x} ? In the {x.place} , {a} said at once .",
)
FAREWELLS = (
    "Good night , {a} .",
    "Good night , {a} , and come again soon .",
    "{a} went home under the stars .",
    "{a} took the {x} from the {x.place} and went home .",
    "Sleep well , {a} .",
)
ENDINGS = (
    "Then the house was quiet again .",
    "And so the day came to an end .",
    "Only the cat was left , and the cat was asleep .",
)

MIN_WORDS, MAX_WORDS = 150, 255
"""Of a story; with <end> it fits 256 tokens."""


@dataclass(frozen=True)
class Question:
    """A word of a story that can only be recalled from what was said before.

    Attributes:
        answer: its index in the story's words.
        said: index where the same fact was last said.
        kind: what is recalled.
    """

    answer: int
    said: int
    kind: Literal["surname", "place"]

    @property
    def distance(self) -> int:
        """Count how many tokens back the fact was last said."""
        return self.answer - self.said


@dataclass(frozen=True)
class Story:
    """The words of a story, punctuation among them, and the words that must be recalled."""

    words: tuple[str, ...]
    questions: tuple[Question, ...]

    @property
    def text(self) -> str:
        """Join the words by spaces."""
        return " ".join(self.words)


@dataclass(frozen=True)
class _Person:
    first: str
    surname: str

    def pronoun(self, form: str) -> str:
        """Give "she" or "he", with a capital where the slot's form, "She" or "she", has one."""
        pronoun = "she" if self.first in WOMEN else "he"
        return pronoun.capitalize() if form[0].isupper() else pronoun


@dataclass(frozen=True)
class _Thing:
    colour: str
    noun: str
    place: str


def tell(seed: int) -> Story:
    """Tell the story of a seed: 150 to 255 words, always the same."""
    draw = random.Random(seed)
    while True:
        story = _tell_once(draw)
        if MIN_WORDS <= len(story.words) <= MAX_WORDS:
            return story


def vocabulary() -> tuple[str, ...]:
    """List every word and punctuation mark that a story can hold, sorted."""
    drawn = (*WOMEN, *MEN, *SURNAMES, *COLOURS, *THINGS, *PLACES, *PRONOUNS)
    parts = (OPENINGS, SETTINGS, ARRIVALS, PUTS, PAUSES, MEETINGS, EVENINGS, ASKINGS, FAREWELLS)
    sentences = [sentence for part in (*parts, ENDINGS) for sentence in part]
    said = {word for sentence in sentences for word in sentence.split() if word[0] != "{"}
    return tuple(sorted(said.union(drawn)))


def _tell_once(draw: random.Random) -> Story:
    """Tell a story of any length."""
    people, things = _cast(draw, draw.choice((3, 4, 4, 5)))
    visits = list(zip(people, things, strict=True))
    shuffled = draw.sample(visits, len(visits))
    early, late = shuffled[: draw.randint(1, 2)], shuffled[-2:]  # asked for by day, in the evening
    story = _Teller(draw, people)

    story.say(OPENINGS)
    story.say(SETTINGS)
    for person, thing in visits:
        story.say(ARRIVALS, a=person, x=thing)
        story.say(PUTS, a=person, x=thing)
        if draw.random() < 0.3:
            story.say(PAUSES)
    for person, thing in early:
        story.meet()
        story.say(ASKINGS, a=person, b=story.someone_but(person), x=thing)
    story.say(PAUSES)
    story.say(EVENINGS)
    for person, thing in late:
        story.say(ASKINGS, a=person, b=story.someone_but(person), x=thing)
    for person, thing in draw.sample(visits, len(visits)):
        story.say(FAREWELLS, a=person, x=thing)
    story.say(ENDINGS)
    return Story(tuple(story.words), tuple(story.questions))


def _cast(draw: random.Random, n: int) -> tuple[list[_Person], list[_Thing]]:
    """Draw n people and their things, no name, thing or place twice."""
    first, surnames = draw.sample(WOMEN + MEN, n), draw.sample(SURNAMES, n)
    looks = zip(draw.sample(COLOURS, n), draw.sample(THINGS, n), strict=True)
    people = [_Person(*names) for names in zip(first, surnames, strict=True)]
    places = draw.sample(PLACES, n)
    return people, [_Thing(*look, place) for look, place in zip(looks, places, strict=True)]


class _Teller:
    """Collects the words of a story, and a question for each fact that was said before."""

    def __init__(self, draw: random.Random, people: list[_Person]) -> None:
        self.draw, self.people = draw, people
        self.words: list[str] = []
        self.questions: list[Question] = []
        self.said: dict[_Person | _Thing, int] = {}  # index of each one's last mention
        self.unused: dict[tuple[str, ...], list[str]] = {}  # sentences left before any comes again

    def say(self, sentences: tuple[str, ...], **cast: _Person | _Thing) -> None:
        """Add one of the sentences, its slots filled from the cast."""
        unused = self.unused.setdefault(sentences, [])
        if not unused:
            unused += self.draw.sample(sentences, len(sentences))
        for word in unused.pop().split():
            if word[0] == "{":
                name, _, form = word.strip("{}").partition(".")
                self._name(cast[name], form)
            else:
                self.words.append(word)

    def meet(self) -> None:
        """Add a sentence in which two people meet."""
        a, b = self.draw.sample(self.people, 2)
        self.say(MEETINGS, a=a, b=b)

    def someone_but(self, person: _Person) -> _Person:
        """Draw another person."""
        return self.draw.choice([other for other in self.people if other != person])

    def _name(self, who: _Person | _Thing, form: str) -> None:
        """Add the words of a slot: a thing or its place, a person's names or a pronoun."""
        if isinstance(who, _Thing):
            if form == "place":
                self._state(who, who.place, "place")
            else:
                self.words += [who.colour, who.noun]
        elif form:
            self.words.append(who.pronoun(form))
        else:
            self.words.append(who.first)
            self._state(who, who.surname, "surname")

    def _state(self, about: _Person | _Thing, fact: str, kind: Literal["surname", "place"]) -> None:
        """Add a fact's word, with a question if the fact was said before."""
        if about in self.said:
            self.questions.append(Question(len(self.words), self.said[about], kind))
        self.said[about] = len(self.words)
        self.words.append(fact)
