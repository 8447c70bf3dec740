#!/usr/bin/env python3
"""Checks the structure of the tree: check_layers.py [--objects BUILD]

 1. A module includes only the modules that LAYERS allows, and of those only <module>/<module>.h.
 2. <module>_int.h stays inside its module. Examples see public headers only.
 3. The operating system is called in plat/ only; nothing in src/ exits, aborts or prints.
 4. MPI, libfabric, liburing, libpmem2, HTTP and HDF5 are named only in the files that own them.
 5. File names are unique in the tree.
 6. The table in ARCHITECTURE.md says the same as LAYERS, its drawing has the same modules, and CONTRIBUTING.md
    refers to it instead of having one of its own.

With --objects the undefined symbols of the compiled modules are checked for rule 3 too: a call that hides
behind a macro or a function pointer shows up there.
"""
import os
import re
import subprocess
import sys

from source_tree import TOP, files, read, report, strip

# Module: what it may include besides itself, from below to above. ARCHITECTURE.md shows the same table, of the
# modules that exist: net, reduce and group do not yet.
LAYERS = {
    "base": set(),
    "plat": {"base"},
    "format": {"base"},
    "net": {"base", "plat"},
    "mem": {"base", "plat", "format"},
    "reduce": {"base", "plat", "format"},
    "store": {"base", "plat", "format", "net"},
    "group": {"base", "plat", "format", "net"},
    "level": {"base", "plat", "format", "store"},
    "policy": {"base"},
    "engine": {"base", "plat", "format", "mem", "reduce", "store", "level", "group", "policy"},
    "restore": {"base", "plat", "format", "mem", "reduce", "store", "level", "group", "policy"},
}
LAYERS["api"] = set(LAYERS)
LAYERS["wrap"] = {"base", "plat", "mem"}
LAYERS["read"] = {"base", "plat", "format", "store"}
LAYERS["nvm"] = {"api"}

OVERVIEW = "ARCHITECTURE.md"
GUIDE = "CONTRIBUTING.md"

# Included header: the files that may include it, among src/ and include/.
OWNED_HEADERS = [
    (r"mpi\.h", r"src/group/group_mpi\.c|include/belay/belay_mpi\.h"),
    (r"rdma/.*", r"src/net/net_ofi\.c"),
    (r"liburing.*", r"src/plat/.*"),
    (r"libpmem2.*", r"src/plat/pmem\.c"),
    (r"curl/.*", r"src/store/store_object\.c"),
    (r"hdf5.*", r"src/.*hdf5\.c"),
]

OS_CALLS = set("""
    open openat openat2 creat close close_range read write pread pwrite readv writev preadv pwritev preadv2 pwritev2
    lseek fsync fdatasync sync syncfs sync_file_range ftruncate truncate fallocate posix_fallocate posix_fadvise
    copy_file_range sendfile splice flock lockf fcntl ioctl dup dup2 dup3 pipe pipe2
    rename renameat renameat2 unlink unlinkat remove link linkat symlink symlinkat readlink readlinkat realpath
    mkdir mkdirat rmdir stat fstat lstat fstatat statx statfs fstatfs statvfs fstatvfs access faccessat
    chmod fchmod chown fchown umask opendir fdopendir readdir closedir mkstemp mkostemp mkdtemp tmpfile
    mmap munmap mremap msync mprotect madvise mincore mlock munlock memfd_create userfaultfd shm_open
    malloc calloc realloc reallocarray free aligned_alloc posix_memalign memalign valloc strdup strndup
    asprintf vasprintf getline getdelim
    fopen fdopen freopen fclose fread fwrite fflush fgets fgetc getc fputs fputc fseek ftell setvbuf
    syscall fork vfork clone execve execv execvp waitpid kill raise tgkill sigaction signal pthread_create
    pthread_sigmask sigprocmask sigaltstack prctl dlopen dlsym sysconf getpagesize uname getrandom
    clock_gettime gettimeofday time nanosleep clock_nanosleep usleep sleep sched_yield
    socket connect accept bind listen send recv sendto recvfrom sendmsg recvmsg poll select epoll_wait
    setenv putenv unsetenv
""".split())
ENVIRONMENT_CALLS = {"getenv", "secure_getenv"}
ENDING_CALLS = {"exit", "_exit", "_Exit", "quick_exit", "abort", "__assert_fail"}
PRINTING_CALLS = {"printf", "vprintf", "fprintf", "vfprintf", "dprintf", "vdprintf", "puts", "putchar",
                  "putc", "perror", "psignal", "syslog", "err", "errx", "warn", "warnx"}


def forbidden(call, module):
    """Why code of this module must not call that function, or None."""
    if call in ENDING_CALLS:
        return f"{call}(): the library never ends the process"
    if call in PRINTING_CALLS:
        return f"{call}(): the library never prints"
    # wrap/ defines functions of these names.
    if call in OS_CALLS and module not in ("plat", "wrap"):
        return f"{call}(): only plat/ calls the operating system"
    if call in ENVIRONMENT_CALLS and module not in ("base", "plat"):
        return f"{call}(): only base/ reads the environment"
    return None


