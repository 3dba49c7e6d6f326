"""Rules of the house: who may import what, what is documented, how long a file is."""

import ast
import doctest
import functools
import gc
import importlib
import inspect
import io
import itertools
import math
import re
import sys
import tokenize
import types
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, few_cases

import nbsketch

PACKAGE = ROOT / "nbsketch"

# An import never goes up the floors. A module has the floor of the longest entry here
# that its name starts with; the package itself holds names only and imports lazily.
FLOORS = {
    "nbsketch": 0,
    "nbsketch._jit": 1,
    "nbsketch._machine": 1,
    "nbsketch._report": 1,
    "nbsketch._quantiles": 1,
    "nbsketch.plots": 1,
    "nbsketch.gram": 2,
    "nbsketch.datasets": 3,
    "nbsketch.kernels": 3,
    "nbsketch.losses": 3,
    "nbsketch.metrics": 3,
    "nbsketch.outputs": 3,
    "nbsketch._expansion": 4,
    "nbsketch.leverage": 4,
    "nbsketch.solvers": 4,
    "nbsketch.sketches": 5,
    "nbsketch.diagnostics": 6,
    "nbsketch._onnx": 6,
    "nbsketch._sketch_map": 6,
    "nbsketch.features": 8,
    "nbsketch.tuning": 6,
    "nbsketch.files": 6,
    "nbsketch.rows": 6,
    "nbsketch.fitting": 7,
    "nbsketch.estimators": 8,
    "nbsketch.structured": 8,
    "nbsketch.tabular": 9,
    "nbsketch.model_selection": 9,
    "nbsketch.conformal": 9,
    "nbsketch.explain": 9,
    "nbsketch.reproduce": 10,
    "nbsketch.cli": 11,
    "nbsketch.__main__": 11,
}
# The highest floor without scikit-learn.
CORE = 5
LONGEST_FILE = 4600  # tokens of code
# What the package has at most, tokens to the next thousand. A commit that raises it or
# the number of files says why; the others only fall.
MOST_FILES = 190
MOST_TOKENS = 291_000
MOST_PACKED = 11  # assignments `a, b = x, y`
MOST_PACKED_CONSTANTS = 0  # those outside functions
MOST_SCATTERED = 55  # constants between functions and classes
# Names of the place where the text was written, which no reader knows.
PRIVATE = ("/" + "work/", "shared" + "/")
TEXT = {".cfg", ".ini", ".json", ".md", ".py", ".rst", ".sh", ".toml", ".txt"}
TEXT |= {".yaml", ".yml"}
DOORS = {".ci", ".github"}


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


parsed = functools.cache(ast.parse)


@pytest.fixture(autouse=True, scope="module")
def no_garbage():
    """Collect no garbage: it would look through all syntax trees each time."""
    gc.disable()
    yield
    gc.enable()


class Imports(ast.NodeVisitor):
    """What a file imports: (module, name or None, inside a function?) of each.

    Imports for type checkers alone count as those inside a function: they do not run.
    """

    def __init__(self, source):
        self.found, self.relative, self._depth = [], False, 0
        self.visit(parsed(source))

    def visit_Import(self, node):
        self.found += [(alias.name, None, self._depth > 0) for alias in node.names]

    def visit_ImportFrom(self, node):
        self.relative |= node.level > 0
        names = [alias.name for alias in node.names]
        self.found += [(node.module or "", name, self._depth > 0) for name in names]

    def visit_If(self, node):
        type_only = "TYPE_CHECKING" in ast.unparse(node.test)
        self._depth += type_only
        for statement in node.body:
            self.visit(statement)
        self._depth -= type_only
        for statement in node.orelse:
            self.visit(statement)

    def visit_FunctionDef(self, node):
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef


SOURCES = {name: path.read_text("utf-8") for name, path in FILES.items()}


@functools.cache
def imports_of(module):
    return Imports(SOURCES[module])


def packages_of(module):
    """Return the top-level packages that a module imports, and whether lazily."""
    return [(name.split(".")[0], lazy) for name, _, lazy in imports_of(module).found]


