"""Log files as lines and events."""

import itertools
import json
import math

import pytest

from ddpnb.lines import LineReader, plain_text, shown_text
from ddpnb.process import ProcessId
from ddpnb.records import Event, LogLine, parse_events
from ddpnb.rundir import RunDir
from ddpnb.spec import LaunchSpec
from ddpnb.tail import Tail, iter_lines, read_lines
from ddpnb.timeline import Timeline


@pytest.fixture
def run(tmp_path):
    run = RunDir.propose(tmp_path / "runs", "train")
    spec = LaunchSpec(name="train", script=tmp_path / "train.py")
    run.create(spec, launcher={}, command={}, script=None, owner=ProcessId.of(1))
    for rank in (0, 1):
        run.rank(rank).path.mkdir()
    return run


def texts(lines):
    return [str(line) for line in lines]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain", "plain"),
        (b"  10%|#   \r  50%|##  \r 100%|####", " 100%|####"),
        (b"windows\r", "windows"),
        (b"done\r\r", "done"),
        ("перплексия ✅".encode(), "перплексия ✅"),
        (b"bad \xff byte", "bad � byte"),
        (b"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b]8;;http://x\x1b\\link", "link"),
        (b"\x1b[2J\x1b[Hgone", "gone"),
        (b"nul \x00 bell \x07", "nul � bell �"),
        (b"tab\there", "tab\there"),
        ("turned \u202eround\u2066".encode(), "turned �round�"),
    ],
)
def test_shown_text_is_what_a_terminal_shows(raw, shown):
    assert shown_text(raw) == shown


def test_shown_text_leaves_no_escape_that_acts():
    text = shown_text(b"\x1bc \x1b \x9b2J \x1b[>0q \x1bP1$r\x1b\\ end\x1b")

    assert "\x1b" not in text
    assert "\x9b" not in text


def test_plain_text_takes_the_colours_away():
    assert plain_text("\x1b[1;31mred\x1b[0m") == "red"


def test_reader_gives_lines_when_they_are_finished_and_counts_bytes(tmp_path):
    path = tmp_path / "log"
    reader = LineReader(path, 0, "stdout")
    assert reader.read() == []

    path.write_bytes("ü\nsecond\nthi".encode())
    lines = reader.read()

    assert [(line.text, line.offset) for line in lines] == [("ü", 0), ("second", 3)]
    assert reader.unfinished().text == "thi"
    with path.open("ab") as file:
        file.write(b"rd\n")
    assert texts(reader.read()) == ["third"]
    assert reader.unfinished() is None


def test_reader_joins_a_character_that_was_split_between_two_reads(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"\xe2\x9c")
    reader = LineReader(path, 0, "stdout")
    reader.read()

    with path.open("ab") as file:
        file.write(b"\x85\n")

    assert texts(reader.read()) == ["✅"]


def test_reader_passes_over_a_flood_and_says_how_much(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %06d\n" % i for i in range(10_000)))
    reader = LineReader(path, 0, "stdout")

    lines = reader.read(max_bytes=1200)

    assert "9,900 lines" in lines[0].text or "9,901 lines" in lines[0].text
    assert lines[-1].text == "line 009999"
    assert len(lines) in (100, 101)
    assert lines[1].offset == 12 * int(lines[1].text.split()[1])


def test_reader_keeps_little_of_a_bar_that_never_ends_its_line(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"\r%7d/999" % i for i in range(200_000)))
    reader = LineReader(path, 0, "stdout")
    reader.read()

    assert reader.unfinished().text.strip() == "199999/999"
    assert len(reader._rest) <= 1 << 20


def test_tail_gives_each_record_once_and_the_rest_at_the_end(run):
    tail = Tail(run)
    run.rank(1).stdout.write_text("one\ntwo")
    event = Event(rank=1, time=1.0, kind="metric", step=3, data={"loss": 0.5})
    run.rank(1).events.write_text(json.dumps(event.to_json()) + '\n{"half')

    first, second, third = tail.poll(), tail.poll(), tail.poll(final=True)

    assert [r for r in first if isinstance(r, Event)] == [event]
    assert texts(r for r in first if isinstance(r, LogLine)) == ["one"]
    assert second == []
    assert texts(third) == ["two"]


def test_read_lines_merges_ranks_by_the_timeline(run):
    run.rank(0).stdout.write_text("a\nc\n")
    run.rank(1).stderr.write_text("b\n")
    ticks = [
        {"time": 10.0, "sizes": {"0/stdout": 2}},
        {"time": 10.1, "sizes": {"1/stderr": 2}},
        {"time": 10.2, "sizes": {"0/stdout": 4}},
    ]
    run.timeline.write_text("".join(json.dumps(tick) + "\n" for tick in ticks))

    lines = read_lines(run)

    assert [(line.rank, str(line), line.time) for line in lines] == [
        (0, "a", 10.0),
        (1, "b", 10.1),
        (0, "c", 10.2),
    ]
    assert texts(read_lines(run, [1])) == ["b"]
    assert read_lines(run, "launcher") == []


