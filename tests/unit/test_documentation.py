"""What the pages show can be typed: blocks are Python, programs and their options exist, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from scripts.site_pages import with_links_of_site
from tests.documentation import PAGES, ROOT, Block, fenced, indented, text_of

from pyspark_kafka_direct.broker.__main__ import argument_parser as broker_parser

LANGUAGES = {"python", "python fragment", "sh", "ini", "text", "mermaid", "yaml"}
MODULES = {"pyspark_kafka_direct.broker": broker_parser()}

PYTHON = [block for page in PAGES for block in fenced(page) if block.language.startswith("python")]
COMMANDS = [
    (f"{block.page}:{block.line}", command)
    for page in PAGES
    for block in [*indented(page), *(block for block in fenced(page) if block.language == "sh")]
    for command in re.sub(r"\\\n", " ", block.text).splitlines()
]


@pytest.mark.parametrize("page", PAGES)
def test_each_block_names_what_it_is(page: str) -> None:
    assert {block.language for block in fenced(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_python_can_be_compiled(page: str) -> None:
    for block in PYTHON:
        if block.page == page:
            compile("\n" * (block.line - 1) + block.text, page, "exec")


def test_example_servers_listen_on_this_host_only() -> None:
    texts = [text_of(page) for page in PAGES]
    texts += [
        file.read_text(encoding="utf-8") for folder in ("src", "examples") for file in (ROOT / folder).rglob("*.py")
    ]
    servers = [call for text in texts for call in re.findall(r"start_http_server\([^)]*\)", text)]
    assert servers
    assert {'addr="127.0.0.1"' in call for call in servers} == {True}


def test_examples_end_although_the_sample_produces() -> None:
    """``processAllAvailable`` returns at a trigger without new records, and the sample produces 20 per second."""
    assert [block for block in PYTHON if "processAllAvailable()" in block.text] == []


@pytest.mark.parametrize("page", PAGES)
def test_python_stands_between_fences_where_it_is_run(page: str) -> None:
    assert [block.line for block in indented(page) if is_python(block)] == []


def is_python(block: Block) -> bool:
    try:
        compile(block.text, block.page, "exec")
    except SyntaxError:
        return False
    return "(" in block.text


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_their_options_exist(page: str) -> None:
    assert [wrong for place, command in COMMANDS if place.startswith(f"{page}:") if (wrong := wrong_in(command))] == []


def wrong_in(command: str) -> str | None:
    """What does not exist of what a line of a shell names."""
    if not command.startswith(("make", "python", "pip")):
        return None  # a text, or a program of others
    words = shlex.split(command.split("  #")[0].split(" -- ")[0], comments=True)
    match words:
        case ["make", *targets]:
            known = set(re.findall(r"^([\w%.-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
            return next((each for each in targets if "=" not in each and each not in known), None)
        case ["python", "-m", module, *options] if module in MODULES:
            MODULES[module].parse_args([each for each in options if each != "&"])
        case ["python", script, *_] if script.endswith(".py") and "/" in script:
            return None if (ROOT / script).is_file() else script
        case ["pip", "install", *packages]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            for name in re.findall(r"pyspark-kafka-direct\[(\w+)\]", " ".join(packages)):
                return None if name in extras["optional-dependencies"] else name
    return None


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    here = Path(page).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        file = ROOT / here / name if name else ROOT / page
        assert file.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(file), f"{page}: {target}"


@pytest.mark.parametrize(
    ("page", "link", "of_site"),
    [
        ("benchmarks.md", "../bench/results/quick.md", "bench/results/quick.md"),
        ("benchmarks.md", "continuous.md#latency", "continuous.md#latency"),
        ("tests/evidence/acceptance.md", "../../docs/sink.md#topics", "../../sink.md#topics"),
        ("tests/evidence/soaks.md", "guarantees-evidence.md#soaks", "guarantees-evidence.md#soaks"),
        ("benchmarks.md", "../bench/results/no-such-page.md", "../bench/results/no-such-page.md"),
        ("benchmarks.md", "https://kafka.apache.org/sink.md", "https://kafka.apache.org/sink.md"),
    ],
)
def test_links_between_folders_are_those_of_the_site(page: str, link: str, of_site: str) -> None:
    evidence = ["acceptance.md", "guarantees-evidence.md", "soaks.md"]
    pages = ["benchmarks.md", "sink.md", "continuous.md", "bench/results/quick.md"]
    pages += [f"tests/evidence/{name}" for name in evidence]
    assert with_links_of_site(f"a [link]({link}).", page, pages) == f"a [link]({of_site})."


def anchors(file: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("make test", None),
        ("make soak ROUNDS=30        # a note", None),
        ("make no-such-target", "no-such-target"),
        ("python examples/no_such.py    # a note", "examples/no_such.py"),
        ("pip install 'pyspark-kafka-direct[nothing]'", "nothing"),
        ("python -m pyspark_kafka_direct.broker --sample flights --topic copies:3", None),
    ],
    ids=["a target", "with a variable", "no target", "no example", "no extra", "options"],
)
def test_what_does_not_exist_would_be_seen(command: str, wrong: str | None) -> None:
    assert wrong_in(command) == wrong


def test_an_option_that_does_not_exist_would_be_seen() -> None:
    with pytest.raises(SystemExit):
        wrong_in("python -m pyspark_kafka_direct.broker --no-such-option")


def test_each_recipe_of_the_runbook_has_a_test() -> None:
    tests = (ROOT / "tests" / "integration" / "test_runbook.py").read_text(encoding="utf-8")
    recipes = re.findall(r"^## (.*)$", text_of("docs/runbook.md"), re.MULTILINE)
    assert recipes
    assert [recipe for recipe in recipes if f'"{recipe}"' not in tests] == []


def test_blocks_are_found() -> None:
    assert len(PYTHON) > 50
    assert any(command.startswith("make soak-direct") for _, command in COMMANDS)
    assert is_python(Block("a", 1, "", "spark.read.load()"))
    assert not is_python(Block("a", 1, "", "make test"))


def test_the_functions_of_the_paths_exist() -> None:
    page = text_of("docs/architecture.md")
    paths = page[page.index("## Five paths") : page.index("## Requests and time")]
    named = re.findall(r"`((?:[a-z_]+\.)+(?:[A-Z]\w+\.)?\w+)`", paths)
    assert len(named) > 60
    assert [name for name in named if not exists(name)] == []
    assert not exists("log.log_worker.LogWorker.no_such_method")


def exists(name: str) -> bool:
    """Return whether the package has this function or class."""
    parts = name.split(".")
    modules = [part for part in parts if part.islower()]
    while True:
        try:
            found: object = import_module(".".join(["pyspark_kafka_direct", *modules]))
            break
        except ModuleNotFoundError:
            modules.pop()
    for part in parts[len(modules) :]:
        found = getattr(found, part, None)
    return found is not None


def test_errors_are_found_on_the_page_about_them() -> None:
    """Each text of ours that the page about trouble has in a title is said somewhere in the source."""
    page = text_of("docs/troubleshooting.md")
    titles = re.findall(r"^### (.*)$", page[page.index("## Messages of this package") :], re.MULTILINE)
    quoted = [text for title in titles for text in re.findall(r"`([^`]+)`", title)]
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py"))
    said = re.sub(r'"\s*\n\s*f?"', "", sources)  # literals that Python joins
    assert len(quoted) > 10
    assert "advertises this address (advertised.listeners); it is not in" in quoted
    assert [text for text in quoted if text not in said] == []
