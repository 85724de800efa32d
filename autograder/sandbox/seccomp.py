"""Filter the system calls that a student's process may not make.

A deny list: what honest Python needs stays allowed, what reaches past the sandbox is refused with
an errno. The filter is built once, in the judge's process, and handed over as bytes.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from functools import cache

# Mounts, namespaces and other roots.
_MOUNTS = """mount umount2 pivot_root chroot setns unshare open_tree move_mount fsopen fsconfig
fsmount fspick mount_setattr name_to_handle_at open_by_handle_at quotactl swapon swapoff"""
# Other processes, and the kernel's own insides.
_KERNEL = """ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp bpf perf_event_open
userfaultfd add_key request_key keyctl io_uring_setup io_uring_enter io_uring_register
init_module finit_module delete_module kexec_load kexec_file_load reboot syslog acct
settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname iopl ioperm
move_pages migrate_pages lookup_dcookie nfsservctl vhangup uselib personality"""
# Memory that RLIMIT_DATA does not count, or no process at all: pages given into a pipe.
_MEMORY = "memfd_create memfd_secret shmget shmat vmsplice"

# CLONE_NEWNS, CLONE_NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET
_NEW_NAMESPACES = (17, 25, 26, 27, 28, 29, 30)
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into the terminal
_MAP_GROWSDOWN = 0x0100
_FAMILIES = {1, 2, 10}  # AF_UNIX, AF_INET, AF_INET6


@cache
def program() -> bytes:
    """Build the filter as a classic BPF program for this machine.

    Raises:
        ImportError: pyseccomp is not installed.
        RuntimeError: the libseccomp that it needs is not installed.
    """
    import pyseccomp as s

    refuse = s.ERRNO(errno.EPERM)
    filtered = s.SyscallFilter(s.ALLOW)

    def rule(call: str, *arguments: s.Arg, action: int = refuse) -> None:
        # Not every architecture and not every libseccomp has every call.
        with contextlib.suppress(OSError, ValueError):
            filtered.add_rule(action, call, *arguments)

    for call in f"{_MOUNTS} {_KERNEL} {_MEMORY}".split():
        rule(call)
    rule("clone3", action=s.ERRNO(errno.ENOSYS))  # its flags lie in memory; glibc then uses clone
    for bit in _NEW_NAMESPACES:
        rule("clone", s.Arg(0, s.MASKED_EQ, 1 << bit, 1 << bit))
    for request in (_TIOCSTI, _TIOCLINUX):
        rule("ioctl", s.Arg(1, s.MASKED_EQ, 0xFFFFFFFF, request))
    shared = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
    for flags in (shared, _MAP_GROWSDOWN):
        rule("mmap", s.Arg(3, s.MASKED_EQ, flags, flags))
    for family in set(range(max(_FAMILIES))) - _FAMILIES:
        rule("socket", s.Arg(0, s.EQ, family))
    rule("socket", s.Arg(0, s.GT, max(_FAMILIES)))  # also AF_VSOCK, which no namespace holds
    with open(os.memfd_create("seccomp"), "w+b") as file:
        filtered.export_bpf(file)
        file.seek(0)
        return file.read()


@cache
def _memory_file() -> int:
    descriptor = os.memfd_create("seccomp")
    os.write(descriptor, program())
    return descriptor


def path() -> str:
    """Return the filter as a file that a process of the same user can open while this one lives."""
    descriptor = _memory_file()
    return f"/proc/{os.getpid()}/fd/{descriptor}"
