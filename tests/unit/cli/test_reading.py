"""The parsing of command lines."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.cli import flags
from pumice.cli.reading import HelpWanted, Mistake, run
from pumice.model.errors import BadInput


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


GOT: dict[str, Any] = {}


def command(
    context: flags.Context,
    what: Annotated[str, flags.Argument(metavar="WHAT")],
    more: Annotated[list[Path] | None, flags.Argument()] = None,
    name: Annotated[str, flags.Option("-n", "--name", envvar=["FIRST", "SECOND"])] = "nobody",
    count: Annotated[int, flags.Option(min=1, max=9)] = 3,
    share: Annotated[float | None, flags.Option()] = None,
    colour: Annotated[Colour, flags.Option("-c", "--colour")] = Colour.RED,
    label: Annotated[list[str] | None, flags.Option("-l", "--label", envvar="LABELS")] = None,
    quick: Annotated[bool, flags.Option("-q", "--quick")] = False,
    events: Annotated[bool, flags.Option(envvar="EVENTS")] = True,
    lost: Annotated[bool | None, flags.Option("--lost/--found")] = None,
) -> None:
    """Do something. And more.

    A second paragraph.
    """
    GOT.clear()
    GOT.update(locals())


def app_of(**how: Any) -> flags.App:
    app = flags.App()
    app.command(**how)(command)
    return app


def got(*words: str, environment: dict[str, str] | None = None, **how: Any) -> dict[str, Any]:
    run(app_of(**how).build(), words, environment or {})
    return dict(GOT)


@pytest.mark.parametrize(("words", "environment", "expected"), [
    (["w"], {}, {"what": "w", "more": None, "name": "nobody", "count": 3, "share": None, "colour": Colour.RED, "label": None,
                 "quick": False, "events": True, "lost": None}),
    (["--name", "x", "w"], {}, {"name": "x", "what": "w"}),
    (["w", "--name=x=y"], {}, {"name": "x=y"}),
    (["w", "-nx"], {}, {"name": "x"}),
    (["w", "-n", "-x"], {}, {"name": "-x"}),
    (["w", "-qnx"], {}, {"quick": True, "name": "x"}),
    (["w", "--name="], {}, {"name": ""}),
    (["w", "-n", "a", "-n", "b"], {}, {"name": "b"}),
    (["w", "-l", "a", "--label=b"], {}, {"label": ["a", "b"]}),
    (["w", "a", "b"], {}, {"what": "w", "more": [Path("a"), Path("b")]}),
    (["--", "-q", "--name"], {}, {"what": "-q", "more": [Path("--name")], "quick": False}),
    (["-"], {}, {"what": "-"}),
    (["w", "-c", "blue", "--count", "9", "--share", "0.5"], {}, {"colour": Colour.BLUE, "count": 9, "share": 0.5}),
    (["w", "--no-events", "--found"], {}, {"events": False, "lost": False}),
    (["w", "--no-events", "--events", "--lost"], {}, {"events": True, "lost": True}),
    (["w"], {"SECOND": "two"}, {"name": "two"}),
    (["w"], {"FIRST": "", "SECOND": "two"}, {"name": "two"}),
    (["w", "-n", "x"], {"FIRST": "one"}, {"name": "x"}),
    (["w"], {"LABELS": "a b"}, {"label": ["a", "b"]}),
    (["w"], {"EVENTS": "False"}, {"events": False}),
], ids=lambda value: " ".join(value) if isinstance(value, list) else None)  # fmt: skip
def test_a_command_gets_what_was_meant(words: list[str], environment: dict[str, str], expected: dict[str, Any]) -> None:
    found = got(*words, environment=environment)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(("words", "environment", "said"), [
    ([], {}, "missing argument 'WHAT'"), (["w", "--nam", "x"], {}, "no such option: --nam; did you mean --name?"),
    (["w", "-x"], {}, "no such option: -x"), (["w", "--name"], {}, "option '--name' requires an argument"),
    (["w", "--quick=yes"], {}, "option '--quick' does not take a value"),
    (["w", "-c", "green"], {}, "invalid value for '-c' / '--colour': 'green' is not one of 'red', 'blue'"),
    (["w", "--count", "ten"], {}, "invalid value for '--count': 'ten' is not a valid integer"),
    (["w", "--count", "10"], {}, "invalid value for '--count': 10 is not in the range 1<=x<=9"),
    (["w", "--share", "nan%"], {}, "invalid value for '--share': 'nan%' is not a valid number"),
    (["w"], {"EVENTS": "perhaps"}, "invalid value for '--events': 'perhaps' is not a valid boolean"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else None)  # fmt: skip
def test_a_mistake_is_named_as_it_was_written(words: list[str], environment: dict[str, str], said: str) -> None:
    with pytest.raises(Mistake) as mistake:
        got(*words, environment=environment)
    assert str(mistake.value) == said


def _file(context: flags.Context, value: str) -> str:
    context.defaults |= {"name": "filed", "count": "5"}
    return value


def filed(
    context: flags.Context,
    name: Annotated[str, flags.Option(envvar="NAME")] = "default",
    count: Annotated[int, flags.Option()] = 1,
    file: Annotated[str, flags.Option(first=_file)] = "",
) -> None:
    GOT.clear()
    GOT.update(name=name, count=count, given=context.given, rest=context.rest)


def test_what_a_file_says_counts_after_variables_and_before_defaults_and_the_command_knows_what_was_typed() -> None:
    app = flags.App()
    app.command()(filed)
    run(app.build(), ["--count", "7"], {})
    assert GOT == {"name": "filed", "count": 7, "given": {"count": 7}, "rest": []}
    run(app.build(), [], {"NAME": "said"})
    assert GOT == {"name": "said", "count": 5, "given": {}, "rest": []}


def test_a_lenient_command_hands_on_what_it_does_not_know() -> None:
    app = flags.App()
    app.command(lenient=True)(filed)
    run(app.build(), ["--own", "3", "--count", "7", "more"], {})
    assert (GOT["count"], GOT["rest"]) == (7, ["--own", "3", "more"])


def _even(text: str) -> int:
    if not text.isdigit() or int(text) % 2:
        raise BadInput(f"an even number, not {text!r}")
    return int(text)


def program(
    context: flags.Context,
    bare: Annotated[str | None, flags.Option("-b", "--bare", bare=True)] = None,
    even: Annotated[int, flags.Option(read=_even)] = 0,
) -> None:
    GOT.clear()
    GOT.update(bare=bare, even=even, rest=context.rest)


@pytest.mark.parametrize(("words", "expected"), [
    ([], (None, 0, [])), (["--even", "4", "ls", "--even", "3", "--", "-l"], (None, 4, ["ls", "--even", "3", "--", "-l"])),
    (["--", "ls", "--", "-h"], (None, 0, ["ls", "--", "-h"])), (["-b", "--even=2", "ls"], ("", 2, ["ls"])),
    (["--bare", "value", "ls"], ("value", 0, ["ls"])), (["--bare"], ("", 0, [])), (["--bare=", "ls"], ("", 0, ["ls"])),
    (["--bare", "--", "ls"], ("", 0, ["ls"])),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")  # fmt: skip
def test_the_first_word_begins_a_command_line_of_somebody_else(words: list[str], expected: tuple[Any, ...]) -> None:
    app = flags.App()
    app.command(program=True)(program)
    run(app.build(), words, {})
    assert (GOT["bare"], GOT["even"], GOT["rest"]) == expected
    with pytest.raises(Mistake, match="invalid value for '--even': an even number, not '3'"):
        run(app.build(), ["--even", "3", *words], {})


def test_help_is_asked_for_anywhere_before_the_words_of_others() -> None:
    group = flags.App(group=True)
    group.command("one")(command)
    for words, path, unasked in (([], [], True), (["-h"], [], False), (["one", "w", "--help"], ["one"], False)):
        with pytest.raises(HelpWanted) as wanted:
            run(group.build(), words, {})
        assert (list(wanted.value.words), wanted.value.unasked) == (path, unasked)
    run(group.build(), ["one", "--", "--help"], {})
    assert GOT["what"] == "--help"
    with pytest.raises(Mistake, match="no such command 'on'; did you mean 'one'"):
        run(group.build(), ["on"], {})


def test_the_summary_is_the_first_sentence() -> None:
    assert app_of().build().summary == "Do something."


TRIED = ["--", "-", "-q", "--name", "-n", "--count=3", "-l", "--no-events", "-c", "red", "--lost", "-qn", "--=", "-=", "--name="]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=6), st.sampled_from(TRIED)), max_size=6))
def test_whatever_is_written_is_read_or_is_a_mistake_of_one_line(words: list[str]) -> None:
    GOT.clear()
    try:
        got(*words)
    except (HelpWanted, Mistake) as ended:
        said = "" if isinstance(ended, HelpWanted) else str(ended)
    else:
        said = ""
    assert (GOT == {}) or any(GOT["what"] in word for word in words)
    assert "\n" not in said
