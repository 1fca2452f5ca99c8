# SPDX-License-Identifier: MIT
"""What the documents say is so: their commands run, their programs compile, their figures are those
of the program, and what they name exists."""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from builds import python_package
from program import SAMPLE, SOURCE, STINT, stint
from server import Server, free_port

BUILD = pathlib.Path(os.environ.get("STINT_BUILD", SOURCE / "build"))
README = SOURCE / "README.md"
EMBEDDING = SOURCE / "docs/embedding.md"
ALGORITHMS = SOURCE / "docs/algorithms.md"
PLAN = SOURCE / "docs/plan.md"
RULES = SOURCE / "docs/rules.md"
HOW = SOURCE / "docs/how-it-works.md"
COMMANDS = SOURCE / "docs/commands.md"
DOCUMENTS = sorted(path for pattern in ("*.md", "docs/*.md", "docs/decisions/*.md")
                   for path in SOURCE.glob(pattern))
PAGES = sorted((SOURCE / "docs/man").glob("*.scd"))

STRICT_C = ["cc", "-std=c17", "-Wall", "-Wextra", "-Werror", "-pedantic"]


def blocks(path, language):
    """(line, text, text of the `text` block that follows or None) of each block in a language."""
    found = []
    fence = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n*```text\n(.*?)^```\n)?", re.M | re.S)
    text = path.read_text()
    position = 0
    while match := fence.search(text, position):
        name, inside, output = match.groups()
        if name == language:
            found.append((text.count("\n", 0, match.start()) + 1, inside, output))
        position = match.end()
    return found


def shell_blocks():
    return [pytest.param(path, inside, output, id=f"{path.name}:{line}")
            for path in (README, HOW, COMMANDS, EMBEDDING, ALGORITHMS, PLAN, RULES)
            for line, inside, output in blocks(path, "sh")]


def same(told, printed):
    """Whether a document's output is the program's. A line `...` stands for any lines; the hashes
    of a table and the sizes of its memory differ from table to table and version to version."""
    pattern = re.escape(told)
    pattern = re.sub(r"(?m)^\\\.\\\.\\\.\\\n", r"(?:.*\\n)*", pattern)
    pattern = re.sub(r"\b0000[0-9a-f]{12}\b", "[0-9a-f]{16}", pattern)
    pattern = re.sub(r"\d+\\\.\d(\\ [kM]B)", r"[0-9.]+\1", pattern)
    return re.fullmatch(pattern, printed) is not None


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Where a reader of the documents stands who has built and installed stint."""
    stage = tmp_path_factory.mktemp("stage")
    subprocess.run(["meson", "install", "-C", str(BUILD), "--no-rebuild", "--destdir", str(stage)],
                   check=True, capture_output=True)
    (page,) = stage.rglob("stint.pc")
    (header,) = stage.rglob("stint.h")
    libraries = page.parent.parent
    return dict(os.environ, PATH=f"{pathlib.Path(STINT).parent}:{os.environ['PATH']}",
                PKG_CONFIG_LIBDIR=str(page.parent), PKG_CONFIG_SYSROOT_DIR=str(stage),
                CMAKE_PREFIX_PATH=str(header.parent.parent),
                LD_LIBRARY_PATH=str(libraries))


@pytest.fixture
def scratch(tmp_path):
    shutil.copytree(SOURCE / "examples", tmp_path / "examples")
    (tmp_path / "build-release").symlink_to(BUILD)
    return tmp_path


def make(*arguments):
    """What `make` would run."""
    done = subprocess.run(["make", "-n", "-C", str(SOURCE), *arguments], capture_output=True,
                          text=True, env={"PATH": os.environ["PATH"]}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- Commands -----------------------------------------------------------------------------------


def test_there_are_commands():
    assert len(blocks(README, "sh")) >= 6 and len(blocks(ALGORITHMS, "sh")) >= 7
    for path in DOCUMENTS:
        fences = re.findall(r"(?m)^```(.*)$", path.read_text())
        assert len(fences) % 2 == 0, path
        assert set(fences) <= {"", "sh", "text", "c", "yaml", "python", "diff", "promql"}, path


PORTS = {"7379": "resp", "8080": "http", "8081": "grpc"}


@pytest.fixture(scope="module")
def server():
    """What `make run` starts, at ports that nobody uses."""
    with Server("--config", SOURCE / "examples/serve.yaml") as running:
        yield running


@pytest.fixture
def at_its_ports(server, scratch):
    """The same text with the ports of that server, and of an nginx of the test's own."""
    ports = {port: str(server.port(frontend)) for port, frontend in PORTS.items()}
    ports |= {port: str(free_port()) for port in ("8088", "8089")}

    def exchange(text):
        return re.sub(r"\b(7379|808[0189])\b", lambda port: ports[port[1]], text)

    config = scratch / "examples/nginx/nginx.conf"
    config.write_text(exchange(config.read_text()))
    return exchange


