"""Hosts files of all kinds."""

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host, parse_file, parse_list
from mcjax_launch.wording import escape_unprintable, format_one_line

FILES = {
    "plain": ("a\nb\n", [("a", 1), ("b", 1)]),
    "comments and blanks": ("# all\n\n a slots=2 # two\n\t\nb", [("a", 2), ("b", 1)]),
    "MPICH": ("a:4\nb:2\n", [("a", 4), ("b", 2)]),
    "Open MPI": ("a slots=4 max_slots=8\nb slots = 2 max-slots=2\n", [("a", 4), ("b", 2)]),
    "Open MPI, named again": ("a\na\nb\n", [("a", 2), ("b", 1)]),
    "DeepSpeed": ("worker-1 slots=4\nworker-2 slots=4\n", [("worker-1", 4), ("worker-2", 4)]),
    "Slurm": ("n[08-10] slots=2\n", [("n08", 2), ("n09", 2), ("n10", 2)]),
    "Slurm, more": ("r[1-2]n[1,3]:2\n", [("r1n1", 2), ("r1n3", 2), ("r2n1", 2), ("r2n3", 2)]),
    "addresses": (
        "10.0.0.1\nfe80::1 slots=2\n::1\n",
        [("10.0.0.1", 1), ("fe80::1", 2), ("::1", 1)],
    ),
    "addresses in brackets": (
        "[fd00::5]:2\n[fe80::1%eth0]\n[::1] slots=3\n",
        [("fd00::5", 2), ("fe80::1%eth0", 1), ("::1", 3)],
    ),
    "many slots": ("a:1024\nb slots=2222\n", [("a", 1024), ("b", 2222)]),
}


def test_hosts_file_is_parsed() -> None:
    for text, expected in FILES.values():
        assert [(host.name, host.slots) for host in parse_file(text, "h", 1)] == expected


def test_host_settings_are_parsed() -> None:
    line = "me@a slots=2 port=2222 python=/opt/py chdir=/data"
    assert parse_file(line, "h", 1) == (
        Host(name="a", user="me", slots=2, port=2222, python="/opt/py", chdir="/data"),
    )


def test_repeated_host_gets_more_slots() -> None:
    """It gets more slots; another user's or port's is another host."""
    text = "a slots=1 chdir=/tmp\na slots=2 chdir=/tmp\nb@a slots=4\na port=23\n"
    assert [(host.login, host.port, host.slots) for host in parse_file(text, "h", 1)] == [
        ("a", None, 3),
        ("b@a", None, 4),
        ("a", 23, 1),
    ]


def test_names_for_any_client_are_accepted() -> None:
    names = "pod/worker-0,my_host.example.com,fe80::1%eth0,münchen"
    assert [host.name for host in parse_list(names, 1)] == names.split(",")


BAD = {
    "a\nb slots=x\n": "h:2: slots=x is not a whole number of 1 or more",
    "a slots=0": "h:1: slots=0 is not a whole number of 1 or more",
    "a port=-1": "h:1: port=-1",
    "a gpus=4": "h:1: unknown setting 'gpus': valid ones are slots, port, python and chdir",
    "a two": "h:1: 'two': expected slots=K",
    "\n\n-oProxyCommand=x": "h:3: '-oProxyCommand=x': a name must not start with '-'",
    "-u@a": "h:1: '-u@a': a name must not start with '-'",
    "n[1-": "h:1: 'n[1-': expected a range",
    "n[3-1]": "h:1: [3-1]: expected a range",
    "n[1-9999999]": "h:1: [1-9999999]: more than",
    "# nothing\n": "h: no hosts listed",
    "a@b@c": "h:1: 'a@b@c' is not a valid host name: 'a@b' is not a valid user name",
    "@a": "h:1: '@a' is not a valid host name: '' is not a valid user name",
    "a\nb:2222": "h:2: 'b:2222': port=2222 or slots=2222? write one of them after the name, in a hosts",
    "me@[fd00::5]:1025": "h:1: 'me@[fd00::5]:1025': port=1025 or slots=1025?",
    "a:65537": "h:1: slots=65537 is more than 65536",
    "a slots=65537": "h:1: slots=65537 is more than 65536",
    "a port=65536": "h:1: port=65536 is more than 65535",
    "a\nh[1-999][1-999]": "h:2: 'h[1-999][1-999]': more than 65536 hosts",
    "h[1-40000]\nn[1-40000]": "h:2: more than 65536 hosts",
    "h[1-9,1-65530]": "h:1: [1-9,1-65530]: more than 65536 hosts",
    "h" + "[1]" * 256: "h:1: 'h[1][1][1]",
    "h" * 256: format_one_line(f"h:1: {'h' * 256!r}: a host name has 255 characters at most"),
    "a\0b": "h:1: 'a\\x00b' is not a valid host name",
    "ok\nh\udce4": "h:2: 'h\\xe4' is not a valid host name",
    "a chdir=/tmp\n\na": "h:3: a has no chdir= here and chdir=/tmp on line 1: a host's lines must "
    "agree",
    "a\na chdir=/tmp": "h:2: a has chdir=/tmp here and no chdir= on line 1",
    "a python=x\na python=y": "h:2: a has python=y here and python=x on line 1",
    **{
        f"a{char}b": f"h:1: '{escape_unprintable(f'a{char}b')}' is not a valid host name"
        for char in ("$(id)", ";", "`", '"', "\\", "*", "\x1b")
    },
}


@pytest.mark.parametrize("text", BAD)
def test_malformed_hosts_file_is_refused(text: str) -> None:
    with pytest.raises(LaunchError) as caught:
        parse_file(text, "h", 1)
    assert str(caught.value).startswith(BAD[text])
    assert caught.value.status == 2


def test_host_list_is_parsed() -> None:
    hosts = [(host.login, host.slots) for host in parse_list("a,u@b:2,n[01-02,7],[fd00::5]:2", 3)]
    assert hosts == [("a", 3), ("u@b", 2), ("n01", 3), ("n02", 3), ("n7", 3), ("fd00::5", 2)]


@pytest.mark.parametrize("text", ["", "a,,b", "a,-b", "a b", "a,gpu01:2222"])
def test_malformed_host_list_is_refused(text: str) -> None:
    with pytest.raises(LaunchError, match="--hosts"):
        parse_list(text, 1)


def test_localhost_without_user_is_local() -> None:
    local, other = parse_list("localhost,me@localhost", 1)
    assert local.is_local
    assert not other.is_local