def test_reader_counts_the_bytes_of_a_bar_that_it_has_forgotten(tmp_path):
    path = tmp_path / "log"
    bar = b"".join(b"%7d/999\r" % i for i in range(200_000))
    path.write_bytes(bar)
    reader = LineReader(path, 0, "stdout")
    reader.read()

    assert reader.unfinished().text.strip() == "199999/999"
    with path.open("ab") as file:
        file.write(b"\nnext\n")
    assert [(line.text.strip(), line.offset) for line in reader.read()] == [
        ("199999/999", 0),
        ("next", len(bar) + 1),
    ]


def test_events_behind_half_a_line_are_read():
    whole = Event(rank=0, time=1.0, kind="start", data={"pid": 1})
    line = json.dumps(whole.to_json()).encode()

    found = parse_events(b'{"rank": 0, "ti' + line + b"\nnonsense\n" + line + b"\n" + line[:9])

    assert found == [whole, whole]


def test_reader_keeps_the_first_part_of_a_line_that_is_too_long(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"a" * (3 << 20) + b"\nnext\n")
    reader = LineReader(path, 0, "stdout")

    long, following = reader.read()

    assert long.text.startswith("a" * (1 << 20) + " … 2,097,152 more bytes")
    assert (following.text, following.offset) == ("next", (3 << 20) + 1)


@pytest.mark.parametrize("size", [300_000, (1 << 20) - 1, 1 << 20])
def test_reader_gives_a_long_line_whole(tmp_path, size):
    path = tmp_path / "log"
    path.write_bytes(b"a" * size)
    reader = LineReader(path, 0, "stdout")

    assert reader.read() == []
    assert reader.unfinished().text == "a" * size


def test_reader_passes_over_a_line_that_has_not_ended_and_keeps_its_place(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"first\n" + b"x" * 5000)
    reader = LineReader(path, 0, "stdout")
    reader.read(max_bytes=1000)
    with path.open("ab") as file:
        file.write(b"yz\nnext\n")

    rest, following = reader.read()

    assert (rest.text, rest.offset) == ("… yz", 5006)
    assert (following.text, following.offset) == ("next", 5009)