def asks_a_server(commands):
    return re.search(r"\b(7379|808[0189])\b|stint (take|peek|reset|top)\b", commands)


def at_free_ports(commands):
    """Servers that a block starts itself, at ports that nobody uses."""
    ports = {port: str(free_port()) for port in re.findall(r"\b7[34]\d\d\b", commands)}
    return re.sub(r"\b7[34]\d\d\b", lambda port: ports[port[0]], commands)


def files_in(folder):
    return {path.relative_to(folder) for path in folder.rglob("*")}


@pytest.mark.parametrize("page,commands,output", shell_blocks())
def test_a_block_of_commands(page, commands, output, scratch, environment, request):
    """A shell runs it as it stands. Targets of make are looked up: they would run this test. Those
    of the README leave a checkout as it was."""
    targets = re.findall(r"(?m)^make (\w+)", commands)
    for target in targets:
        assert make(target)
    commands = re.sub(r"(?m)^make .*\n", "", commands)
    if targets and not commands.strip():
        return
    if asks_a_server(commands):
        commands = request.getfixturevalue("at_its_ports")(commands)
        url = request.getfixturevalue("server").url("")
        environment = dict(environment, STINT_URL=url)
    elif "redis-server" in commands:
        commands = at_free_ports(commands)
    before = files_in(scratch)
    done = subprocess.run(["sh", "-e", "-c", commands], cwd=scratch, env=environment,
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    if page == README:
        assert files_in(scratch) == before
    assert done.stderr == ""
    if output is not None:
        assert same(output, done.stdout), done.stdout


def test_make_run_serves_what_the_readme_asks():
    recipe = make("run")
    assert "build-release/src/cmd/stint serve --config examples/serve.yaml" in recipe
    hints = re.findall(r"(?m)^echo ['\"] +(.*?)['\"]$", recipe)
    assert len(hints) == 3, recipe
    for hint, word in zip(hints, ("redis-cli -p 7379", "/v1/take", "nginx -p")):
        assert word in hint and word in README.read_text()


def test_make_replay_takes_what_the_readme_gives_it():
    ((quota, log),) = re.findall(r"`make replay QUOTA='(.*?)' LOG=(\S+)`", README.read_text())
    assert f"--quota '{quota}'" in make("replay", f"QUOTA={quota}", f"LOG={log}")
    (recipe,) = [line for line in make("replay").splitlines() if " replay " in line]
    recipe = recipe.replace("build-release/src/cmd/stint", STINT)
    done = subprocess.run(["sh", "-c", recipe], cwd=SOURCE, capture_output=True, text=True,
                          check=True)
    assert SAMPLE.name in done.stdout and "keys denied most" in done.stdout


def test_what_is_built_is_ignored_by_git_and_removed_by_make_clean():
    recipes = (SOURCE / "Makefile").read_text() + (SOURCE / "tools/run_tests.py").read_text()
    assert {"build-release", "build-test"} <= set(re.findall(r"\bbuild-\w+", recipes))
    assert "rm -rf build build-*\n" in make("clean")
    assert {"/build*/", "__pycache__/"} <= set((SOURCE / ".gitignore").read_text().splitlines())


def test_make_test_runs_this():
    assert "tools/run_tests.py" in make("test")
    assert (SOURCE / "tools/run_tests.py").exists()
    assert "'test_readme'" in (SOURCE / "tests/meson.build").read_text()


# ---- Programs -----------------------------------------------------------------------------------


def compiled(text, folder, environment):
    (folder / "program.c").write_text(text)
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "stint"], env=environment,
                           capture_output=True, text=True, check=True).stdout.split()
    done = subprocess.run([*STRICT_C, "program.c", *flags, "-o", "program"], cwd=folder,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return subprocess.run(["./program"], cwd=folder, env=environment, capture_output=True,
                          text=True, check=True).stdout


def test_the_example_in_the_readme(tmp_path, environment):
    ((_, text, _),) = blocks(README, "c")
    assert text.count("\n") <= 25
    assert compiled(text, tmp_path, environment) == "200 OK\n" * 3 + "429 Too Many Requests\n"


def test_the_example_in_python(tmp_path):
    """Those of docs/python.md are run by bindings/python/tests/test_docs.py."""
    ((_, text, output),) = blocks(README, "python")
    assert text.count("\n") <= 10
    path = str(python_package())
    done = subprocess.run([sys.executable, "-c", text.replace("/dev/shm", str(tmp_path))],
                          env=dict(os.environ, PYTHONPATH=path), capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    # The wait is up to 62.5 s, less the time since the first take.
    assert re.fullmatch(output.replace("63", "6[0-3]"), done.stdout), done.stdout


def test_the_program_in_the_page_on_embedding(tmp_path, environment):
    parts = blocks(EMBEDDING, "c")
    program = "\n".join(text for _, text, _ in parts)
    assert compiled(program, tmp_path, environment) == parts[-1][2]


# ---- Figures and names --------------------------------------------------------------------------


def table_rows():
    text = README.read_text()
    table = text[text.index("| quota | most in any window |"):].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")]
            for line in table.splitlines()[2:]]


def test_the_table_of_algorithms_is_what_explain_says():
    header = (SOURCE / "include/stint.h").read_text()
    names = re.search(r"enum stint_algorithm \{(.*?)\};", header, re.S).group(1)
    algorithms = {name.lower() for name in re.findall(r"STINT_(\w+)", names)}
    rows = table_rows()
    assert {row[0].strip("`").split()[0] for row in rows} == algorithms
    for spec, most, slack, size in rows:
        told = json.loads(stint("explain", "--json", spec.strip("`"))[0])
        assert int(most.split()[0]) == told["max_in_any_window"], spec
        assert int(size) == told["state_bytes"], spec
        passed = re.findall(r"more than (\d+)", told["slack"])
        assert re.findall(r"pass (\d+)", slack) == passed, spec
        if not passed:
            assert slack.split(":")[0].split(",")[0] in told["slack"], spec


def test_every_decision_is_in_the_index():
    folder = SOURCE / "docs/decisions"
    index = (folder / "README.md").read_text()
    for path in folder.glob("0*.md"):
        number, title = re.match(r"# (\d{4})\. (.*)", path.read_text()).groups()
        assert path.name.startswith(number)
        assert f"| [{number}]({path.name}) | {title} |" in index


@functools.cache
def words_of_code():
    return {word for folder in ("src", "include", "tests", "tools", "contrib")
            for file in (SOURCE / folder).rglob("*")
            if file.suffix in {".c", ".h", ".py", ".sh", ".conf"} and file.name != "test_readme.py"
            for word in re.findall(r"\w+", file.read_text())}


@pytest.mark.parametrize("path", [ALGORITHMS, SOURCE / "docs/architecture.md",
                                  SOURCE / "docs/semantics.md", README, HOW, EMBEDDING],
                         ids=lambda path: path.name)
def test_names_of_code_and_files_exist(path):
    """A document that names a function, an option, a test or a file has to follow when it goes."""
    words = words_of_code()
    layers = "|".join(folder.name for folder in (SOURCE / "src").iterdir() if folder.is_dir())
    prose = re.sub(r"(?ms)^```.*?^```$", "", path.read_text())
    for name in re.findall(r"`([^`\n]+)`", prose):
        word = re.sub(r"\(\)$", "", name)
        if re.fullmatch(r"[a-z]\w*_\w+", word):
            metric = re.sub(r"^stint_|_total$", "", word)  # written with and without these
            assert {word, metric} & words, f"{path.name}: {name}"
        elif re.fullmatch(r"(src|tests|docs|tools|fuzz|bench|examples|include)/[\w/.]+", name):
            assert (SOURCE / name).exists(), f"{path.name}: {name}"
        elif re.fullmatch(rf"({layers})/[\w/]+\.[ch]", name):
            assert (SOURCE / "src" / name).exists(), f"{path.name}: {name}"


# ---- Man pages ----------------------------------------------------------------------------------


def test_every_spec_in_the_man_page_is_one():
    (page,) = [path for path in PAGES if path.stem == "stint-spec.7"]
    examples = re.search(r"# EXAMPLES\n\n```\n(.*?)```", page.read_text(), re.S).group(1)
    for spec in examples.splitlines():
        stint("explain", spec)
    names = re.search(r"# OPTIONS\n(.*?)# EXAMPLES", page.read_text(), re.S).group(1)
    options = set(re.findall(r"\*(\w+)=\*", names))
    reader = (SOURCE / "src/algorithm/spec.c").read_text()
    known = re.search(r"option_names\[\] = \{(.*?)\};", reader, re.S)
    assert options == set(re.findall(r'"(\w+)"', known.group(1)))


def test_transcripts_in_man_pages(environment):
    transcripts = 0
    for path in PAGES:
        for command, output in re.findall(r"(?ms)^\$ (.*?)\n(.*?)^```", path.read_text()):
            done = subprocess.run(["sh", "-c", command.replace("\\\\", "\\")], env=environment,
                                  capture_output=True, text=True, check=True)
            assert done.stdout == output, path
            transcripts += 1
    assert transcripts
