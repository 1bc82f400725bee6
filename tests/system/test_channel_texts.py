"""What an archive makes of channels, compared with upstream's archive over many made-up channels."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from container.archive.channel_texts import (
    parse_channel,
    replay_channel,
    response_channel,
    stripped_channel,
    subscription_key,
)
from container.errors import ConfigurationError
from container.testing.processes.java_tools import java_command
from tests.limits import LIMIT_S

type Upstream = Callable[[list[str]], list[str]]

CHANNELS = 600
REFUSED = "!"

TEXTS = ("localhost:8010", "[::1]:0", "224.0.1.1:40456", "a=b", "", "../x", "my log", "eth0", "1001,1002")
NUMBERS = ("0", "1", "-1", "+7", "007", "255", "256", "-2147483648", "2147483647", "2147483648", "x", "", "1.5", "1e3")
LONGS = (*NUMBERS, "9223372036854775807", "-9223372036854775808", "9223372036854775808", "prototype", "tag:5")
SIZES = (
    *("0", "1023", "1024", "65536", "64k", "128K", "1m", "3M", "1g", "2g", "5g", "1025k", "4096", "+64", "-5", "k"),
    *("1t", "+1k", ""),
)
FLAGS = ("true", "false", "TRUE", "False", "yes", "")
OFFSETS = ("reserved", "0", "8", "-8", "+4", "Reserved", "x", "")

VALUES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("endpoint", "interface", "control", "tags", "alias", "cc", "fc", "response-endpoint"), TEXTS),
    **dict.fromkeys(("so-sndbuf", "so-rcvbuf", "rcv-wnd"), SIZES),
    **dict.fromkeys(("tether", "group", "rejoin", "sparse", "eos", "ssc", "reliable"), FLAGS),
    **dict.fromkeys(("media-rcv-ts-offset", "channel-rcv-ts-offset", "channel-snd-ts-offset"), OFFSETS),
    **dict.fromkeys(("ttl", "stream-id", "init-term-id", "term-id", "term-offset", "max-resend"), NUMBERS),
    "gtag": LONGS,
    "response-correlation-id": LONGS,
    "session-id": (*LONGS, "tag:-5", "tag:007", "tag:", "tag:x", "tag:+5", "tag:9223372036854775808"),
    "control-mode": ("manual", "dynamic", "response", "Manual", ""),
    "mtu": ("1408", "32", "64", "65504", "65536", "8k", "1409", "31", "1k", "x", ""),
    "term-length": ("65536", "64k", "128k", "1m", "1g", "2g", "65537", "32k", "x", ""),
    "linger": ("0", "5", "5000000000", "1000", "+7", "-1", "x", ""),
    "nak-delay": ("5us", "x"),
    "untethered-resting-timeout": ("5s",),
    "pub-wnd": ("64k", "x"),
    "unknown": ("1", ""),
}
GOOD: dict[str, tuple[str, ...]] = {
    **{name: values[:2] for name, values in VALUES.items()},
    "session-id": ("-1190720429", "tag:68"),
    "so-sndbuf": ("131072", "3m"),
    "control-mode": ("manual", "response"),
}
MALFORMED = (
    "aeron:tcp",
    "aeron:",
    "udp",
    "aeron:ipc?",
    "aeron:ipc?alias",
    "aeron:ipc?=x",
    "aeron:ipc?a=1|",
    "/etc/passwd",
)


def channels(seed: int) -> Iterator[str]:
    """Channels of one to many parameters: half of them with good values alone, the others with any."""
    yield from MALFORMED
    yield from ("aeron:ipc", "aeron:udp", "aeron-spy:aeron:udp?alias=x", "aeron:ipc?alias=a|alias=b", "aeron:ipc?a=b=c")
    random_numbers = random.Random(seed)
    for index in range(CHANNELS):
        values = GOOD if index % 2 else VALUES
        names = random_numbers.sample(sorted(values), random_numbers.choice((1, 2, 5, len(values) if index % 2 else 6)))
        query = "|".join(f"{name}={random_numbers.choice(values[name])}" for name in names)
        prefix = random_numbers.choice(("", "", "", "aeron-spy:"))
        yield f"{prefix}aeron:{random_numbers.choice(('udp', 'ipc'))}?{query}"


@pytest.fixture(scope="module")
def upstream(jar: Path, java_classes: Path) -> Upstream:
    def answers(questions: list[str]) -> list[str]:
        result = subprocess.run(
            java_command("container.tests.ChannelTexts", [jar, java_classes]),
            input="".join(question + "\n" for question in questions),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout.splitlines()

    return answers


def check(upstream: Upstream, words: tuple[object, ...], seed: int, make: Callable[[str], str]) -> None:
    """Compare what we make of each channel with upstream's; both refuse the same ones."""
    texts = list(channels(seed))
    answers = upstream(["\t".join(str(word) for word in (*words, text)) for text in texts])
    assert len(answers) == len(texts)
    made = [ours(make, text) for text in texts]
    expected = [answer if answer.startswith("=") else REFUSED for answer in answers]
    wrong = [
        f"{text}\n  upstream {answer}\n  ours     {our}"
        for text, answer, want, our in zip(texts, answers, expected, made, strict=True)
        if want != our
    ]
    assert not wrong, "\n".join(wrong)
    assert made.count(REFUSED) > len(MALFORMED) - 1
    assert made.count(REFUSED) < len(texts) // 2


def ours(make: Callable[[str], str], text: str) -> str:
    try:
        return "=" + make(text)
    except ConfigurationError:
        return REFUSED


def test_stripped_channels_are_upstreams(upstream: Upstream) -> None:
    check(upstream, ("stripped",), 1, lambda text: stripped_channel(parse_channel(text)))


def test_subscription_keys_are_upstreams(upstream: Upstream) -> None:
    texts = [text for text in channels(2) if text not in MALFORMED]
    expected = ["=" + subscription_key(-7, parse_channel(text)) for text in texts]
    assert upstream([f"key\t-7\t{text}" for text in texts]) == expected


@pytest.mark.parametrize("is_sparse", [True, False])
def test_response_channels_are_upstreams(is_sparse: bool, upstream: Upstream) -> None:
    def make(text: str) -> str:
        return response_channel(
            parse_channel(text), term_length=65_536, mtu_length=1408, is_sparse=is_sparse, image_correlation_id=77
        )

    check(upstream, ("response", 65_536, 1408, str(is_sparse).lower(), 77), 3 + is_sparse, make)


@pytest.mark.parametrize(
    ("position", "initial_term_id", "term_length"),
    [
        (0, 0, 65_536),
        (96, -5, 65_536),
        (65_536, 2_147_483_647, 65_536),
        (2**40 + 32, 7, 128 * 1024**2),
        (2**62, -2_147_483_648, 1024**3),
    ],
)
def test_replay_channels_are_upstreams(
    position: int, initial_term_id: int, term_length: int, upstream: Upstream
) -> None:
    def make(text: str) -> str:
        return replay_channel(
            parse_channel(text),
            position=position,
            initial_term_id=initial_term_id,
            term_length=term_length,
            mtu_length=4096,
            linger_ns=5_000_000_000,
        )

    words = ("replay", position, initial_term_id, term_length, 4096, 5_000_000_000)
    check(upstream, words, position % 97, make)
