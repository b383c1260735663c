"""The programs in which ranks diverged, written to files for `diff`."""

import os

from mcjax_launch.diagnosis.program_code import parsed
from mcjax_launch.diagnosis.spmd import different_programs
from mcjax_launch.runs.spmd import Comparison


def save(programs: Comparison, begin: str) -> list[str]:
    """Write the code of each program that has been shown; a line that says where it is.

    Args:
        programs: in which ranks have diverged.
        begin: of the files' paths, absolute; the folder is made.

    """
    assert programs.divergence is not None
    number, paths = programs.divergence.count + 1, []
    for side, program in different_programs(programs.sides()):
        code = programs.codes.get(program.fingerprint)
        if code is None or not code.complete or not code.text:
            continue
        path = f"{begin}program{number}.rank{side.ranks[0]}.mlir"
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(parsed(code.text).text)
        except OSError as error:
            return [f"{path}: cannot be written: {error.strerror}"]
        paths.append(path)
    return [f"programs: {' '.join(paths)}"] if paths else []
