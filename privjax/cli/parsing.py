"""Options that are lists, ranges or pairs: what cannot be read is wrong usage."""

import csv
import math
import re

import typer


def parse_words(text: str, option: str) -> list[str]:
    """The words of a list with commas; quotes keep a comma in a word."""
    words = [word.strip() for word in next(csv.reader([text], skipinitialspace=True), [])]
    if not all(words) or not words:
        raise typer.BadParameter(f"{text!r} is no list such as a,b,c.", param_hint=option)
    return words


def parse_numbers(text: str, option: str, *, least: int = 0) -> list[int]:
    """0,3,5-7 as numbers."""
    numbers = []
    for word in parse_words(text, option):
        found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", word)
        if not found or int(found[1]) < least:
            raise typer.BadParameter(f"{word!r} is no whole number from {least} up.", param_hint=option)
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise typer.BadParameter(f"{word!r} runs backwards: write {last}-{first}.", param_hint=option)
        numbers += range(first, last + 1)
    return numbers


def parse_weights(text: str) -> list[float]:
    """0,1,2^4 or 2^-4:2^4:9."""
    try:
        if ":" in text:
            low, high, count = text.split(":")
            first, steps = _number(low), int(count) - 1
            if steps < 1:
                raise ValueError
            step = math.log(_number(high) / first) / steps
            # Twelve digits: powers of two stay whole where the logarithm rounds.
            weights = [float(f"{first * math.exp(i * step):.12g}") for i in range(steps + 1)]
        else:
            weights = [_number(word) for word in text.split(",")]
    except (ValueError, ArithmeticError):
        raise typer.BadParameter(
            f"{text!r} is neither 0,1,4 nor 2^-4:2^4:9.", param_hint="--weights"
        ) from None
    if any(not math.isfinite(weight) or weight < 0 for weight in weights):
        raise typer.BadParameter("they must be finite and not negative.", param_hint="--weights")
    return weights


def _number(word: str) -> float:
    base, _, power = word.partition("^")
    return math.pow(float(base), float(power) if power else 1.0)


def parse_kinds(pairs: list[str]) -> dict[str, str]:
    """column=category pairs as a dict."""
    kinds = {}
    for pair in pairs:
        name, equals, kind = pair.rpartition("=")
        if not equals or kind not in ("category", "continuous"):
            raise typer.BadParameter(
                f"{pair!r} is neither column=category nor column=continuous.", param_hint="--kinds"
            )
        kinds[name] = kind
    return kinds


def parse_image(text: str) -> tuple[int, ...]:
    """32x32x1 as (height, width, channels)."""
    words = text.split("x")
    if len(words) != 3 or not all(word.isdecimal() and int(word) for word in words):
        raise typer.BadParameter(
            f"{text!r} is not height x width x channels, as in 32x32x1.", param_hint="--image"
        )
    return tuple(int(word) for word in words)
