"""Makes the mutants of a Cython module: all of them in one syntax tree, of which a number chosen at run time is active.

Cython's own parser reads the module. Each place that can be changed becomes ``original if mutant_is_off(7) else
changed``, so that one build holds every mutant. ``planted.toml`` has the others.
"""

# ruff: noqa: N802, N815
# mypy: allow-untyped-calls, disable-error-code="attr-defined, union-attr, method-assign, unused-ignore"

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from Cython.Compiler import ExprNodes, Main, Nodes
from Cython.Compiler.StringEncoding import EncodedString
from Cython.Compiler.Visitor import VisitorTransform

SWITCH = "mutant_is_off"
FIRST_COLUMN = 1_000_000
"""A changed expression has this column plus its number, so that an error of Cython names the mutant."""

COMPARISONS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "is": "is_not",
    "is_not": "is",
    "in": "not_in",
    "not_in": "in",
}
OPERATORS = {"+": "-", "-": "+", "*": "+", "//": "*", "/": "*", "%": "*", "&": "|", "|": "&", "<<": ">>", ">>": "<<"}
NUMBERS = {"int32_t", "int64_t", "uint32_t", "uint64_t", "size_t", "Py_ssize_t"}
CONSTANT = re.compile(r"[A-Z][A-Z0-9_]+$")
ACTIONS = {
    "ACTION_ABORT": ("ACTION_CONTINUE", 3),
    "ACTION_BREAK": ("ACTION_CONTINUE", 2),
    "ACTION_CONTINUE": ("ACTION_BREAK", -2),
}
"""A handler's possible results, and their replacements: its name and the difference."""


@dataclass(frozen=True)
class Mutant:
    """One fault: where it is and what it changes."""

    number: int
    file: str
    line: int
    column: int
    function: str
    mutation: str
    original: str
    """The source line."""

    @property
    def key(self) -> str:
        """The name of the mutant in every build of the same source."""
        return f"{self.file}:{self.line}:{self.column}: {self.mutation}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}: {self.mutation} in: {self.original}"


@dataclass(frozen=True)
class Planted:
    """A fault written by hand: whole statements of a file, and what takes their place."""

    file: str
    name: str
    original: str
    mutated: str


class Source:
    """The text of a module with its planted mutants, and which line of the original each of its lines was."""

    def __init__(self, path: str, text: str, planted: Iterable[tuple[int, Planted]]) -> None:
        self.path = path
        self.lines = text.splitlines()
        self.text = list(enumerate(self.lines, 1))
        self.mutants: list[Mutant] = []
        for number, plant in planted:
            self._plant(number, plant)

    def _plant(self, number: int, plant: Planted) -> None:
        wanted = plant.original.strip("\n").splitlines()
        width = len(wanted)
        texts = [line.strip() for _, line in self.text]
        places = [at for at in range(len(texts)) if texts[at : at + width] == [line.strip() for line in wanted]]
        if len(places) != 1:
            raise SystemExit(
                f"planted.toml: {plant.name}: its original is {len(places)} times in {plant.file}, not once"
            )
        (at,) = places
        line = self.text[at][0]
        old = [text for _, text in self.text[at : at + width]]
        indent = re.match(r"\s*", old[0])[0]  # type: ignore[index]
        new = [indent + " " * 4 + text for text in plant.mutated.strip("\n").splitlines()]
        self.text[at : at + width] = [
            (line, f"{indent}if {SWITCH}({number}):"),
            *((line + offset, " " * 4 + text) for offset, text in enumerate(old)),
            (line, f"{indent}else:"),
            *((line, text) for text in new),
        ]
        self.mutants.append(Mutant(number, self.path, line, 0, "planted", plant.name, old[0].strip()))

    def original_line(self, line: int) -> int:
        """The line of the original file behind a line of the text with planted mutants."""
        return self.text[line - 1][0] if line <= len(self.text) else len(self.lines)

    def __str__(self) -> str:
        return "\n".join(line for _, line in self.text) + "\n"


def _copied(node: Any, number: int) -> Any:
    """A copy of an untouched tree, placed in the column that names the mutant."""
    new = copy.deepcopy(node, {id(node.pos[0]): node.pos[0]})
    _move(new, FIRST_COLUMN + number)
    return new


