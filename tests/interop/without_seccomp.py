# SPDX-License-Identifier: MIT
"""usage: without_seccomp.py PROGRAM ARGUMENT... - runs it where seccomp(2) is not there."""
import ctypes
import os
import platform
import struct
import sys

NUMBERS = {"x86_64": 317, "aarch64": 277}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ENOSYS, EPERM = 38, 22, 2, 38, 1

# seccomp is not there; prctl(PR_SET_SECCOMP), libseccomp's other way, is not permitted.
PRCTL = {"x86_64": 157, "aarch64": 167}[platform.machine()]
program = b"".join(struct.pack("HBBI", *step) for step in (
    (0x20, 0, 0, 0),
    (0x15, 0, 1, NUMBERS[platform.machine()]),
    (0x06, 0, 0, 0x00050000 | ENOSYS),
    (0x15, 0, 3, PRCTL),
    (0x20, 0, 0, 16),
    (0x15, 0, 1, PR_SET_SECCOMP),
    (0x06, 0, 0, 0x00050000 | EPERM),
    (0x06, 0, 0, 0x7fff0000),
))


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


libc = ctypes.CDLL(None, use_errno=True)
rules = Filter(len(program) // 8, program)
if (libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(rules), 0, 0) != 0):
    sys.exit("no filter: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
