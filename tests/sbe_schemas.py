"""SBE schemas by chance, for tests: what uses every part of the standard, and changes that make it wrong or odd."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from container.sbe.java_values import SIZES

WHOLE = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
CHARSETS = (
    *("UTF-8", "utf8", "UTF8", "ASCII", "US-ASCII", "us-ascii", "ISO-8859-1", "ISO_8859_1", "latin1", "l1", " UTF-8 "),
    *("windows-1252", "Cp1252", "ISO-8859-15", "GB18030", "GBK", "Shift_JIS", "EUC-JP", "Big5", "KOI8-R", "IBM037"),
    *("UTF-16", "UTF-16LE", "UTF_16BE", "UTF-32", "x-MacRoman", "EUC-KR", "windows-31j", "no-such", "EBCDIC", "IBM277"),
)
ODD = (
    *("", "0", "1", "-1", "2", "3", "5", "8", "16", "63", "64", "127", "128", "200", "255", "256", "300", "65535"),
    *(
        "2147483647",
        "2147483648",
        "4294967295",
        "18446744073709551615",
        "99999999999999999999",
        "+1",
        "007",
        " 1",
        "1 ",
    ),
    *("1.5", "NaN", "-Infinity", "0x1p3", "1e999", "A", "AB", "é", "x", "optional", "constant", "required", "true"),
    *("bigEndian", "E1.V0", "E1", "E2.V1", ".", "E1.", ".V0", "C1", "S1", "T1", "D1", "G1", "messageHeader", "varData"),
)
NUMBERS = tuple(one for one in ODD if one.lstrip("+-").isdigit())
LIKELY = {
    "presence": ("optional", "constant", "required"),
    "primitiveType": tuple(SIZES),
    "encodingType": tuple(SIZES),
    "characterEncoding": CHARSETS,
    "variableLength": ("true", "TRUE", "false", "1"),
    "byteOrder": ("bigEndian", "littleEndian", "BIG_ENDIAN"),
    "semanticType": ("Price", "Qty", ""),
    "nullValue": (*NUMBERS, "A", "NaN", "1.5"),
    "minValue": (*NUMBERS, "A", "NaN"),
    "maxValue": (*NUMBERS, "A", "NaN"),
}
LIKELY |= dict.fromkeys(("id", "sinceVersion", "deprecated", "offset", "blockLength", "length", "version"), NUMBERS)
TAGS = ("type", "composite", "enum", "set", "ref", "validValue", "choice", "field", "group", "data", "message", "types")


def schema(random: Random) -> Element:
    """A schema that is meant to be right."""
    return _Maker(random).schema()


def mutate(random: Random, root: Element) -> str:
    """Change a schema in one place; return how."""
    parents = {child: parent for parent in root.iter() for child in parent}
    every = [root, *parents]
    element = random.choice(every)
    names = sorted({name for one in every for name in one.attrib} | set(LIKELY) | {"headerType", "valueRef"})
    kind = random.choice(["set", "set", "set", "remove", "twice", "swap", "take", "move", "tag", "text", "comment"])
    text = f"{kind} {element.tag} {element.get('name')}"
    if kind == "set":
        name = random.choice([*element.attrib, random.choice(names)])
        known = [one.get(name) for one in every if one.get(name) is not None]
        if name in ("type", "dimensionType", "headerType", "encodingType"):
            known += [one.get("name") for one in every if one.tag in ("type", "composite", "enum", "set")] + list(SIZES)
        if name == "valueRef":
            known += [f"{one.get('name')}.{value.get('name')}" for one in every if one.tag == "enum" for value in one]
        likely = (*LIKELY.get(name, ()), *known, "x")
        value = random.choice(likely if random.random() < 0.8 else (*ODD, *CHARSETS)) or ""
        element.set(name, value)
        return f"{text} {name}={value}"
    if kind == "remove" and element.attrib:
        name = random.choice(list(element.attrib))
        del element.attrib[name]
        return f"{text} {name}"
    if kind == "tag":
        element.tag = random.choice(TAGS)
        return f"{text} {element.tag}"
    if kind == "text":
        element.text = random.choice([*ODD, None])
        return f"{text} {element.text}"
    if kind == "comment":
        comment = ElementTree.Comment(random.choice(ODD[:12]))
        comment.tail = element.text if random.random() < 0.5 else random.choice(ODD)
        element.text = random.choice([None, element.text])
        element.insert(0, comment)
        return text
    if element is root:
        return f"nothing {kind}"
    parent = parents[element]
    at = list(parent).index(element)
    if kind == "twice":
        parent.insert(at, deepcopy(element))
    elif kind == "swap":
        other = random.randrange(len(parent))
        parent[at], parent[other] = parent[other], parent[at]
    elif kind == "take":
        parent.remove(element)
    elif kind == "move":
        inside = set(element.iter())
        target = random.choice([one for one in every if one not in inside])
        parent.remove(element)
        target.insert(random.randrange(len(target) + 1), element)
        text += f" to {target.tag} {target.get('name')}"
    return text


class _Maker:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.version = random.randrange(4)
        self.next = 0
        self.simple: list[Element] = []
        self.enums: list[Element] = []
        self.others: list[Element] = []
        self.data: list[str] = []
        self.dimensions: list[str] = []

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def name(self, prefix: str) -> str:
        self.next += 1
        return f"{prefix}{self.next}"

    def schema(self) -> Element:
        random = self.random
        root = Element("messageSchema", package="p", id=str(random.randrange(100)), version=str(self.version))
        if self.chance(0.6):
            root.set("byteOrder", random.choice(["littleEndian", "bigEndian", "bigEndian"]))
        types = [SubElement(root, "types") for _ in range(random.choice([1, 1, 2]))]
        header = "messageHeader"
        if self.chance(0.3):
            header = self.name("Head")
            root.set("headerType", header)
        self.header(random.choice(types), header)
        for number in range(random.randrange(1, 3)):
            self.dimension(random.choice(types), "groupSizeEncoding" if number == 0 else self.name("G"))
            self.data_type(random.choice(types))
        for number in range(random.randrange(1, 7)):
            self.simple.append(self.type(random.choice(types), f"T{number}"))
        for number in range(random.randrange(1, 4)):
            self.enums.append(self.enum(random.choice(types), f"E{number}"))
        for number in range(random.randrange(3)):
            self.others.append(self.set(random.choice(types), f"S{number}"))
        for number in range(random.randrange(4)):
            self.others.append(self.composite(random.choice(types), f"C{number}", 0))
        ids = random.sample(range(1, 101), 4)
        for number in range(random.randrange(1, 4)):
            message = SubElement(root, "message", name=f"M{number}", id=str(ids[number]))
            self.attributes(message)
            self.block(message, 0, is_message=True)
        return root

    # Types

    def attributes(self, element: Element, least: int = 0) -> int:
        """Give what all have; return the version."""
        since = 0
        if self.chance(0.25) and least <= self.version:
            since = self.random.randint(least, self.version)
            element.set("sinceVersion", str(since))
        if self.chance(0.1):
            element.set("deprecated", str(self.random.randrange(5)))
        if self.chance(0.1):
            element.set("description", "what it is")
        if self.chance(0.05):
            element.set("semanticType", self.random.choice(["Price", "Qty"]))
        return since

    def gap(self, element: Element, after: int) -> None:
        """An offset far enough behind what is before it."""
        if self.chance(0.1):
            element.set("offset", str(after + self.random.randrange(4)))

    def header(self, types: Element, name: str) -> None:
        random = self.random
        parts = {"blockLength": ("uint16", "uint16", "uint32"), "templateId": ("uint8", "uint16", "int16", "uint32")}
        parts |= {"schemaId": ("uint16", "uint16", "uint8", "int32"), "version": ("uint16", "uint8", "uint32", "int8")}
        order = list(parts)
        if self.chance(0.3):
            random.shuffle(order)
        composite = SubElement(types, "composite", name=name)
        end = 0
        for part in order:
            kind = random.choice(parts[part]) if self.chance(0.4) else "uint16"
            member = SubElement(composite, "type", name=part, primitiveType=kind)
            if self.chance(0.1):
                end += 2
                member.set("offset", str(end))
            end += SIZES[kind]
        if self.chance(0.15):
            SubElement(composite, "type", name="more", primitiveType=random.choice(list(SIZES)))

    def dimension(self, types: Element, name: str) -> None:
        random = self.random
        lengths = [("uint16", {}), ("uint16", {}), ("uint8", {}), ("uint32", {"maxValue": "1000"})]
        counts = [*lengths, ("int8", {"minValue": "0"}), ("int16", {"minValue": "1", "maxValue": "9"})]
        composite = SubElement(types, "composite", name=name)
        parts = [("blockLength", *random.choice(lengths)), ("numInGroup", *random.choice(counts))]
        if self.chance(0.15):
            parts.reverse()
        for at, (part, kind, limits) in enumerate(parts):
            member = SubElement(composite, "type", limits, name=part, primitiveType=kind)
            if at and self.chance(0.2):
                member.set("offset", str(4 + random.randrange(3)))
        if self.chance(0.15):
            SubElement(composite, "type", name="numGroups", primitiveType="uint16")
        self.dimensions.append(name)

    def data_type(self, types: Element) -> None:
        random = self.random
        name = self.name("D")
        composite = SubElement(types, "composite", name=name)
        kinds = [("uint8", {}), ("uint16", {}), ("uint32", {"maxValue": "1073741824"}), ("uint16", {"maxValue": "500"})]
        kind, limits = random.choice(kinds)
        SubElement(composite, "type", limits, name="length", primitiveType=kind)
        content = SubElement(composite, "type", name="varData", primitiveType=random.choice(["uint8", "char", "int8"]))
        if self.chance(0.8):
            content.set("length", "0")
        if self.chance(0.7):
            content.set("characterEncoding", random.choice(CHARSETS))
        if self.chance(0.1):
            content.set("offset", str(4 + random.randrange(3)))
        if self.chance(0.1):
            content.set("variableLength", "true")
        self.data.append(name)

    def number(self, primitive: str, *, is_least: bool = False) -> str:
        """A value of a type that is not its null."""
        random = self.random
        if primitive == "char":
            return random.choice("ABCxyz019")
        if primitive in ("float", "double"):
            return random.choice(["0", "1.5", "-2e3", "NaN", "Infinity", "0.1", "1d", " 7 "])
        bits = WHOLE[primitive]
        if is_least:
            return "0" if primitive.startswith("u") else str(1 - 2 ** (bits - 1))
        most = 2**bits - 2 if primitive.startswith("u") else 2 ** (bits - 1) - 1
        return str(random.choice([0, 1, 5, 100, most, random.randrange(most)]))

    def type(self, parent: Element, name: str) -> Element:
        random = self.random
        primitive = random.choice([*SIZES, "char", "char", "uint8"])
        element = SubElement(parent, "type", name=name, primitiveType=primitive)
        self.attributes(element)
        presence = random.choice([None, None, "required", "optional", "optional", "constant"])
        if presence is not None:
            element.set("presence", presence)
        if self.chance(0.3):
            element.set("length", str(random.choice([0, 1, 2, 3, 8])))
        if self.chance(0.3) and (primitive == "char" or self.chance(0.2)):
            element.set("characterEncoding", random.choice(CHARSETS[:27] if presence == "constant" else CHARSETS))
        if self.chance(0.1):
            element.set("minValue", self.number(primitive, is_least=primitive in WHOLE))
            element.set("maxValue", self.number(primitive))
        if self.chance(0.4) and presence == "optional":
            element.set("nullValue", self.number(primitive))
        if presence == "constant":
            self.constant(element, primitive)
        return element

    def constant(self, element: Element, primitive: str) -> None:
        values = [one for one in self.enums if one.get("encodingType") == primitive]
        if values and self.chance(0.3):
            element.set("valueRef", self.value_of(self.random.choice(values)))
        elif primitive == "char":
            text = self.random.choice(["A", "AB", "EUR", " x ", "Zürich", "é"])
            element.text = text
            if element.get("length") is not None:
                element.set("length", str(len(text) + self.random.randrange(3)))
        else:
            element.text = self.number(primitive)

    def value_of(self, enum: Element) -> str:
        return f"{enum.get('name')}.{self.random.choice([one.get('name', '') for one in enum])}"

    def enum(self, parent: Element, name: str) -> Element:
        random = self.random
        encoding = random.choice(["char", "char", "uint8", "int8", "int16", "uint16", "int32"])
        primitive = encoding
        coded = [one for one in self.simple if one.get("length", "1") == "1" and one.get("primitiveType") in WHOLE]
        element = SubElement(parent, "enum", name=name)
        self.attributes(element)
        taken = {"255", "65535", "-128"}
        if coded and self.chance(0.2):
            kind = random.choice(coded)
            encoding, primitive = kind.get("name", ""), kind.get("primitiveType", "")
            taken.add(kind.get("nullValue", ""))
            if primitive == "uint64" and kind.get("maxValue") is None:
                kind.set("maxValue", "1000")
        element.set("encodingType", encoding)
        if self.chance(0.2):
            null = self.number(primitive)
            element.set("nullValue", null)
            taken.add(null)
        for number in range(random.randrange(1, 5)):
            value = random.choice("ABCDxyz12") if primitive == "char" else str(random.randrange(120))
            if value not in taken:
                one = SubElement(element, "validValue", name=f"V{number}")
                one.text = value
                self.attributes(one)
                taken.add(value)
        if not len(element):
            SubElement(element, "validValue", name="V0").text = "E" if primitive == "char" else "121"
        return element

    def set(self, parent: Element, name: str) -> Element:
        random = self.random
        element = SubElement(parent, "set", name=name)
        self.attributes(element)
        bits = random.choice([8, 16, 32, 64])
        element.set("encodingType", f"uint{bits}")
        for number, bit in enumerate(random.sample(range(bits), random.randrange(1, 6))):
            one = SubElement(element, "choice", name=f"B{number}")
            one.text = str(bit)
            self.attributes(one)
        return element

    def composite(self, parent: Element, name: str, depth: int) -> Element:
        random = self.random
        element = SubElement(parent, "composite", name=name)
        self.attributes(element)
        for number in range(random.randrange(1, 5)):
            named = f"x{number}"
            kind = random.choice(["type", "type", "type", "enum", "set", "composite", "ref", "ref"])
            known = [*self.simple, *self.enums, *self.others]
            if kind == "type":
                self.type(element, named)
            elif kind == "enum":
                self.enum(element, named)
            elif kind == "set":
                self.set(element, named)
            elif kind == "composite" and depth < 3:
                self.composite(element, self.name("I"), depth + 1).set("name", named)
            elif known:
                one = SubElement(element, "ref", name=named, type=random.choice(known).get("name", ""))
                if self.chance(0.1):
                    one.set("sinceVersion", str(random.randint(0, self.version)))
        if self.chance(0.1):
            element[-1].set("offset", str(200 + random.randrange(50)))
        return element

    # Messages

    def block(self, parent: Element, since: int, depth: int = 0, *, is_message: bool = False) -> None:
        random = self.random
        number = 0
        end = 0
        for _ in range(random.randrange(7)):
            number += 1
            field = SubElement(parent, "field", name=f"f{number}", id=str(number))
            since = max(since, self.attributes(field, since))
            field.attrib.pop("semanticType", None)
            self.field(field)
            if self.chance(0.05):
                end += 500
                field.set("offset", str(end))
        if self.chance(0.15):
            parent.set("blockLength", str(end + 500))
        for _ in range(random.randrange(3) if depth < 3 else 0):
            number += 1
            group = SubElement(parent, "group", name=f"g{number}", id=str(number))
            self.attributes(group, since)
            dimension = random.choice(self.dimensions)
            if dimension != "groupSizeEncoding" or self.chance(0.5):
                group.set("dimensionType", dimension)
            self.block(group, since, depth + 1)
        for _ in range(random.randrange(3)):
            number += 1
            data = SubElement(parent, "data", name=f"d{number}", id=str(number), type=random.choice(self.data))
            self.attributes(data, since)
            data.attrib.pop("semanticType", None)

    def field(self, field: Element) -> None:
        random = self.random
        kind = random.choice(["primitive", "simple", "simple", "enum", "enum", "other", "other"])
        if kind == "other" and self.others:
            field.set("type", random.choice(self.others).get("name", ""))
            return
        if kind == "enum":
            enum = random.choice(self.enums)
            field.set("type", enum.get("name", ""))
            if self.chance(0.3):
                field.set("presence", "constant")
                field.set("valueRef", self.value_of(enum))
            return
        if kind == "simple":
            of = random.choice(self.simple)
            field.set("type", of.get("name", ""))
            if of.get("presence") == "constant":
                if self.chance(0.1):
                    field.set("presence", random.choice(["constant", "required", "optional"]))
                return
            primitive = of.get("primitiveType", "")
        else:
            primitive = random.choice(list(SIZES))
            field.set("type", primitive)
        values = [one for one in self.enums if one.get("encodingType") == primitive]
        if values and self.chance(0.2):
            field.set("presence", "constant")
            field.set("valueRef", self.value_of(random.choice(values)))
        elif self.chance(0.4):
            field.set("presence", random.choice(["optional", "optional", "required"]))