def _move(node: Any, column: int) -> None:
    source, line, _ = node.pos
    node.pos = (source, line, column)
    for name in node.child_attrs or ():
        child = getattr(node, name, None)
        for one in child if isinstance(child, list) else [child]:
            if isinstance(one, Nodes.Node):
                _move(one, column)


def _switch(pos: Any, number: int) -> Any:
    function = ExprNodes.NameNode(pos, name=EncodedString(SWITCH))
    return ExprNodes.SimpleCallNode(pos, function=function, args=[ExprNodes.IntNode(pos, value=str(number))])


def _name(node: Any) -> str:
    """How a report names an expression: its last name."""
    if isinstance(node, ExprNodes.NameNode):
        return str(node.name)
    if isinstance(node, ExprNodes.AttributeNode):
        return str(node.attribute)
    if isinstance(node, ExprNodes.SimpleCallNode | ExprNodes.GeneralCallNode):
        return f"{_name(node.function)}()"
    return "it"


class Mutation(VisitorTransform):  # type: ignore[misc]
    """Puts the mutants of one module into its tree."""

    def __init__(self, source: Source, first: int, dropped: frozenset[str]) -> None:
        super().__init__()
        self.source = source
        self.mutants: list[Mutant] = []
        self.number = first
        self.dropped = dropped
        self.functions: list[Any] = []
        self.constants: set[str] = set()

    # --- making

    def _make(self, node: Any, mutation: str) -> int:
        """The number of a new mutant at a node, or 0 for one that does not compile."""
        line = self.source.original_line(node.pos[1])
        function = ".".join(self._function_name(each) for each in self.functions)
        mutant = Mutant(
            self.number, self.source.path, line, node.pos[2], function, mutation, self.source.lines[line - 1].strip()
        )
        while mutant.key in {each.key for each in self.mutants if each.line == line}:
            mutant = Mutant(**{**asdict(mutant), "column": mutant.column + 1})
        if mutant.key in self.dropped:
            return 0
        self.mutants.append(mutant)
        self.number += 1
        return mutant.number

    @staticmethod
    def _function_name(node: Any) -> str:
        if isinstance(node, Nodes.DefNode):
            return str(node.name)
        declarator = node.declarator
        while not hasattr(declarator, "name"):
            declarator = declarator.base
        return str(declarator.name)

    def _either(self, original: Any, pristine: Any, mutations: list[tuple[str, Callable[[Any], Any]]]) -> Any:
        """The original expression, with one alternative for each mutation of its untouched copy."""
        result = original
        for name, change in mutations:
            number = self._make(pristine, name)
            if number:
                result = ExprNodes.CondExprNode(
                    original.pos,
                    condition=_switch(original.pos, number),
                    true_val=result,
                    false_val=change(_copied(pristine, number)),
                )
        return result

    def _either_statement(self, original: Any, pristine: Any, mutations: list[tuple[str, Callable[[Any], Any]]]) -> Any:
        result = original
        for name, change in mutations:
            number = self._make(pristine, name)
            if number:
                clause = Nodes.IfClauseNode(original.pos, condition=_switch(original.pos, number), body=result)
                result = Nodes.IfStatNode(
                    original.pos, if_clauses=[clause], else_clause=change(_copied(pristine, number))
                )
        return result

    @staticmethod
    def _pristine(node: Any) -> Any:
        return copy.deepcopy(node, {id(node.pos[0]): node.pos[0]})

    # --- where

    def visit_Node(self, node: Any) -> Any:
        self.visitchildren(node)
        return node

    def visit_CEnumDefNode(self, node: Any) -> Any:
        self.constants.update(str(item.name) for item in node.items or ())
        return node

    def visit_FromCImportStatNode(self, node: Any) -> Any:
        names = (str(as_name or name) for _pos, name, as_name, *_ in node.imported_names)
        self.constants.update(name for name in names if CONSTANT.match(name))
        return node

    def visit_CDefExternNode(self, node: Any) -> Any:
        return node

    def visit_FuncDefNode(self, node: Any) -> Any:
        self.functions.append(node)
        node.body = self.visit(node.body)
        self.functions.pop()
        return node

    def visit_ExprNode(self, node: Any) -> Any:
        if self.functions:
            self.visitchildren(node)
        return node

    def _pass_over(self, node: Any) -> Any:
        return node

    visit_LambdaNode = _pass_over
    visit_ScopedExprNode = _pass_over
    visit_YieldExprNode = _pass_over
    visit_AmpersandNode = _pass_over
    visit_SizeofNode = _pass_over
    visit_JoinedStrNode = _pass_over
    visit_AssertStatNode = _pass_over

    def visit_CVarDefNode(self, node: Any) -> Any:
        if self.functions:
            for declarator in node.declarators:
                while declarator is not None:
                    if getattr(declarator, "default", None) is not None:
                        declarator.default = self.visit(declarator.default)
                    declarator = getattr(declarator, "base", None)
        return node

    def visit_TypecastNode(self, node: Any) -> Any:
        if self.functions:
            node.operand = self.visit(node.operand)
        return node

    def visit_ExceptClauseNode(self, node: Any) -> Any:
        node.body = self.visit(node.body)
        return node

    # --- statements

    def visit_ExprStatNode(self, node: Any) -> Any:
        call = node.expr
        if not self.functions or not isinstance(call, ExprNodes.CallNode):
            return node if isinstance(call, ExprNodes.ConstNode | ExprNodes.JoinedStrNode) else self.visit_Node(node)
        pristine = self._pristine(node)
        self.visitchildren(call)
        changes = [(f"{_name(call)} dropped", lambda each: Nodes.PassStatNode(each.pos))]
        return self._either_statement(node, pristine, changes + self._swaps(call, lambda each: each.expr))

    def visit_RaiseStatNode(self, node: Any) -> Any:
        if not self.functions:
            return node
        return self._either_statement(node, node, [("raise dropped", lambda each: Nodes.PassStatNode(each.pos))])

    visit_ReraiseStatNode = visit_RaiseStatNode

    def visit_SingleAssignmentNode(self, node: Any) -> Any:
        if not self.functions:
            return node
        pristine = self._pristine(node)
        node.rhs = self.visit(node.rhs)
        if not isinstance(node.lhs, ExprNodes.AttributeNode | ExprNodes.IndexNode):
            return node
        if self._function_name(self.functions[-1]) in ("__cinit__", "__init__") and _is_zero(pristine.rhs):
            return node  # an object's memory is zero before
        name = f"assignment to {_name(node.lhs)} dropped"
        return self._either_statement(node, pristine, [(name, lambda each: Nodes.PassStatNode(each.pos))])

    def visit_CascadedAssignmentNode(self, node: Any) -> Any:
        node.rhs = self.visit(node.rhs)
        return node

    def visit_InPlaceAssignmentNode(self, node: Any) -> Any:
        if not self.functions:
            return node
        pristine = self._pristine(node)
        node.rhs = self.visit(node.rhs)
        changed = OPERATORS.get(node.operator)

        def change(each: Any) -> Any:
            each.operator = changed
            return each

        return self._either_statement(node, pristine, [(f"{node.operator}= → {changed}=", change)] if changed else [])

    def visit_DelStatNode(self, node: Any) -> Any:
        return node

    def visit_ReturnStatNode(self, node: Any) -> Any:
        value = node.value
        if value is None:
            return node
        kind = self._returned_type()
        if kind == "int" and isinstance(value, ExprNodes.IntNode) and value.value == "0":
            return node  # only says that nothing was raised
        pristine = self._pristine(value)
        node.value = self.visit(value)
        mutations: list[tuple[str, Callable[[Any], Any]]] = []
        known = ExprNodes.ConstNode | ExprNodes.PrimaryCmpNode | ExprNodes.NotNode | ExprNodes.BoolBinopNode
        if isinstance(value, known) or (isinstance(value, ExprNodes.NameNode) and str(value.name) in self.constants):
            return node
        if kind == "bint":
            mutations = [("return x → return not x", lambda each: ExprNodes.NotNode(each.pos, operand=each))]
        elif kind in NUMBERS:
            mutations = [("return x → return x + 1", _plus(1))]
        elif kind == "object":
            mutations = [("return x → return None", lambda each: ExprNodes.NoneNode(each.pos))]
        node.value = self._either(node.value, pristine, mutations)
        return node

    def _returned_type(self) -> str:
        function = self.functions[-1]
        if isinstance(function, Nodes.DefNode):
            return "object"
        if not isinstance(function.declarator.base, Nodes.CNameDeclaratorNode):
            return "pointer"
        name = str(getattr(function.base_type, "name", None))
        return "object" if name == "None" or name in ("object", "str", "bytes", "list", "tuple") else name

    def _negated(self, node: Any) -> Any:
        condition = node.condition
        pristine = self._pristine(condition)
        node.condition = self.visit(condition)
        node.body = self.visit(node.body)
        repeats = isinstance(condition, ExprNodes.NotNode | ExprNodes.BoolNode) or (
            isinstance(condition, ExprNodes.PrimaryCmpNode)
            and condition.operator in ("==", "!=", "is", "is_not", "in", "not_in")
        )
        if self.functions and not repeats:
            change = [("condition negated", lambda each: ExprNodes.NotNode(each.pos, operand=each))]
            node.condition = self._either(node.condition, pristine, change)
        return node

    def visit_IfClauseNode(self, node: Any) -> Any:
        if isinstance(node.condition, ExprNodes.SimpleCallNode) and _name(node.condition.function) == SWITCH:
            node.body = self.visit(node.body)
            return node
        return self._negated(node)

    def visit_IfStatNode(self, node: Any) -> Any:
        is_planted = _name(getattr(node.if_clauses[0].condition, "function", None)) == SWITCH
        node.if_clauses = [self.visit(clause) for clause in node.if_clauses]
        if node.else_clause is not None and not is_planted:
            node.else_clause = self.visit(node.else_clause)
        return node

    def visit_WhileStatNode(self, node: Any) -> Any:
        if node.else_clause is not None:
            node.else_clause = self.visit(node.else_clause)
        return self._negated(node)

    # --- expressions

    def visit_PrimaryCmpNode(self, node: Any) -> Any:
        if not self.functions:
            return node
        pristine = self._pristine(node)
        self.visitchildren(node)
        changes = [_comparison(node.operator, 0)]
        cascade, depth = node.cascade, 1
        while cascade is not None:
            changes.append(_comparison(cascade.operator, depth))
            cascade, depth = cascade.cascade, depth + 1
        return self._either(node, pristine, changes)

    def visit_BoolBinopNode(self, node: Any) -> Any:
        if not self.functions:
            return node
        pristine = self._pristine(node)
        self.visitchildren(node)
        changed = "or" if node.operator == "and" else "and"

        def change(each: Any) -> Any:
            # Twice negated: Cython takes `x == A and x == B`, which nobody writes, for a switch with both cases.
            each.operand1 = ExprNodes.NotNode(each.pos, operand=ExprNodes.NotNode(each.pos, operand=each.operand1))
            each.operator = changed
            return each

        return self._either(node, pristine, [(f"{node.operator} → {changed}", change)])

    def visit_NotNode(self, node: Any) -> Any:
        if not self.functions:
            return node
        pristine = self._pristine(node)
        self.visitchildren(node)

        def change(each: Any) -> Any:
            # Twice negated: the value is a truth value as it was.
            return ExprNodes.NotNode(each.pos, operand=each)

        return self._either(node, pristine, [("not x → x", change)])

    def visit_CondExprNode(self, node: Any) -> Any:
        if not self.functions:
            return node
        pristine = self._pristine(node)
        self.visitchildren(node)

        def change(each: Any) -> Any:
            each.true_val, each.false_val = each.false_val, each.true_val
            return each

        return self._either(node, pristine, [("x if c else y → y if c else x", change)])

    def visit_BoolNode(self, node: Any) -> Any:
        if not self.functions:
            return node
        changed = not node.value
        return self._either(
            node, node, [(f"{node.value} → {changed}", lambda each: ExprNodes.BoolNode(each.pos, value=changed))]
        )

    def visit_IntNode(self, node: Any) -> Any:
        if not self.functions:
            return node
        value = int(str(node.value), 0)
        changes = []
        for changed in (value + 1, value - 1) if value > 1 else (value + 1,):
            changes.append((f"{node.value} → {changed}", _constant(node, changed)))
        return self._either(node, self._pristine(node), changes)

    def visit_NameNode(self, node: Any) -> Any:
        if not self.functions or str(node.name) not in self.constants or not CONSTANT.match(str(node.name)):
            return node
        changed, difference = ACTIONS.get(str(node.name), (f"{node.name} + 1", 1))
        return self._either(node, self._pristine(node), [(f"{node.name} → {changed}", _plus(difference))])

    def visit_BinopNode(self, node: Any) -> Any:
        texts = ExprNodes.UnicodeNode | ExprNodes.BytesNode | ExprNodes.JoinedStrNode
        if not self.functions or isinstance(node.operand1, texts) or isinstance(node.operand2, texts):
            return node
        pristine = self._pristine(node)
        self.visitchildren(node)
        changed = OPERATORS.get(node.operator)
        if changed is None:
            return node

        def change(each: Any) -> Any:
            return ExprNodes.binop_node(each.pos, changed, each.operand1, each.operand2)

        return self._either(node, pristine, [(f"{node.operator} → {changed}", change)])

    def visit_CallNode(self, node: Any) -> Any:
        if not self.functions:
            return node
        pristine = self._pristine(node)
        self.visitchildren(node)
        return self._either(node, pristine, self._swaps(pristine, lambda each: each))

    def visit_AttributeNode(self, node: Any) -> Any:
        if self.functions and isinstance(node.obj, ExprNodes.CallNode | ExprNodes.AttributeNode | ExprNodes.IndexNode):
            node.obj = self.visit(node.obj)
        return node

    @staticmethod
    def _swaps(call: Any, find: Callable[[Any], Any]) -> list[tuple[str, Callable[[Any], Any]]]:
        arguments = _arguments(call)

        def swapped(at: int) -> Callable[[Any], Any]:
            def change(each: Any) -> Any:
                values = _arguments(find(each))
                values[at], values[at + 1] = values[at + 1], values[at]
                return each

            return change

        return [
            (f"arguments {at + 1} and {at + 2} of {_name(call)} swapped", swapped(at))
            for at in range(len(arguments) - 1)
            if not (isinstance(arguments[at], ExprNodes.StarredUnpackingNode))
        ]


