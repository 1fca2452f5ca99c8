# SPDX-License-Identifier: MIT
"""The C library as Python sees it: structures, constants and calls read from include/stint.h.

Reading the header, instead of repeating it, keeps the tests from drifting away from the layout
that C callers compile against. Nothing here knows what any call ought to answer.
"""

import ctypes as c
import glob
import os
import re
from collections import namedtuple

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADER = os.path.join(ROOT, "include", "stint.h")

SCALARS = {
    "uint8_t": c.c_uint8, "uint16_t": c.c_uint16, "uint32_t": c.c_uint32, "uint64_t": c.c_uint64,
    "int8_t": c.c_int8, "int16_t": c.c_int16, "int32_t": c.c_int32, "int64_t": c.c_int64,
    "int": c.c_int, "unsigned": c.c_uint, "bool": c.c_bool, "size_t": c.c_size_t, "char": c.c_char,
    "double": c.c_double,
}


def _header_text():
    with open(HEADER, encoding="utf-8") as header:
        text = re.sub(r"/\*.*?\*/", " ", header.read(), flags=re.S)
    # A header for C and C++ says some things twice; the C half is the one that is loaded here.
    text = re.sub(r"#ifdef __cplusplus\n(?:(?!#e)[^\n]*\n)*#else\n(.*?)#endif", r"\1", text,
                  flags=re.S)
    return text


def _constants(text):
    found = {}
    for name, value in re.findall(r"^#define (STINT_\w+) (.+)$", text, flags=re.M):
        value = re.sub(r"UINT64_C\((\w+)\)", r"\1", value.strip())
        value = value.replace("UINT64_MAX", str(2**64 - 1)).replace("UINT32_MAX", str(2**32 - 1))
        if re.fullmatch(r"[\d\s()<>+*-]+", value):
            found[name] = eval(value)  # digits and operators only, by the line above
    for body in re.findall(r"enum \w+ \{(.*?)\}", text, flags=re.S):
        next_value = 0
        for part in filter(None, (piece.strip() for piece in body.split(","))):
            name, _, value = (piece.strip() for piece in part.partition("="))
            next_value = int(value) if value else next_value
            found[name] = next_value
            next_value += 1
    return found


def _structures(text, constants):
    made = {}
    for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, flags=re.S | re.M):
        fields, aligned = [], "_Alignas" in body
        for line in filter(None, (piece.strip() for piece in body.split(";"))):
            line = re.sub(r"_Alignas\(\d+\)", "", line).replace("const ", "").strip()
            match = re.fullmatch(r"(struct \w+|\w+)\s+(.*)", line, flags=re.S)
            base, names = match.groups()
            for declared in (piece.strip() for piece in names.split(",")):
                pointer = declared.startswith("*")
                declared = declared.lstrip("*")
                array = re.fullmatch(r"(\w+)\[(\w+)\]", declared)
                if pointer:
                    kind = c.c_char_p if base == "char" else c.c_void_p
                elif base.startswith("struct "):
                    kind = made[base[len("struct "):]]
                else:
                    kind = SCALARS[base]
                if array:
                    count = array.group(2)
                    kind = kind * (int(count) if count.isdigit() else constants[count])
                    declared = array.group(1)
                fields.append((declared, kind))
        made[name] = type(name, (c.Structure,), {"_fields_": fields, "aligned16": aligned})
    return made


_TEXT = _header_text()
K = namedtuple("Constants", _constants(_TEXT).keys())(**_constants(_TEXT))
S = _structures(_TEXT, K._asdict())

Quota, Ask, CDecision, Error = (
    S[name] for name in ("stint_quota", "stint_ask", "stint_decision", "stint_error"))

ALGORITHMS = {
    "window": K.STINT_WINDOW, "buckets": K.STINT_BUCKETS, "log": K.STINT_LOG,
    "gcra": K.STINT_GCRA, "fixed_window": K.STINT_FIXED_WINDOW,
    "sliding_counter": K.STINT_SLIDING_COUNTER, "concurrency": K.STINT_CONCURRENCY,
}
OUTCOMES = {K.STINT_ALLOW: "allow", K.STINT_DENY: "deny", K.STINT_NEVER: "never"}
VERBS = {
    "take": K.STINT_TAKE, "take_upto": K.STINT_TAKE_UPTO, "peek": K.STINT_PEEK,
    "charge": K.STINT_CHARGE, "refund": K.STINT_REFUND, "book": K.STINT_BOOK,
    "unbook": K.STINT_UNBOOK,
}
NEVER_NS = K.STINT_NEVER_NS
NOW_MAX = K.STINT_NOW_MAX
U32_MAX = 2**32 - 1

Decision = namedtuple("Decision", "outcome granted limit remaining retry_after reset_after")