def check_include(path, header):
    """Yields what is wrong with one #include."""
    folder, _, rest = path.partition("/")
    target, _, name = header.partition("/")
    if folder in ("src", "include"):
        for pattern, owner in OWNED_HEADERS:
            if re.fullmatch(pattern, header) and not re.fullmatch(owner, path):
                yield f"{header} belongs to {owner.split('|')[0]}".replace("\\", "")
    if target not in LAYERS or not name:
        return
    if folder in ("include", "examples"):
        yield f"{header}: only public headers here"
        return
    module = rest.partition("/")[0] if folder == "src" else None
    if target == module or folder == "tests":
        return
    if name.endswith("_int.h"):
        yield f"{header} is internal to {target}/"
    elif name != target + ".h":
        yield f"{header}: from outside include {target}/{target}.h"
    elif module and target not in LAYERS[module]:
        yield f"{header}: {module}/ must not include {target}/"


def check_includes(path, text):
    for number, line in enumerate(strip(text, keep_literals=True).splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        for problem in check_include(path, match[2]):
            yield f"{path}:{number}: {problem}"
        if path.startswith("src/") and match[1] == '"' and "/" not in match[2]:
            yield f'{path}:{number}: write "<module>/{match[2]}"'


def check_calls(path, text):
    module = path.split("/")[1]
    for number, line in enumerate(strip(text).splitlines(), 1):
        # Members of a method table (sys->open, ops.read) are not the functions of that name.
        for match in re.finditer(r"(?<![\w.>])([A-Za-z_]\w*)\s*\(", line):
            problem = forbidden(match[1], module)
            if problem:
                yield f"{path}:{number}: {problem}"


def check_objects(build):
    """Rule 3 on compiled code: CMakeFiles/<target>.dir/src/<module>/<file>.c.o"""
    objects = {}
    for where, _, names in os.walk(os.path.join(TOP, build, "CMakeFiles")):
        for name in names:
            match = re.search(r"/CMakeFiles/core\w*\.dir/(src/([^/]+)/.*\.c)\.o$", f"{where}/{name}")
            if match and os.path.exists(os.path.join(TOP, match[1])):
                objects[os.path.join(where, name)] = (match[1], match[2])
    if not objects:
        yield f"{build}: no compiled modules found"
    for path, (source, module) in sorted(objects.items()):
        out = subprocess.run(["nm", "-u", path], capture_output=True, text=True, check=True).stdout
        for symbol in re.findall(r"\bU (\w+)", out):
            call = re.sub(r"^__(\w+)_chk$", r"\1", symbol)
            call = re.sub(r"(?<=[a-z])64(?=$|v2$)", "", call)
            problem = forbidden(call, module)
            if problem:
                yield f"{source}: object uses {problem}"


def check_names(paths):
    seen = {}
    for path in paths:
        name = os.path.basename(path)
        if name in seen:
            yield f"{path}: there is already {seen[name]}"
        seen[name] = path


def table_of(text):
    """The table in ARCHITECTURE.md: module to line number and what it may include."""
    table = {}
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines, 1) if line.startswith("| module | may include")), len(lines))
    for number, line in enumerate(lines[first + 1:], first + 2):
        match = re.fullmatch(r"\| ([a-z]+) \| ([^|]+) \|", line)
        if not match:
            break
        words = match[2].strip()
        below = set() if words == "–" else set(table) if words == "all of the above" else set(words.split(", "))
        table[match[1]] = (number, below)
    return table


def check_table(modules):
    """Rule 6; `modules` are those that exist."""
    for path in (OVERVIEW, GUIDE):
        if not os.path.exists(os.path.join(TOP, path)):
            yield f"{path}: missing"
            return
    text = read(OVERVIEW)
    table = table_of(text)
    for module in sorted(modules | set(table)):
        number, below = table.get(module, (0, set()))
        if module not in table:
            yield f"{OVERVIEW}: the table of layers has no row for {module}"
        elif module not in modules:
            yield f"{OVERVIEW}:{number}: there is no module {module}"
        elif below != LAYERS.get(module, set()) & modules:
            allowed = ", ".join(m for m in LAYERS if m in LAYERS.get(module, set()) & modules)
            yield f"{OVERVIEW}:{number}: check_layers.py allows {module}: {allowed or '–'}"
    drawing = text.partition("\n## Layers\n")[2].partition("\n| module |")[0]
    drawn = set(re.findall(r"\bsrc/([a-z]+)/", drawing))
    for module in sorted(modules ^ drawn):
        yield f"{OVERVIEW}: the drawing of layers and src/ do not agree about {module}"
    guide = read(GUIDE)
    if OVERVIEW not in guide:
        yield f"{GUIDE}: does not refer to the table of layers in {OVERVIEW}"
    for number, line in enumerate(guide.splitlines(), 1):
        match = re.match(r"(?:    |\| )([a-z]+)\b", line)
        if match and match[1] in LAYERS:
            yield f"{GUIDE}:{number}: a second list of layers; the one is in {OVERVIEW}"


def main():
    findings = []
    paths = files()
    for path in paths:
        text = read(path)
        if path.startswith("src/") and path.split("/")[1] not in LAYERS:
            findings.append(f"{path}: not a module of LAYERS")
            continue
        findings += check_includes(path, text)
        if path.startswith("src/"):
            findings += check_calls(path, text)
    findings += check_names(paths)
    findings += check_table({path.split("/")[1] for path in paths if path.startswith("src/")} & set(LAYERS))
    if sys.argv[1:2] == ["--objects"]:
        findings += check_objects(sys.argv[2])
    report("layers", findings)


if __name__ == "__main__":
    main()
