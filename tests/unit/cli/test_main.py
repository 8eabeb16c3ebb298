"""The program: verbs found, mistakes answered in a line, and nothing imported in vain."""

import os
import resource
import subprocess
import sys

import pytest

from fairway import __version__
from fairway.cli.main import main
from fairway.cli.verbs import VERBS


def program(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "fairway", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_names_every_verb(arguments, capsys):
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    for name, verb in VERBS.items():
        assert f"  {name} " in shown
        assert verb.help in shown
    assert "exit codes" in shown


@pytest.mark.parametrize("arguments", [["version"], ["--version"], ["-V"]])
def test_the_version_is_printed(arguments, capsys):
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"fairway {__version__} ")


def test_an_unknown_verb_is_one_line_with_the_nearest(capsys):
    assert main(["ups", "-f", "x"]) == 2
    assert capsys.readouterr().err == "fairway: there is no verb 'ups'; did you mean up?; see fairway --help\n"


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help_in_both_forms(verb):
    direct, through = program(verb, "--help"), program("help", verb)
    assert direct.returncode == through.returncode == 0
    assert direct.stdout == through.stdout
    assert f"fairway {verb}" in direct.stdout


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_answers_a_wrong_option_with_code_2_and_no_traceback(verb):
    refused = program(verb, "--no-such-option")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert f"fairway {verb}" in refused.stderr
    assert "Traceback" not in refused.stderr


# What a pod pays for must not grow by what only people at a terminal need.
FORBIDDEN = {
    "proxy": ("typer", "rich", "pydantic", "aiohttp", "structlog", "yaml"),
    "proxyrunner": ("typer", "rich", "pydantic", "aiohttp", "structlog", "yaml"),
    "tools": ("typer", "rich", "aiohttp", "structlog", "yaml"),
    "operator": ("typer",),
    "version": ("typer", "rich", "pydantic", "argparse", "asyncio"),
}


@pytest.mark.parametrize("verb", sorted(FORBIDDEN))
def test_a_verb_imports_nothing_that_it_does_not_need(verb):
    code = (
        "import sys\nfrom fairway.cli.main import main\n"
        f"try:\n    main([{verb!r}, '--help'])\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.partition(".")[0] for name in ran.stderr.split()}
    assert "fairway" in loaded
    assert loaded & set(FORBIDDEN[verb]) == set()


def test_help_costs_at_most_ten_times_a_bare_python():
    def cpu(*command):
        spent = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(spent)

    assert cpu("-m", "fairway", "--help") <= 10 * max(cpu("-c", "pass"), 0.005)


def test_a_reader_that_has_enough_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-m", "fairway", "crds"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(60) == 0
    process.stderr.close()


def test_the_crds_are_those_of_the_repository(capsys):
    import yaml

    from fairway.api.crd import crds

    assert main(["crds"]) == 0
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == list(crds().values())


def test_ctrl_c_is_no_traceback():
    code = "import fairway.cli.version as v\ndef stop(_): raise KeyboardInterrupt\nv.main = stop\n"
    code += "import sys; from fairway.cli.main import main; sys.exit(main(['version']))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_a_leash_of_a_parent_that_is_gone_ends_the_program():
    ended = program("version", env={**os.environ, "FAIRWAY_LEASH": "1"})
    assert (ended.returncode, ended.stdout) == (137, "")
