"""Times, sizes and ends in words."""

import pytest

from ddpnb.words import duration, ending, signal_name, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (7500, "2 h 05 min"),
        (100 * 3600, "4 d 4 h"),
    ],
)
def test_duration_is_told_as_a_person_does(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (12 << 20, "12 MiB"), (5 << 50, "5120 TiB")],
)
def test_size_is_told_in_few_characters(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("exitcode", "text", "name"),
    [
        (0, "exit code 0", None),
        (3, "exit code 3", None),
        (-9, "killed by SIGKILL", "SIGKILL"),
        (-39, "killed by signal 39", "signal 39"),
    ],
)
def test_ending_names_the_signal(exitcode, text, name):
    assert ending(exitcode) == text
    assert signal_name(exitcode) == name