def own_modules(imports):
    """Return the modules of nbsketch that are imported, lazily or for types or not."""
    own = set()
    for name, attribute, _ in imports.found:
        if name.split(".")[0] == "nbsketch":
            inner = f"{name}.{attribute}"
            own.add(inner if inner in FILES else name)
    return own


def own_imports(module):
    return own_modules(imports_of(module))


def floor(module):
    known = [name for name in FLOORS if f"{module}.".startswith(f"{name}.")]
    entry = max(known, key=len)
    # What is new must be given a floor, not inherit that of the whole package.
    assert entry != "nbsketch" or module == "nbsketch", f"no floor for {module}"
    return FLOORS[entry]


def cycle(graph):
    """Return the modules of a cycle, or None."""
    done, path = set(), []

    def visit(module):
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return None
        path.append(module)
        for other in sorted(graph.get(module, ())):
            if found := visit(other):
                return found
        done.add(path.pop())
        return None

    return next((found for module in graph if (found := visit(module))), None)


def floors_of_the_page():
    """Return the floor of each module in the table of the page for contributors."""
    text = (ROOT / "docs" / "contributing.rst").read_text("utf-8")
    rows = re.findall(r"^   \* - (\d+)\n     - (.+)\n", text, re.M)
    return {
        f"nbsketch.{name}": int(floor)
        for floor, names in rows
        for name in re.findall(r"``([\w.]+)``", names)
    }


def test_the_page_for_contributors_has_these_floors():
    assert floors_of_the_page() == {m: n for m, n in FLOORS.items() if m != "nbsketch"}


def test_no_import_goes_up_the_floors():
    for module, other in ((m, other) for m in FILES for other in own_imports(m)):
        assert other in FILES, f"{module} imports {other}, which is not there"
        assert floor(other) <= floor(module), f"{module} imports {other}"


def test_no_cycles():
    assert cycle({module: own_imports(module) for module in FILES}) is None


def test_a_cycle_would_be_found():
    assert cycle({"a": {"b"}, "b": {"c"}, "c": set()}) is None
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_a_cycle_of_imports_for_type_checkers_would_be_found():
    losses = "if TYPE_CHECKING:\n    from nbsketch.outputs import Output\n"
    outputs = "def f():\n    from nbsketch import losses\n"
    sources = {"nbsketch.losses": losses, "nbsketch.outputs": outputs}
    graph = {name: own_modules(Imports(text)) for name, text in sources.items()}
    assert cycle(graph) == ["nbsketch.losses", "nbsketch.outputs", "nbsketch.losses"]


def test_imports_are_read_as_they_are_meant():
    source = """
import a.b
from c import d as e
if TYPE_CHECKING:
    from f import g
else:
    import h
class K:
    import i
    def method(self):
        import j
try:
    from .k import l
except ImportError:
    pass
"""
    found = Imports(source)
    assert found.relative and not Imports("from a import b").relative
    expected = [("a.b", None, False), ("c", "d", False), ("f", "g", True)]
    expected += [("h", None, False)]
    expected += [("i", None, False), ("j", None, True), ("k", "l", False)]
    assert found.found == expected


def holds_rows(value, X, depth=3):
    """Return whether an array shares memory with X, or an object of ours holds one."""
    if isinstance(value, np.ndarray):
        return np.may_share_memory(value, X)
    ours = type(value).__module__.startswith("nbsketch")
    attributes = list(getattr(value, "__dict__", {}).values()) if ours else []
    parts = list(value) if isinstance(value, tuple | list) else attributes
    return depth > 0 and any(holds_rows(part, X, depth - 1) for part in parts)


