"""Edits drawn from the syntax: a decision, a constant, a statement or a return of a function, changed as `formal.changes` can.

Each is made in the text, so that the rest of the file stays as it is. One whose text does not give the syntax that it should is
left out.
"""

import ast
import copy
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from formal.changes import Slot, moved_constants, slots, variants
from formal.tree_copy import ROOT
from mutants.edits import Edit, EditError

FOLDERS: Final = ("impl", "fuzz", "analysis", "reference")
NOT_DRAWN: Final = ("fuzz/faults.py",)  # its texts are planted by the tests themselves
LOGGED: Final = {"debug", "info", "warning", "error", "exception", "log"}


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the syntax of a file: `new` in the place of `old`."""

    kind: str
    old: ast.stmt | ast.expr
    new: ast.stmt | ast.expr

    @property
    def line(self) -> int:
        return self.old.lineno


def draw(count: int, seed: int, only: Sequence[str] = ()) -> list[Edit]:
    """Draw edits: a file by the number of its changes, then a kind, then one of that kind; at most one edit of a line."""
    rng = random.Random(seed)
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in files(only)}
    left = {file: found for file, text in texts.items() if (found := changes(ast.parse(text)))}
    if not left:
        raise EditError("nothing can be drawn there")
    drawn: list[Edit] = []
    while left and len(drawn) < count:
        (file,) = rng.choices(list(left), [len(found) for found in left.values()])
        kind = rng.choice(sorted({change.kind for change in left[file]}))
        change = rng.choice([change for change in left[file] if change.kind == kind])
        edit = edit_of(file, texts[file], change)
        drawn += [edit] if edit else []
        left[file] = [other for other in left[file] if (other.line != change.line if edit else other is not change)]
        if not left[file]:
            del left[file]
    return drawn


def files(only: Sequence[str] = ()) -> list[str]:
    """The files from which edits are drawn, of those that are wanted."""
    found = [path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    wanted = [file for file in found if not only or any(file == name or file.startswith(f"{name}/") for name in only)]
    return [file for file in wanted if file not in NOT_DRAWN]


def changes(tree: ast.Module) -> list[Change]:
    """Every change that can be drawn in a file."""
    in_texts = {id(node) for outer in ast.walk(tree) if isinstance(outer, ast.JoinedStr) for node in ast.walk(outer)}
    found = []
    for slot in slots(tree):
        if id(slot.node) not in in_texts and id(slot.parent) not in in_texts:  # Python 3.11 does not say where these stand
            found += [Change(_kind(slot.node), slot.node, node) for node in variants(slot)]
            found += _more(slot)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            found += _statements(function)
    return found


def _kind(node: ast.expr) -> str:
    match node:
        case ast.Compare():
            return "another comparison"
        case ast.BoolOp():
            return "another boolean operator, or an operand less"
        case ast.BinOp():
            return "another sum"
        case ast.IfExp():
            return "one arm of a condition always"
    return "a negated condition"


def _more(slot: Slot) -> Iterator[Change]:
    """Changes that the mutants of the model do not have: constants anywhere, and arguments in another order."""
    match slot.node:
        case ast.Constant() if not isinstance(slot.parent, ast.UnaryOp):
            for moved in moved_constants(slot.node):
                yield Change("another constant", slot.node, moved)
        case ast.Call(args=[*arguments]):
            for place, pair in enumerate(pairwise(arguments)):
                if all(isinstance(each, ast.Name | ast.Attribute) for each in pair) and ast.dump(pair[0]) != ast.dump(pair[1]):
                    changed = copy.deepcopy(slot.node)
                    changed.args[place : place + 2] = [changed.args[place + 1], changed.args[place]]
                    yield Change("arguments in another order", slot.node, changed)


def _statements(function: ast.FunctionDef) -> Iterator[Change]:
    """Statements that can be dropped, and constants that a return of the function can return instead."""
    nested = [node for node in ast.walk(function) if isinstance(node, ast.FunctionDef) and node is not function]
    inner = {id(node) for each in nested for node in ast.walk(each)}
    own = [node for node in ast.walk(function) if id(node) not in inner]
    for node in own:
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))) if name in LOGGED:
                pass
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield Change("a statement dropped", node, ast.Pass())
    returns = [node.value for node in own if isinstance(node, ast.Return) and node.value is not None]
    for value in returns:
        for other in {ast.dump(each): each for each in returns if isinstance(each, ast.Constant)}.values():
            if ast.dump(other) != ast.dump(value):
                yield Change("another return", value, copy.deepcopy(other))


def edit_of(file: str, text: str, change: Change) -> Edit | None:
    """The edit of the text, in whole lines; None if the text does not come out with the syntax that is meant."""
    lines = text.splitlines(keepends=True)
    old = change.old
    assert old.end_lineno is not None and old.end_col_offset is not None
    first, last = old.lineno - 1, old.end_lineno - 1
    before = lines[first].encode()[: old.col_offset].decode()
    after = lines[last].encode()[old.end_col_offset :].decode()
    written = ast.unparse(ast.fix_missing_locations(copy.deepcopy(change.new)))
    for form in (written, f"({written})"):
        edited = before + form + after
        if _is_as_meant(text, change, "".join((*lines[:first], edited, *lines[last + 1 :]))):
            story = f"{change.kind}: {ast.unparse(old)}  ->  {written}"
            return Edit(file, "".join(lines[first : last + 1]), edited, story, line=first + 1)
    return None


def _is_as_meant(text: str, change: Change, edited: str) -> bool:
    """Return True if the edited text has the syntax of the text with the change, and another one than the text."""
    place = _place(change.old)

    class Put(ast.NodeTransformer):
        def generic_visit(self, node: ast.AST) -> ast.AST:
            return copy.deepcopy(change.new) if _place(node) == place else super().generic_visit(node)

    try:
        found = ast.dump(ast.parse(edited))
    except SyntaxError:
        return False
    return found != ast.dump(ast.parse(text)) and found == ast.dump(Put().visit(ast.parse(text)))


def _place(node: ast.AST) -> tuple[object, ...]:
    return type(node), *(getattr(node, name, None) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"))