def _find_library():
    named = os.environ.get("STINT_LIB")
    if named:
        return named
    for folder in ("build", "build-debug", "builddir"):
        found = glob.glob(os.path.join(ROOT, folder, "**", "libstint.so"), recursive=True)
        if found:
            return found[0]
    raise RuntimeError("no libstint.so: build the project, or name the library in STINT_LIB")


def _load():
    lib = c.CDLL(_find_library(), use_errno=True)
    returns = {"int": c.c_int, "size_t": c.c_size_t, "bool": c.c_bool, "uint64_t": c.c_uint64,
               "uint32_t": c.c_uint32, "int64_t": c.c_int64, "void": None}
    declarations = re.findall(r"STINT_API (.*?)\(((?:[^()]|\([^()]*\))*)\);", _TEXT, flags=re.S)
    for head, args in declarations:
        head = " ".join(head.split())
        result, name = re.fullmatch(r"(.*?)(\w+)", head).groups()
        result = result.strip()
        if not hasattr(lib, name):
            continue
        call = getattr(lib, name)
        if result.endswith("*"):
            call.restype = c.c_char_p if "char" in result else c.c_void_p
        elif result.startswith("struct "):
            call.restype = S[result[len("struct "):]]
        else:
            call.restype = returns[result]
        call.argtypes = [_argument(" ".join(arg.split())) for arg in re.split(r",(?![^(]*\))", args)
                         if arg.strip() != "void"]
    return lib


def _argument(text):
    if "(*" in text or "*" in text:
        return c.c_void_p
    base = text.replace("const ", "").rsplit(" ", 1)[0]
    return S[base[len("struct "):]] if base.startswith("struct ") else SCALARS[base]


lib = _load()


class Refused(Exception):
    """A quota that the library will not keep; .code and the sentence that says why."""

    def __init__(self, error):
        self.code = error.code
        super().__init__(error.message.decode())


def from_c(decision):
    return Decision(OUTCOMES[decision.outcome], decision.granted, decision.limit,
                    decision.remaining, decision.retry_after_ns, decision.reset_after_ns)


def check(quota):
    error = Error()
    if lib.stint_quota_check(c.byref(quota), c.byref(error)) != K.STINT_OK:
        raise Refused(error)
    return quota


def parse(spec):
    quota, error = Quota(), Error()
    if lib.stint_quota_parse(c.byref(quota), spec.encode() + b"\0", c.byref(error)) != K.STINT_OK:
        raise Refused(error)
    return quota


def quota_from_terms(terms):
    """A checked C quota from an oracle's Terms: the fields have the same names."""
    quota = Quota()
    for name, value in terms.fields().items():
        setattr(quota, name, ALGORITHMS[value] if name == "algorithm" else value)
    return check(quota)


class State:
    """Caller-owned bytes, asked through stint_state_ask()."""

    def __init__(self, quota, init_at=None):
        self.quota, self.size = quota, lib.stint_state_size(c.byref(quota))
        self._room = c.create_string_buffer(self.size + 16)
        self.address = (c.addressof(self._room) + 15) & ~15
        self._quota_ref = c.byref(quota)
        self._ask = Ask()
        self._ask_ref = c.byref(self._ask)
        if init_at is not None:
            lib.stint_state_init(self._quota_ref, self.address, init_at)

    def raw(self):
        return c.string_at(self.address, self.size)

    def copy(self):
        twin = type(self)(self.quota)
        c.memmove(twin.address, self.address, self.size)
        return twin

    def _call(self):
        return lib.stint_state_ask(self._quota_ref, self.address, self._ask_ref)

    def ask(self, now, verb, cost, at=0):
        ask = self._ask
        ask.now_ns, ask.at_ns, ask.cost, ask.verb = now, at, cost, VERBS[verb]
        return from_c(self._call())

    def take(self, now, cost=1):
        return self.ask(now, "take", cost)

    def peek(self, now, cost=1):
        return self.ask(now, "peek", cost)

    def dies_at(self):
        return lib.stint_state_expires_at(self._quota_ref, self.address)

    def fill(self, until):
        lib.stint_state_fill(self._quota_ref, self.address, until)

    def converted(self, quota, now):
        other = type(self)(quota)
        lib.stint_state_convert(self._quota_ref, self.address, c.byref(quota), other.address, now)
        return other


class Cell(State):
    """The same bytes as a shared cell, swapped in one step: stint_cell8_… or stint_cell16_…"""

    def __init__(self, quota, init_at=None):
        super().__init__(quota)
        self._width = {8: "cell8", 16: "cell16"}[self.size]
        self._do = getattr(lib, f"stint_{self._width}_ask")
        if init_at is not None:
            getattr(lib, f"stint_{self._width}_init")(self._quota_ref, self.address, init_at)

    def _call(self):
        return self._do(self._quota_ref, self.address, self._ask_ref)

    def take(self, now, cost=1):
        call = getattr(lib, f"stint_{self._width}_take")
        return from_c(call(self._quota_ref, self.address, now, cost))
