"""Who may see the page."""

from __future__ import annotations

import pytest

from pumice.web.guard import HEADERS, Guard, host_of

GUARD = Guard("secret", frozenset({"localhost"}))


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "localhost", "[::1]:80", "127.9.9.9", "LOCALHOST:1", "::1"])
def test_names_of_this_machine_are_answered(host: str) -> None:
    assert GUARD.answers_to(host)


@pytest.mark.parametrize("host", [
    "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1", "", "[", "localhost.evil", "0.0.0.0",
    "127.0.0.1@evil.example",
])  # fmt: skip
def test_a_name_that_another_gave_this_machine_is_not_answered(host: str) -> None:
    assert not GUARD.answers_to(host)


def test_only_the_token_and_only_the_cookie_open_the_page() -> None:
    assert GUARD.knows("secret")
    assert GUARD.knows_cookie(GUARD.cookie)
    assert GUARD.knows_header("Bearer secret")
    assert not any(map(GUARD.knows, ("", "secre", "secret ", "Secret", "secret\n", "sécret", "x" * 10_000, GUARD.cookie)))
    assert not any(map(GUARD.knows_cookie, ("", "secret", GUARD.cookie[:-1], GUARD.cookie.upper(), "é")))
    assert not any(map(GUARD.knows_header, ("", "secret", "Basic secret", "Bearer", "Bearer secre", "Bearer secret x")))


def test_the_cookie_does_not_tell_the_token_and_is_another_one_for_another_token() -> None:
    assert "secret" not in GUARD.cookie
    assert Guard("other").cookie != GUARD.cookie


def test_no_script_and_no_style_comes_from_within_a_page_or_from_elsewhere() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


def test_a_host_is_read_without_port_and_brackets() -> None:
    assert [host_of(text) for text in ("A.b:1", "[::1]:2", "::1", " x ")] == ["a.b", "::1", "::1", "x"]
