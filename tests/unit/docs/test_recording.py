"""The moving picture of the README shows the session that the script types, and asks no other host for anything."""

from __future__ import annotations

import re
from html import unescape
from xml.etree import ElementTree

from kit.recording import PICTURE, ROOT, SESSION


def test_the_picture_shows_every_command_of_the_session_in_its_order() -> None:
    shown = re.findall(r'class="(?:typed|remarked)"[^>]*>(?:\$ )?([^<]*)</text>', PICTURE.read_text("utf-8"))
    assert [unescape(line) for line in shown] == list(SESSION)


def test_the_picture_is_small_well_formed_and_by_itself() -> None:
    text = PICTURE.read_text("utf-8")
    ElementTree.fromstring(text)
    assert len(text) < 30_000
    assert re.findall(r"(?:href|src)=|url\(|@import|<script", text) == []


def test_the_files_that_the_session_applies_are_there() -> None:
    named = [word for command in SESSION for word in command.split() if word.startswith("examples/")]
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []
