"""What mutants change: the expressions of functions that decide something, and what can be put in their place."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a syntax tree that holds an expression."""

    parent: ast.AST
    field: str
    index: int | None  # position, if the field is a list
    node: ast.expr

    def put(self, node: ast.expr) -> None:
        ast.copy_location(node, self.node)
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def slots(node: ast.AST, inside: bool = False) -> Iterator[Slot]:
    """Every expression in the bodies of functions, in a fixed order, without assertions, annotations and defaults."""
    inside = inside or isinstance(node, ast.FunctionDef)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "args", "decorator_list") and not isinstance(node, ast.Call):
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.Assert) or not isinstance(child, ast.AST):
                continue
            if inside and isinstance(child, ast.expr):
                yield Slot(node, field, index if isinstance(value, list) else None, child)
            yield from slots(child, inside)


def variants(slot: Slot) -> list[ast.expr]:
    """The expressions that can replace the one in the slot; none if it decides nothing."""
    node = slot.node
    found: list[ast.expr] = []
    match node:
        case ast.Compare():
            for place, op in enumerate(node.ops):
                for other in _COMPARISONS[type(op)]:
                    found.append(changed := copy.deepcopy(node))
                    changed.ops[place] = other()
            for moved in moved_constants(node.left):
                found.append(ast.Compare(moved, copy.deepcopy(node.ops), copy.deepcopy(node.comparators)))
            for place, operand in enumerate(node.comparators):
                for moved in moved_constants(operand):
                    found.append(changed := copy.deepcopy(node))
                    changed.comparators[place] = moved
        case ast.BoolOp():
            found.append(ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), copy.deepcopy(node.values)))
            for place in range(len(node.values)):
                rest = [copy.deepcopy(value) for other, value in enumerate(node.values) if other != place]
                found.append(rest[0] if len(rest) == 1 else ast.BoolOp(copy.deepcopy(node.op), rest))
        case ast.UnaryOp(op=ast.Not()):
            found.append(copy.deepcopy(node.operand))
        case ast.IfExp():
            found += [copy.deepcopy(node.body), copy.deepcopy(node.orelse)]
        case ast.BinOp() if slot.field == "slice":
            pass  # `conn[s - 1]` is an index that counts from 1; it decides nothing
        case ast.BinOp(op=ast.Add() | ast.Sub()) if not is_text(node.left) and not is_text(node.right):
            other_op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            found.append(ast.BinOp(copy.deepcopy(node.left), other_op, copy.deepcopy(node.right)))
            found += (
                ast.BinOp(copy.deepcopy(node.left), copy.deepcopy(node.op), moved) for moved in moved_constants(node.right)
            )
        case ast.Name() | ast.Attribute() | ast.Call() if slot.field in ("test", "ifs"):
            found.append(ast.UnaryOp(ast.Not(), copy.deepcopy(node)))
    return found


def moved_constants(operand: ast.expr) -> list[ast.expr]:
    """A constant plus one and minus one."""
    match operand:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return [ast.Constant(value + by) for by in (1, -1)]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return [ast.UnaryOp(ast.USub(), ast.Constant(value + by)) for by in (1, -1)]
    return []


def is_text(node: ast.expr) -> bool:
    """Return True for bytes, strings and tuples, which have no minus."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, str | bytes)
        case ast.JoinedStr() | ast.Tuple() | ast.List():
            return True
        case ast.Call(func=ast.Name(id="bytes" | "blank" | "tuple")) | ast.Call(func=ast.Attribute(attr="encode")):
            return True
        case ast.BinOp():
            return is_text(node.left) or is_text(node.right)
    return False
