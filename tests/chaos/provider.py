"""A provider of embeddings with bad days: down, throttling, silent, or answering nonsense.

It remembers which documents it was asked about and which it answered nonsense, so that afterwards every failure
can be held against what really happened.
"""

import random
import re
import threading
import time
from collections import Counter
from typing import Any

from tests.end_to_end.provider import Answer, Provider

DOCUMENT = re.compile(r"chaos-\d+v\d+")  # every generated passage holds the mark of its document
NONSENSE = ("count", "nan", "zeros", "dimensions", "text")


class MoodyProvider(Provider):
    """``mood`` is "well", "down" (503), "throttling" (429), "hanging" (no answer), "garbled" (200, not JSON)."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.mood = "well"
        self.nonsense_left = 0  # requests that are answered with what is no embedding
        self.asked: Counter[str] = Counter()  # requests by document mark, whatever they were answered
        self.duped: set[str] = set()  # marks of the documents that were answered nonsense
        self.waking = threading.Event()
        self._random = random.Random(seed)
        self._counting = threading.Lock()

    def answer(self, request: dict[str, Any]) -> Answer:
        texts: list[str] = request["input"]
        marks = {mark for text in texts for mark in DOCUMENT.findall(text)}
        with self._counting:
            self.asked.update(marks or {"sample"})
            pause, nonsense = self._random.uniform(0.02, 0.25), self._random.choice(NONSENSE)
            fooling = self.mood == "well" and self.nonsense_left > 0
            if fooling:
                self.nonsense_left -= 1
                self.duped |= marks or {"sample"}
        time.sleep(pause)  # a model takes its time, so that a kill finds requests in flight
        match self.mood:
            case "down":
                return Answer(503, {"error": {"message": "down for maintenance"}}, {})
            case "throttling":
                return Answer(429, {"error": {"message": "too many requests"}}, {"Retry-After": "2"})
            case "garbled":
                return Answer(200, "<html>It works!</html>", {"Content-Type": "text/html"})
            case "hanging":
                self.waking.wait(120)
        good = super().answer(request)
        return spoiled(good, nonsense) if fooling else good


def spoiled(answer: Answer, how: str) -> Answer:
    """The same answer, as no embedding model should give it."""
    assert isinstance(answer.body, dict)
    data: list[dict[str, Any]] = answer.body["data"]
    match how:
        case "count":
            data.append(dict(data[0]))
        case "nan":
            data[0]["embedding"][0] = float("nan")
        case "zeros":
            data[0]["embedding"] = [0.0] * len(data[0]["embedding"])
        case "dimensions":
            data[0]["embedding"] = data[0]["embedding"][:-1]
        case "text":
            data[0]["embedding"] = ["many", "numbers"]
    return answer
