"""The pictures of the concepts: ``python -m kit.pictures`` draws them into ``docs/assets/pictures``, in English and in Chinese.

A picture is a list of boxes, arrows and words on a grid of 10 points. Its words stand beside it in both languages.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

HOME = Path(__file__).parents[1] / "docs" / "assets" / "pictures"
PLAIN, BLUE, ORANGE, GREEN, GREY = "#ffffff", "#cfe3f7", "#fbdcbc", "#d4e8cb", "#e8e8e8"
Say = Callable[[str], str]
Shapes = Iterator[str]


def words(x: float, y: float, text: str, size: int = 13, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'


def box(x: int, y: int, width: int, height: int, text: str = "", fill: str = PLAIN, size: int = 13) -> str:
    """A box with lines of words in its middle; ``|`` parts the lines."""
    lines = text.split("|") if text else []
    top = y + height / 2 + 4.5 - 8 * (len(lines) - 1)
    shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" stroke="#445" />'
    return shape + "".join(words(x + width / 2, top + 16 * at, line, size) for at, line in enumerate(lines))


def arrow(x: int, y: int, to_x: int, to_y: int, text: str = "") -> str:
    shape = f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="#445" stroke-width="1.5" marker-end="url(#tip)" />'
    return shape + (words((x + to_x) / 2, (y + to_y) / 2 - 6, text, 12) if text else "")


def share_and_card(say: Say) -> Shapes:
    yield words(10, 24, say("one card: 11178 MiB of memory, 100 % of compute"), 13, "start")
    yield words(10, 66, say("memory"), 13, "start")
    yield box(90, 40, 160, 42, say("pod a|3000 MiB"), BLUE)
    yield box(250, 40, 240, 42, say("pod b|4500 MiB"), ORANGE)
    yield box(490, 40, 196, 42, say("free|3678 MiB"), GREY)
    yield words(10, 126, say("compute"), 13, "start")
    yield box(90, 100, 298, 42, say("pod a|50 %"), BLUE)
    yield box(388, 100, 179, 42, say("pod b|30 %"), ORANGE)
    yield box(567, 100, 119, 42, say("free|20 %"), GREY)


def limits(say: Say) -> Shapes:
    yield box(10, 30, 430, 180, "", GREY)
    yield words(225, 22, say("the container"))
    yield box(30, 50, 110, 50, say("your program"))
    yield arrow(140, 75, 200, 75)
    yield box(200, 50, 120, 50, "libvgpu.so", BLUE)
    yield box(200, 140, 120, 50, say("limits page|(read-only)"), ORANGE)
    yield arrow(260, 140, 260, 102)
    yield box(340, 140, 90, 50, say("region|(use)"), GREEN)
    yield arrow(315, 100, 370, 138)
    yield arrow(320, 75, 480, 75, say("allowed calls"))
    yield box(480, 50, 100, 50, say("driver"))
    yield arrow(580, 75, 620, 75)
    yield box(620, 50, 70, 50, say("card"))
    yield box(480, 140, 210, 50, say("monitor on the node"))
    yield arrow(480, 165, 432, 165)
    yield words(110, 125, say("too much: out of memory"), 12)
    yield arrow(200, 95, 120, 110)


def finding(say: Say) -> Shapes:
    steps = ["pod with|limits", "scheduler", "API server", "kubelet", "device plugin", "container"]
    fills = [PLAIN, BLUE, GREY, GREY, BLUE, GREEN]
    for at, (text, fill) in enumerate(zip(steps, fills, strict=True)):
        yield box(10 + at * 115, 50, 95, 50, say(text), fill)
        if at:
            yield arrow(105 + (at - 1) * 115, 75, 125 + (at - 1) * 115, 75)
    for at, text in enumerate(["1 waits", "2 chooses node|and cards", "3 keeps Binding|and annotations", "4 calls|Allocate",
                               "5 reads the pod's|annotation", "6 sees its cards|and limits"]):  # fmt: skip
        for line, part in enumerate(say(text).split("|")):
            yield words(57 + at * 115, 122 + 16 * line, part, 12)
    yield words(350, 30, say("the answer of the scheduler travels as an annotation of the pod"))


def mig(say: Say) -> Shapes:
    yield words(10, 24, say("an A100 with 40 GB in MIG mode: eight parts of memory"), 13, "start")
    for at in range(8):
        yield box(10 + at * 85, 36, 85, 24, f"{at}", GREY)
    yield box(10, 66, 340, 44, say("pod a: 3g.20gb|asked for 15000 MiB"), BLUE)
    yield box(350, 66, 170, 44, say("pod b: 2g.10gb|asked for 8000 MiB"), ORANGE)
    yield box(520, 66, 85, 44, say("pod c:|1g.5gb"), GREEN)
    yield box(605, 66, 85, 44, say("free"), PLAIN)
    yield box(480, 150, 210, 40, say("pod c asks for 3000 MiB"))
    yield arrow(562, 150, 562, 112)
    yield words(10, 174, say("pods a and b go on while its slice is made"), 13, "start")


def queues(say: Say) -> Shapes:
    yield words(10, 24, say("eight shares; each team deserves four"), 13, "start")
    for row, (text, mine, other) in enumerate([("1 vision alone", 8, 0), ("2 language asks for four", 4, 4)]):
        y = 40 + row * 60
        yield words(10, y + 24, say(text), 13, "start")
        for at in range(mine):
            text = say("vision" if row or at < 4 else "borrowed")
            yield box(210 + at * 60, y, 56, 36, text, BLUE if at < 4 else GREY, 11)
        for at in range(other):
            yield box(210 + (mine + at) * 60, y, 56, 36, say("language"), ORANGE, 11)
    yield words(10, 176, say("borrowed shares are given back; what a team deserves stays"), 13, "start")


def gangs(say: Say) -> Shapes:
    for row, (text, places) in enumerate([("room for three of four: nobody starts", 3), ("room for four: all start", 4)]):
        y = 20 + row * 90
        yield words(10, y + 34, say(text), 13, "start")
        for at in range(4):
            yield box(330 + at * 90, y, 80, 50, say("worker") + f" {at}", GREEN if places == 4 else PLAIN)
            yield box(330 + at * 90, y + 54, 80, 14, "", BLUE if at < places else GREY)
    yield words(330, 205, say("blue: a card with room for it"), 12, "start")


def npus(say: Say) -> Shapes:
    yield words(10, 24, say("one Ascend 310P3, 21527 MB; parts come in fixed sizes (templates)"), 13, "start")
    yield box(10, 40, 388, 44, "vir04|12288 MB", BLUE)
    yield box(398, 40, 194, 44, "vir02|6144 MB", ORANGE)
    yield box(592, 40, 97, 44, "vir01|3072 MB", GREEN)
    yield box(480, 120, 210, 40, say("pod asks for 4096 MB"))
    yield arrow(540, 120, 500, 86)
    yield words(10, 146, say("the smallest template that holds the request"), 13, "start")


def claims(say: Say) -> Shapes:
    yield box(10, 30, 120, 50, say("pod"))
    yield arrow(130, 55, 180, 55)
    yield box(180, 30, 140, 50, say("ResourceClaim|3000 MiB, 50 %"), ORANGE)
    yield arrow(320, 55, 370, 55)
    yield box(370, 30, 120, 50, say("scheduler"), BLUE)
    yield arrow(490, 55, 560, 55)
    yield box(560, 30, 130, 50, say("driver on|the node"), GREEN)
    yield box(370, 130, 120, 50, "ResourceSlice", GREY)
    yield arrow(600, 82, 492, 150, "")
    yield words(600, 140, say("lists its cards"), 12)
    yield arrow(430, 130, 430, 82)
    yield box(180, 130, 140, 50, "DeviceClass", GREY)
    yield arrow(250, 130, 250, 82)
    yield words(430, 22, say("writes the allocation into the claim"), 12)


PICTURES: dict[str, tuple[Callable[[Say], Shapes], int, str, str]] = {
    "share-and-card": (share_and_card, 160, "One card shared by two pods", "两个 Pod 共享一张卡"),
    "limits": (limits, 220, "How a limit is held", "限制如何生效"),
    "finding-a-card": (finding, 150, "How a pod finds its card", "Pod 如何得到它的卡"),
    "mig-on-demand": (mig, 200, "A MIG slice is made for a pod", "为 Pod 按需创建 MIG 实例"),
    "queues": (queues, 190, "Borrowing between two queues", "两个队列之间的借用"),
    "gangs": (gangs, 215, "A gang starts whole or not at all", "一组 Pod 要么全部启动，要么都不启动"),
    "npus": (npus, 175, "An NPU is cut by templates", "NPU 按模板切分"),
    "claims": (claims, 195, "A share by ResourceClaim", "用 ResourceClaim 申请份额"),
}
CHINESE: dict[str, str] = tomllib.loads((Path(__file__).parent / "pictures_zh.toml").read_text("utf-8"))


def every() -> dict[str, str]:
    """The pictures by the names of their files."""
    found = {}
    for name, (draw, height, title, title_zh) in PICTURES.items():
        found[f"{name}.svg"] = drawn(draw(str), height, title)
        found[f"{name}.zh.svg"] = drawn(draw(CHINESE.__getitem__), height, title_zh)
    return found


def drawn(shapes: Shapes, height: int, title: str) -> str:
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 {height}" font-family="sans-serif" fill="#223" role="img">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#445" /></marker></defs>',
        f'<rect width="700" height="{height}" rx="6" fill="#fafbfc" />',
        *shapes,
        "</svg>\n",
    ])  # fmt: skip


def main() -> None:
    HOME.mkdir(parents=True, exist_ok=True)
    for name, text in every().items():
        (HOME / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