def takes_rows(frame, X):
    """Return whether the frame is of one of our functions, called with X."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = map(frame.f_locals.get, names)
    return code.co_filename in MODULES and any(holds_rows(v, X) for v in values)


def modules_of(frame, X):
    """Return the modules that hand X down to a frame, repetitions in a row left out."""
    chain = []
    while frame is not None:
        if takes_rows(frame, X):
            module = MODULES[frame.f_code.co_filename]
            chain[:0] = [module] if chain[:1] != [module] else []
        frame = frame.f_back
    return tuple(chain)


def routes(call, X):
    """Return the chains of modules through which a call hands X down.

    A module is in a chain if one of its functions is being called with X as an
    argument: with X itself, rows of its memory, or an object of ours that holds these.
    """
    found = set()

    def profile(frame, event, _):
        if event == "call" and takes_rows(frame, X):
            found.add(modules_of(frame, X))

    sys.setprofile(profile)
    try:
        call(X)
    finally:
        sys.setprofile(None)
    return found


MODULES = {str(path): module for module, path in FILES.items()}
LONGEST_ROUTE = 8  # changes of the module
FITS = {
    "default": {},
    "fixed": {"bandwidth": 1.0, "size": 20, "alpha": 1e-3},
    "robust": {"loss": "huber", "size": 20},
    "grown": {"bandwidth": 1.0, "size": "auto"},
    "all rows": {"bandwidth": 1.0, "sketch": "identity", "alpha": 1e-3},
}


@pytest.mark.parametrize("parameters", FITS.values(), ids=FITS)
def test_rows_go_down_a_short_way(parameters):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    model = nbsketch.SketchedKernelRegressor(random_state=0, **parameters)
    model.fit(X, y)  # compiles, which takes several times as long under a profiler
    for found in (routes(lambda X: model.fit(X, y), X), routes(model.predict, X)):
        for route in found:
            floors = [floor(module) for module in route]
            assert floors == sorted(floors, reverse=True), f"climbs: {route}"
        longest = max(found, key=len)
        assert 4 <= len(longest) - 1 <= LONGEST_ROUTE, f"{longest}"


def test_a_detour_of_rows_would_be_found():
    X = np.zeros((3, 2))
    kernel = nbsketch.LinearKernel()
    found = max(routes(lambda X: kernel(X[1:]), X), key=len)
    assert found[:2] == ("nbsketch.kernels", "nbsketch.gram.lazy")
    assert routes(lambda X: kernel(np.ones((3, 2))), X) == set()


def importers(*packages, lazily=False):
    """Return the modules that import a package, in functions or also outside them."""
    return {
        module
        for module in FILES
        for name, lazy in packages_of(module)
        if name in packages and lazy <= lazily
    }


def test_compiled_code_is_below():
    found = importers("numba", "llvmlite", lazily=True)
    assert [m for m in found if not m.startswith("nbsketch._jit")] == []


def test_compiled_code_calls_that_of_its_own_file_only():
    # The disk cache detects an edit in another file only if that is declared.
    for module in (m for m in FILES if m.startswith("nbsketch._jit")):
        named = {"nbsketch._jit.compiler"}
        if "threads.__file__" in SOURCES[module]:
            named.add("nbsketch._jit.threads")
        if "sources=_SOURCES" in SOURCES[module]:
            sources = importlib.import_module(module)._SOURCES
            named |= {name for name, path in FILES.items() if str(path) in sources}
        assert own_imports(module) <= named, module


def test_optional_packages_are_imported_when_they_are_needed():
    assert importers("matplotlib", "dask", "distributed") == set()
    assert importers("matplotlib", "dask", lazily=True)  # would be found


def test_scikit_learn_is_above_the_core():
    assert [m for m in importers("sklearn") if floor(m) <= CORE] == []
    below = {m for m in importers("sklearn", lazily=True) if floor(m) <= CORE}
    assert [
        m for m in below if not m.startswith(("nbsketch.datasets", "nbsketch.metrics"))
    ] == []


def test_imports_are_absolute():
    assert [module for module in FILES if imports_of(module).relative] == []


def test_importing_the_package_is_light(run_python):
    code = """