def test_reader_goes_on_behind_what_was_given_back_to_the_disk(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo" + bytes(100) + b"lf\nlast\n")
    reader = LineReader(path, 0, "stdout", lambda: (7, 107))

    lines = reader.read()

    assert texts(lines) == [
        "one",
        "two",
        "… 100 bytes are gone here: the run had written more than max_log_bytes",
        "… lf",
        "last",
    ]
    assert [line.offset for line in lines] == [0, 4, 7, 107, 110]


@pytest.mark.parametrize(("text", "expected"), [
    (b"a\nb\nc\n", ["b", "c"]),
    (b"a\nb\nc", ["b", "c"]),
    (b"a\n", ["a"]),
    (b"", []),
    (b"a\n" * (1 << 20) + b"b\n", ["a", "b"]),
])  # fmt: skip
def test_read_lines_gives_the_last_ones(run, text, expected):
    run.rank(0).stdout.write_bytes(text)

    assert texts(read_lines(run, [0], last=2)) == expected
    assert read_lines(run, [0], last=0) == []


def test_a_clock_that_was_set_back_does_not_change_the_order_of_a_ranks_lines(run):
    run.rank(0).stdout.write_text("a\nb\n")
    ticks = [{"time": 10.0, "sizes": {"0/stdout": 2}}, {"time": 5.0, "sizes": {"0/stdout": 4}}]
    run.timeline.write_text("".join(json.dumps(tick) + "\n" for tick in ticks))

    assert [(str(line), line.time) for line in read_lines(run)] == [("a", 10.0), ("b", 10.0)]


def test_reader_returns_while_the_file_grows_faster_than_it_reads(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"line\n" * (1 << 18))
    grown = []

    def grow():  # asked after each read, as a flooding rank would write meanwhile
        with path.open("ab") as file:
            file.write(b"more\n" * (1 << 18))
        grown.append(len(grown))
        assert len(grown) < 10
        return None

    lines = LineReader(path, 0, "stdout", grow).read()

    assert texts(lines) == ["line"] * (1 << 18)


def tick(moment, **sizes):
    sizes = {name.replace("_", "/").removeprefix("r"): size for name, size in sizes.items()}
    return json.dumps({"time": moment, "sizes": sizes}) + "\n"


def test_tail_dates_lines_as_far_as_the_timeline_goes(run):
    run.rank(0).stdout.write_text("a\nb\nhal")
    run.timeline.write_text(
        tick(10.0, r0_stdout=2) + tick(10.1, r0_stdout=6) + '{"time": 10.2, "si'
    )
    tail = Tail(run)

    first = tail.poll()
    run.rank(0).stdout.write_text("a\nb\nhalf\nnew\n")
    with run.timeline.open("a") as file:
        file.write('zes": {"0/stdout": 9}}\n')
    second = tail.poll()

    assert [(line.text, line.time) for line in first] == [("a", 10.0), ("b", 10.1)]
    assert [(line.text, line.time) for line in second] == [("half", 10.2), ("new", None)]


def test_a_late_reader_takes_the_end_of_a_long_timeline_and_dates_nothing_wrongly(run):
    run.rank(0).stdout.write_text("".join(f"{i:05d}\n" for i in range(1000)))
    run.timeline.write_text("".join(tick(float(i), r0_stdout=6 * (i + 1)) for i in range(1000)))
    timeline = Timeline(run, max_bytes=4000)
    timeline.read()

    lines = read_lines(run)
    dated = list(timeline.date("0/stdout", lines, 6000))

    known = [line for line in dated if line.time is not None]
    assert 50 < len(known) < 200
    assert all(line.time == int(line.text) for line in known)
    assert [line.time for line in dated[: 1000 - len(known)]] == [None] * (1000 - len(known))


NO_TICKS = [
    "[]",
    '{"time": [], "sizes": {"0/stdout": 2}}',
    '{"time": 1, "sizes": 3}',
    "\x00\x00",
    '{"sizes": {}}',
]


@pytest.mark.parametrize("nonsense", NO_TICKS)
def test_nonsense_in_a_timeline_dates_nothing(run, nonsense):
    run.rank(0).stdout.write_text("a\n")
    run.timeline.write_text(nonsense + "\n")

    assert [(line.text, line.time) for line in Tail(run).poll()] == [("a", None)]
    assert [(line.text, line.time) for line in read_lines(run)] == [("a", None)]


def test_reader_begins_again_where_a_file_was_cut(tmp_path):
    path = tmp_path / "log"
    path.write_text("one\ntwo\nthree\n")
    reader = LineReader(path, 0, "stdout")
    reader.read()

    path.write_text("new\n")

    said, line = reader.read()
    assert said.text == "… log was cut or replaced; it is read from its start"
    assert (line.text, line.offset) == ("new", 0)


def test_reader_gives_no_more_lines_than_it_may_and_counts_the_others(tmp_path):
    path = tmp_path / "log"
    path.write_text("\n" * 1000 + "".join(f"{i}\n" for i in range(10)))
    reader = LineReader(path, 0, "stdout")

    said, *lines = reader.read(500, 4)

    assert texts(lines) == ["6", "7", "8", "9"]
    assert (said.text, said.stands_for) == (
        "… 1,006 lines are passed over here; log has them",
        1006,
    )
    assert sum(line.stands_for for line in [said, *lines]) == 1010


def test_reader_goes_step_by_step_and_loses_nothing(tmp_path):
    path = tmp_path / "log"
    path.write_text("".join(f"line {i}\n" for i in range(1000)) + "x" * 500)
    reader = LineReader(path, 0, "stdout")
    lines, reads = [], 0

    reader.behind = True
    while reader.behind:
        lines += reader.read(step=100)
        reads += 1

    assert texts(lines) == [f"line {i}" for i in range(1000)]
    assert reader.unfinished().text == "x" * 500
    assert reads > 90


def test_lines_are_read_only_as_far_as_they_are_asked_for(run):
    data = "".join(f"{i:07d}\n" for i in range(200_000))
    run.rank(0).stdout.write_text(data)
    run.rank(1).stdout.write_text("one\n")
    run.timeline.write_text(tick(1.0, r1_stdout=4) + tick(2.0, r0_stdout=len(data)))

    lines = iter_lines(run)

    assert texts(itertools.islice(lines, 3)) == ["one", "0000000", "0000001"]
    assert sum(1 for _ in lines) == 199_998


def test_what_the_files_say_can_always_be_sent(run):
    data = r'{"rank": 0, "time": 1.0, "kind": "metric", "step": 1, "data": {"a\ud800": 1.0}}' + "\n"
    run.rank(0).events.write_text(data)

    (event,) = Tail(run).poll()

    assert json.dumps(list(event.data), ensure_ascii=False).encode() == b'["a\xef\xbf\xbd"]'


@pytest.mark.parametrize("data", [
    {"kind": "metric", "step": "x"},
    {"kind": "metric", "step": 10**400},
    {"kind": "metric", "step": 1, "data": {"loss": "low"}},
    {"kind": "metric", "step": 1, "data": [1]},
    {"kind": "progress", "data": {"n": "x"}},
    {"kind": "start", "data": {"pid": "x"}},
    {"kind": "metric", "time": "x"},
])  # fmt: skip
def test_events_that_no_reader_could_bear_are_passed_over(data):
    good = json.dumps({"rank": 0, "time": 1.0, "kind": "note"})
    bad = json.dumps({"rank": 0, "time": 1.0} | data)
    deep = "[" * 100_000

    assert [event.kind for event in parse_events(f"{good}\n{bad}\n{deep}\n".encode())] == ["note"]


def test_a_metric_beyond_all_floats_is_infinite():
    line = json.dumps({"rank": 0, "time": 1.0, "kind": "metric", "data": {"loss": -(10**400)}})

    (event,) = parse_events(line.encode() + b"\n")

    assert event.data == {"loss": -math.inf}