def _arguments(call: Any) -> list[Any]:
    if isinstance(call, ExprNodes.SimpleCallNode):
        return call.args or []
    positional = getattr(call, "positional_args", None)
    return positional.args if isinstance(positional, ExprNodes.TupleNode) else []


def _is_zero(node: Any) -> bool:
    return isinstance(node, ExprNodes.NullNode | ExprNodes.NoneNode) or (
        isinstance(node, ExprNodes.BoolNode | ExprNodes.IntNode) and str(node.value) in ("False", "0")
    )


def _comparison(operator: str, depth: int) -> tuple[str, Callable[[Any], Any]]:
    def change(each: Any) -> Any:
        part = each
        for _ in range(depth):
            part = part.cascade
        part.operator = COMPARISONS[operator]
        return each

    return f"{operator} → {COMPARISONS[operator]}".replace("_", " "), change


def _constant(node: Any, value: int) -> Callable[[Any], Any]:
    def change(each: Any) -> Any:
        return ExprNodes.IntNode(
            each.pos, value=str(value), unsigned=node.unsigned, longness=node.longness, is_c_literal=node.is_c_literal
        )

    return change


def _plus(difference: int) -> Callable[[Any], Any]:
    def change(each: Any) -> Any:
        return ExprNodes.binop_node(each.pos, "+", each, ExprNodes.IntNode(each.pos, value=str(difference)))

    return change


def install(source: Source, first: int, dropped: frozenset[str]) -> list[Mutation]:
    """Has Cython put mutants into the next module that it reads; the transform is then in the list."""
    made: list[Mutation] = []
    parse = Main.Context.parse

    def parse_mutated(context: Any, source_desc: Any, scope: Any, pxd: Any, full_module_name: Any) -> Any:
        tree = parse(context, source_desc, scope, pxd, full_module_name)
        if not pxd and not made and Path(source_desc.filename).name == Path(source.path).with_suffix(".pyx").name:
            made.append(Mutation(source, first, dropped))
            tree = made[0].visit(tree)
            Main.Context.parse = parse
        return tree

    Main.Context.parse = parse_mutated
    return made


def write(mutants: list[Mutant], path: Path) -> None:
    """Keeps the mutants of a build."""
    path.write_text(json.dumps([asdict(mutant) for mutant in mutants], indent=0))


def read(path: Path) -> list[Mutant]:
    """The mutants of a build."""
    return [Mutant(**fields) for fields in json.loads(path.read_text())]
