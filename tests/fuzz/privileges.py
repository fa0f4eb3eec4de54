"""Giving up an administrator's rights, to whom no permission applies, so that permissions can be tested as one."""

import ctypes
import os
import sys

VERSION = 0x20080522  # of Linux's capability calls


def can_be_humble():
    """Whether permissions apply to this process, or to a child that gives up its rights."""
    return hasattr(os, "geteuid") and (os.geteuid() != 0 or sys.platform == "linux")


def give_up():
    """Drop all capabilities of this process: root then owns its files and folders as any user does."""
    if os.geteuid() != 0:
        return
    header = (ctypes.c_uint32 * 2)(VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(header, nothing):
        raise OSError(ctypes.get_errno(), "capset")
