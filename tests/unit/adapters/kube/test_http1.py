"""Answers of HTTP/1.1, however their bytes are cut."""

from __future__ import annotations

import gzip
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.adapters.kube.connections import LONGEST_HEAD, Answer, AnswerReader, BadAnswer

BODY = b'{"kind":"Status"}'
PLAIN = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\ncontent-length: 17\r\n\r\n" + BODY
ANSWERS = {
    "a length": (PLAIN, 201, False),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7;x=y\r\n" + BODY[:7] + b"\r\nA\r\n" + BODY[7:]
               + b"\r\n0\r\n\r\n", 200, False),
    "chunks and trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n" + BODY
                            + b"\r\n0\r\nDigest: x\r\n\r\n", 200, False),
    "a promise before": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN, 201, False),
    "a last one": (PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: Close\r\n\r\n"), 201, True),
    "an old server's": (PLAIN.replace(b"1.1", b"1.0"), 201, True),
    "an old server's that stays": (PLAIN.replace(b"1.1 201 Created", b"1.0 201 Created\r\nConnection: keep-alive"), 201, False),
}  # fmt: skip


def read(data: bytes, cuts: list[int]) -> tuple[Answer | None, AnswerReader]:
    """Feed ``data`` cut at these places."""
    reader, edges = AnswerReader(), [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for start, end in pairwise(edges):
        if start < end and (answer := reader.feed(data[start:end])) is not None:
            assert end == len(data), "given before it was whole"
            return answer, reader
    return None, reader


@pytest.mark.parametrize("name", ANSWERS)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=12))
def test_an_answer_is_the_same_however_it_is_cut(name: str, cuts: list[int]) -> None:
    data, status, last = ANSWERS[name]
    answer, _ = read(data, cuts)
    assert answer is not None
    assert (answer.status, answer.body, answer.last) == (status, BODY, last)


def test_one_reader_reads_the_answers_of_a_connection_one_after_the_other() -> None:
    reader = AnswerReader()
    for name in ("a length", "chunks and trailers", "a promise before", "a length"):
        data, status, _ = ANSWERS[name]
        reader.begin()
        assert not reader.begun
        assert reader.feed(data[:20]) is None
        answer = reader.feed(data[20:])
        assert answer is not None
        assert (answer.status, answer.body, answer.field("Link")) == (status, BODY, "")


@given(cut=st.integers(1, 10_000))
def test_an_answer_without_a_length_lasts_until_the_connection_ends(cut: int) -> None:
    nothing, reader = read(b"HTTP/1.1 200 OK\r\n\r\n" + BODY, [cut])
    assert nothing is None
    answer = reader.eof()
    assert (answer.body, answer.last) == (BODY, True)


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body(status: int) -> None:
    answer, _ = read(b"HTTP/1.1 %d X\r\n\r\n" % status, [])
    assert answer is not None
    assert (answer.body, answer.last) == (b"", False)


@pytest.mark.parametrize("name", ["a length", "chunks"])
def test_what_follows_an_answer_unasked_ends_the_connection(name: str) -> None:
    answer, _ = read(ANSWERS[name][0] + b"HTTP/1.1 200 OK\r\n", [])
    assert answer is not None
    assert (answer.body, answer.last) == (BODY, True)


@pytest.mark.parametrize("name", ["a length", "chunks", "chunks and trailers"])
@given(cut=st.integers(1, 10_000))
def test_a_connection_that_ends_in_the_middle_leaves_no_answer(name: str, cut: int) -> None:
    data = ANSWERS[name][0]
    reader = AnswerReader()
    assert reader.feed(data[: 1 + cut % (len(data) - 1)]) is None
    with pytest.raises(BadAnswer, match="in the middle"):
        reader.eof()


@pytest.mark.parametrize("garbage", [
    b"SSH-2.0-OpenSSH_9.6\r\n", b"\x15\x03\x03\x00\x02\x02\x46", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcdef",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * LONGEST_HEAD,
])  # fmt: skip
def test_garbage_is_said_to_be_garbage(garbage: bytes) -> None:
    with pytest.raises(BadAnswer):
        AnswerReader().feed(garbage)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=3))
def test_no_bytes_raise_anything_but_bad_answer(data: bytes, cuts: list[int]) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 200 OK\r\n"):
        try:
            answer, reader = read(start + data, cuts)
            if answer is None:
                reader.eof()
        except BadAnswer:
            pass


def test_a_packed_answer_is_unpacked_and_another_packing_refused() -> None:
    packed = gzip.compress(BODY)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    answer, _ = read(head + packed, [30])
    assert answer is not None
    assert answer.content() == BODY
    for broken in (Answer(200, answer.fields, b"no gzip", False), Answer(200, {b"content-encoding": b"br"}, b"", False)):
        with pytest.raises(BadAnswer):
            broken.content()


def test_fields_are_found_by_any_spelling_and_not_inside_others() -> None:
    answer, _ = read(b"HTTP/1.1 429 X\r\nX-Retry-After: 9\r\nretry-after:  7 \r\nContent-Length: 0\r\n\r\n", [])
    assert answer is not None
    assert (answer.field("Retry-After"), answer.field("Date")) == ("7", "")