import sys, nbsketch
nbsketch.__version__, dir(nbsketch)
heavy = ("numba", "llvmlite", "numpy", "scipy", "sklearn", "matplotlib", "pandas")
heavy += ("narwhals", "polars", "pyarrow")
print([name for name in heavy if name in sys.modules])
"""
    assert run_python(code) == "[]"


def test_citation_and_changelog_name_the_version():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.findall("^version: (.+)", citation, re.M) == [nbsketch.__version__]
    changelog = (ROOT / "docs" / "changelog.rst").read_text("utf-8")
    assert re.search(r"^\d\S+", changelog, re.M)[0] == nbsketch.__version__


def test_public_names_are_sorted_out():
    assert len(set(nbsketch.__all__)) == len(nbsketch.__all__)
    assert set(nbsketch.__all__) <= set(dir(nbsketch))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = nbsketch.nothing


def test_public_names_are_documented():
    for name in (n for n in nbsketch.__all__ if n != "__version__"):
        public = getattr(nbsketch, name)
        doc = inspect.getdoc(public) if not inspect.isclass(public) else public.__doc__
        assert doc, f"{name} has no docstring"
        first = doc.strip().split("\n\n")[0]
        assert first.rstrip().endswith((".", ":")), f"{name} starts with no sentence"
        if not isinstance(public, types.ModuleType):
            assert "Examples\n" in doc and ">>>" in doc, f"{name} has no example"


LAYOUT = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"}


def code_tokens(source):
    """Yield names, operators and literals, but no strings of documentation."""
    documentation = set()
    for node in ast.walk(parsed(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text and isinstance(node.value.value, str):
            documentation.add((node.lineno, node.col_offset))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if (
            tokenize.tok_name[token.type] not in LAYOUT
            and token.start not in documentation
        ):
            yield token


def packed_assignments(tree):
    """Count `a, b = x, y` without the swaps `a, b = b, a`."""
    pairs = (
        ({ast.unparse(t) for t in node.targets[0].elts}, node.value.elts)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    )
    return sum(not names & {ast.unparse(v) for v in values} for names, values in pairs)


def constants(tree):
    """Return the assignments to names in capitals outside functions and classes."""
    assignments = [n for n in tree.body if isinstance(n, ast.Assign | ast.AnnAssign)]
    targets = [
        getattr(n, "targets", [getattr(n, "target", None)])[0] for n in assignments
    ]
    named = zip(assignments, map(ast.unparse, targets), strict=True)
    return [node for node, name in named if name.isupper()]


def scattered_constants(tree):
    """Count the constants that stand behind the first function or class."""
    defined = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    first = min((node.lineno for node in defined), default=math.inf)
    return sum(node.lineno > first for node in constants(tree))


def repeated_constants(tree):
    """Return the names of the constants that are assigned more than once."""
    nodes = constants(tree)
    names = [ast.unparse(getattr(n, "target", None) or n.targets[0]) for n in nodes]
    return [name for name, count in Counter(names).items() if count > 1]


def class_names(tree):
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def api_page():
    """Return the names of the tables of the API page, relative to the package."""
    lines = (ROOT / "docs" / "api.rst").read_text("utf-8").splitlines()
    return {line.strip() for line in lines if line.startswith("   ")}


# The faces of the package: modules directly below it, without an underscore.
FACES = [m for m in FILES if m.count(".") <= 1 and "._" not in m]


def test_public_names_are_on_the_api_page():
    page = api_page()
    faces = {"__version__", *(m.split(".")[1] for m in FACES if "." in m)}
    for module in FACES:
        names = set(getattr(importlib.import_module(module), "__all__", ())) - faces
        prefix = f"{module}.".removeprefix("nbsketch.")
        assert [n for n in names if not page & {n, prefix + n}] == [], module


@functools.cache
def tokens_of_code(source):
    return len(list(code_tokens(source)))


def test_files_are_short():
    long = [name for name, s in SOURCES.items() if tokens_of_code(s) > LONGEST_FILE]
    assert long == []


def test_the_package_does_not_grow():
    assert len(FILES) <= MOST_FILES
    assert sum(map(tokens_of_code, SOURCES.values())) <= MOST_TOKENS


def test_the_package_unpacks_what_it_packed():
    trees = list(map(parsed, SOURCES.values()))
    assert sum(map(packed_assignments, trees)) <= MOST_PACKED
    outside = [ast.Module(constants(tree), []) for tree in trees]
    assert sum(map(packed_assignments, outside)) <= MOST_PACKED_CONSTANTS
    assert sum(map(scattered_constants, trees)) <= MOST_SCATTERED
    assert [name for tree in trees for name in repeated_constants(tree)] == []


def test_the_name_of_a_class_is_used_once():
    trees = map(parsed, SOURCES.values())
    names = Counter(name for tree in trees for name in class_names(tree))
    assert [name for name, count in names.items() if count > 1] == []


def test_code_is_counted():
    source = (
        '"""Say\nwhat."""\n\n# why\ndef f(\n    x\n):\n    """Do."""\n    return x\n'
    )
    assert tokens_of_code(source) == 8
    packed = ast.parse("a, b = 1, 2\na, b = b, a\na, b = pair\n")
    assert packed_assignments(packed) == 1
    tree = ast.parse("A, B = 1, 2\nclass C: pass\nD: int = 1\nd = 2\n_E = 3\n")
    assert [ast.unparse(node) for node in constants(tree)] == [
        "A, B = (1, 2)",
        "D: int = 1",
        "_E = 3",
    ]
    assert scattered_constants(tree) == 2
    assert repeated_constants(tree) == []
    assert repeated_constants(ast.parse("A = 1\nB: int = 2\nA = 1\n")) == ["A"]
    assert class_names(tree) == ["C"]


def text_files():
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = any(p.startswith(".") and p not in DOORS for p in parts[:-1])
        made = {"__pycache__", "build", "dist", "env", "results", "html"} & set(parts)
        script = parts[0] == ".ci"
        if (
            path.is_file()
            and (script or path.suffix in TEXT)
            and not hidden | bool(made)
        ):
            yield path


def test_the_text_knows_nothing_of_where_it_was_written():
    found = [
        (str(path.relative_to(ROOT)), line)
        for path in text_files()
        for line in path.read_text("utf-8").splitlines()
        if any(word in line for word in PRIVATE)
    ]
    (only,) = found
    assert only[0] == str(Path(".ci", "run"))
    assert only[1].startswith("data_beside_the_checkout=")
    assert Path(__file__) in set(text_files())


def test_no_conflict_of_branches_is_left():
    marks = "<" * 7, ">" * 7
    lines = (line for p in text_files() for line in p.read_text("utf-8").splitlines())
    assert not any(line.startswith(marks) for line in lines)


def test_workflows_call_stages_that_there_are():
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text("utf-8")
    lists = re.findall(r"^ +stage: \[(.+)\]", workflow, re.M)
    called = re.findall(r"\.ci/run ([a-z ]+)", workflow) + lists
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    known = set(re.search(r"^stages=\((.+)\)", script, re.M)[1].split()) | {"full"}
    assert set(re.findall("[a-z]+", " ".join(called))) == known
    assert all(f"\n{stage}() {{\n" in script for stage in known)


def run_examples(module):
    """Run the examples in the docstrings of a module; return how many failed."""
    return doctest.testmod(module).failed


@pytest.mark.parametrize("module", [m for m, s in SOURCES.items() if ">>>" in s])
def test_examples_run(module):
    assert run_examples(importlib.import_module(module)) == 0


@pytest.mark.parametrize("line", ["1 + 1", "1 / 0", "nothing", "import nothing"])
def test_an_example_that_fails_is_reported(line, capsys):
    module = types.ModuleType("made_up", f">>> {line}\n3\n")
    assert run_examples(module) == 1
    assert "1 items had failures" in capsys.readouterr().out


def test_an_error_inside_an_import_is_told(monkeypatch):
    def fail(name):
        raise AttributeError("module 'other' has no attribute 'gone'")

    monkeypatch.setattr(nbsketch, "import_module", fail)
    with pytest.raises(ImportError, match="has no attribute 'gone'") as found:
        exec("from nbsketch import GaussianSketch")
    assert isinstance(found.value.__cause__, AttributeError)
    with pytest.raises(ImportError, match="cannot import name 'NoSketch'"):
        exec("from nbsketch import NoSketch")


def test_a_few_cases_show_each_value_twice():
    grid = list(itertools.product("abcdef", range(4), (True, False)))
    few = [grid[position] for position in few_cases(grid)]
    assert len(few) < len(grid) / 3
    for parameter in zip(*few, strict=True):
        assert min(Counter(parameter).values()) >= 2
    assert len({(letter, number) for letter, number, _ in few}) > 10
