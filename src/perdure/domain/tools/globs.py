"""Matches paths and argument vectors against the globs of rules.

`*` stands for any characters within one part of a path, `**` for any characters, and `?` for one
character of a part. The time is at most the product of both lengths.
"""


def is_match(glob: str, text: str) -> bool:
    """Tell whether the whole text matches the glob."""
    signs = _signs(glob)
    reached = {0}  # how many signs the text read so far may have used up
    reached = _skip_stars(signs, reached)
    for char in text:
        reached = _skip_stars(signs, _step(signs, reached, char))
        if not reached:
            return False
    return len(signs) in reached


def _signs(glob: str) -> list[str]:
    """Return the parts of a glob: `**`, `*`, `?`, and single characters."""
    signs: list[str] = []
    for char in glob:
        if char == "*" and signs and signs[-1] in ("*", "**"):
            signs[-1] = "**"
        else:
            signs.append(char)
    return signs


def _step(signs: list[str], reached: set[int], char: str) -> set[int]:
    """Return the places in the glob that one more character of the text leads to."""
    after: set[int] = set()
    for place in reached:
        sign = signs[place] if place < len(signs) else ""
        is_star = sign == "**" or (sign == "*" and char != "/")
        if is_star:
            after.add(place)
        elif sign == char or (sign == "?" and char != "/"):
            after.add(place + 1)
    return after


def _skip_stars(signs: list[str], reached: set[int]) -> set[int]:
    """Add the places that are reached because a star may stand for nothing."""
    found = set(reached)
    for place in sorted(reached):
        step = place
        while step < len(signs) and signs[step] in ("*", "**"):
            step += 1
            found.add(step)
    return found
