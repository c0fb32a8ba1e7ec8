"""Write the constants and structs of kgmrf/constants.py as C++: python declare.py IN OUT."""

import math
import runpy
import sys
import zlib
from collections.abc import Iterator
from typing import Any


def number(value: float) -> str:
    """A double with all its digits."""
    if math.isinf(value):
        return "HUGE_VAL" if value > 0 else "-HUGE_VAL"
    return repr(float(value))


def lines(names: dict[str, Any]) -> Iterator[str]:
    """Declarations, one a line."""
    yield "// Written by declare.py from kgmrf/constants.py: change that file."
    yield "#pragma once"
    yield "#include <cmath>"
    yield "namespace kgmrf {"
    for name, value in names.items():
        if not name.isupper() or name == "STRUCTS":
            continue
        if isinstance(value, tuple):
            numbers = ", ".join(map(number, value))
            yield f"inline constexpr double {name}[{len(value)}] = {{{numbers}}};"
        elif isinstance(value, int):
            yield f"inline constexpr int {name} = {value};"
        else:
            yield f"inline constexpr double {name} = {number(value)};"
    for name, fields in names["STRUCTS"].items():
        # Of(V): of one track, or of several side by side.
        yield f"template <class V> struct {name}Of {{ V {', '.join(fields)}; }};"
        yield f"using {name} = {name}Of<double>;"
    yield "}"


if __name__ == "__main__":
    source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as file:  # newlines of every system are read alike
        checksum = zlib.crc32(file.read().encode())
    text = "\n".join(lines(runpy.run_path(source))) + "\n"
    # `kgmrf.engines.core` compares it with the file beside it: a core of other sources is refused.
    text += f"namespace kgmrf {{ inline constexpr unsigned DECLARED_CHECKSUM = {checksum}u; }}\n"
    with open(target, "w", encoding="utf-8") as out:
        out.write(text)
