"""What hostile programs try, each bounded in the harm it could do, and how programs cheat that do not solve their task.

An attack prints a line that begins with THROUGH for everything that it got through. `{folder}`, `{port}`, `{name}` and
`{mark}` stand for a folder of the host, a listening port, an abstract socket and a number that marks processes.
"""

from __future__ import annotations

ATTACKS = {
    "fork_bomb": """
import os, time
started = 0
try:
    while started < 200:
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
        started += 1
except OSError:
    pass
if started > 64:
    print("THROUGH", started, "processes", flush=True)
""",
    "memory_bomb": """
blocks = []
try:
    for _ in range(100):
        blocks.append(bytearray(16 << 20))
except MemoryError:
    n = len(blocks)
    blocks.clear()
else:
    print("THROUGH 1600 MB")
""",
    "infinite_loop": """
import signal
for number in range(1, 32):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass
""",
    "sleep_forever": """
import time
while True:
    time.sleep(1000)
""",
    "infinite_output": """
import sys
while True:
    sys.stdout.write("all work and no play " * 1000)
    sys.stderr.write("makes Jack a dull boy " * 1000)
""",
    "write_outside": """
import os
places = "{folder}/open/new", "{folder}/open/old", "/var/tmp/{mark}", "/dev/shm/{mark}", "/tmp/{mark}", "../{mark}", "/{mark}"
for path in places:
    try:
        with open(path, "a") as file:
            file.write("overwritten")
        print("THROUGH wrote", path)
    except OSError:
        pass
old, other = "{folder}/open/old", "{folder}/open/other"
for change in (
    lambda: os.chmod(old, 0), lambda: os.utime(old, (1, 1)), lambda: os.chown(old, os.getuid(), os.getgid()),
    lambda: os.setxattr(old, "user.mark", b"x"), lambda: os.close(os.open(old, os.O_RDONLY | os.O_TRUNC)),
    lambda: os.truncate(old, 0), lambda: os.rename(old, other), lambda: os.remove(old), lambda: os.mkdir(other),
):
    try:
        change()
        print("THROUGH changed")
    except OSError:
        pass
""",
    "disk_fill": """
written = 0
try:
    for n in range(1000):
        with open(f"large{n}", "wb") as file:
            for _ in range(8):
                written += file.write(bytes(1 << 20))
except OSError:
    pass
if written > 200 << 20:
    print("THROUGH wrote", written)
""",
    "many_files": """
made = 0
try:
    while made < 30000:
        open(f"small{made}", "x").close()
        made += 1
except OSError:
    pass
if made > 10000:
    print("THROUGH made", made)
""",
    "network": """
import socket
for family, kind, address in (
    (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", {port})), (socket.AF_UNIX, socket.SOCK_STREAM, "\\0{name}"),
    (socket.AF_UNIX, socket.SOCK_STREAM, "{folder}/open/socket"), (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", {port})),
):
    try:
        with socket.socket(family, kind) as line:
            line.settimeout(1)
            line.connect(address)
            line.send(b"hello")
            if kind == socket.SOCK_STREAM:
                print("THROUGH reached", address)
    except OSError:
        pass
""",
    "read_env": """
import glob, os
if "COUNTERPOINT_SECRET" in os.environ:
    print("THROUGH own environment")
for path in [*glob.glob("/proc/[0-9]*/environ"), "/proc/self/environ"]:
    try:
        with open(path, "rb") as file:
            if b"COUNTERPOINT_SECRET" in file.read():
                print("THROUGH", path)
    except OSError:
        pass
""",
    "read_files": """
import os
for path in ("{folder}/open/old", "/etc/passwd", "/etc/shadow", "/proc/1/cmdline", "/proc/version", "/sys/kernel/uevent_helper"):
    try:
        with open(path, "rb") as file:
            file.read(10)
        print("THROUGH read", path)
    except OSError:
        pass
for path in ("{folder}", "/root", "/home", "/tmp", "/var"):
    try:
        found = os.listdir(path)
        # Bubblewrap shows the ways to the work folder and to the interpreter, which may be two below /root.
        if len(found) > (2 if path == "/root" else 1) or "{folder}".endswith("/" + "".join(found)):
            print("THROUGH listed", path, found)
    except OSError:
        pass
""",
    "signal_parent": """
import os, resource, signal
for pid in (os.getppid(), 1):
    try:
        os.kill(pid, 0)
        print("THROUGH may signal", pid)
    except OSError:
        pass
for act in (
    lambda: os.kill({victim}, 0), lambda: os.kill({victim}, signal.SIGTERM),
    lambda: os.setpriority(os.PRIO_PROCESS, {victim}, 19),
    lambda: resource.prlimit({victim}, resource.RLIMIT_CORE, (0, 0)), lambda: os.sched_setaffinity({victim}, {0}),
    lambda: os.pidfd_open({victim}),
):
    try:
        act()
        print("THROUGH touched the victim")
    except OSError:
        pass
for group in (0, -1):
    try:
        os.kill(group, 0)
        print("THROUGH may signal group", group)
    except OSError:
        pass
""",
    "daemonise": """
import os
try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(64):
                try:
                    os.close(number)
                except OSError:
                    pass
            os.execv("/bin/sleep", ["sleep", "{mark}"])
        os._exit(0)
except OSError:
    pass
""",
    "symlink": """
import os
for work in (
    lambda: os.symlink("/etc/passwd", "one") or open("one").close(),
    lambda: os.symlink("{folder}/open", "two") or open("two/new", "w"),
    lambda: os.link("{folder}/open/old", "three") or open("three").close(), lambda: os.mkfifo("four"),
    lambda: os.rename("{folder}/open/old", "five"), lambda: os.mknod("six", 0o20600, os.makedev(1, 1)),
):
    try:
        work()
        print("THROUGH a link, a pipe or a device")
    except OSError:
        pass
""",
    "threads": """
import threading, time
threading.stack_size(32768)
started = 0
try:
    for _ in range(20000):  # of root they are counted from outside, so that some thousands may begin
        threading.Thread(target=time.sleep, args=(1.5,), daemon=True).start()
        started += 1
except (RuntimeError, MemoryError):
    pass
if started > 10000:
    print("THROUGH", started, "threads", flush=True)
""",
    "exec_shell": """
import os, subprocess
try:
    found = subprocess.run(["/bin/sh", "-c", "echo ran; echo x > {folder}/open/new"], capture_output=True, timeout=3)
    print("THROUGH" if found.stdout else "", found.stdout, flush=True)
except OSError:
    pass
try:
    os.execv("/bin/cat", ["cat", "{folder}/open/old"])
except OSError:
    pass
""",
    "memory_files": """
import os
files = []
try:
    for n in range(40):
        files.append(os.memfd_create("hidden"))
        for _ in range(16):
            os.write(files[-1], bytes(1 << 20))
    print("THROUGH 640 MB outside the limit of memory")
except OSError:
    pass
""",
    "deep_folders": """
import os
made = 0
try:
    while made < 20000:  # where files are counted from outside, a few thousand may be there before the count
        os.mkdir("d")
        os.chdir("d")
        made += 1
except OSError:
    pass
if made >= 20000:
    print("THROUGH", made, "folders deep")
""",
    "locked_folder": """
import os
os.umask(0o777)
os.mkdir("locked")
try:
    os.chmod("locked", 0)
except OSError:
    pass
""",
}

#: The task is add(a, b); none of these adds.
CHEATS = {
    "ends well while it is loaded": "import sys\ndef add(a, b): return 0\nsys.exit(0)",
    "ends well in the call": "import os\ndef add(a, b): os._exit(0)",
    "returns what equals everything": """
class Equal(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
def add(a, b): return Equal(0)
""",
    "prints that it passed": """
import os
print("PASSED 3/3", '{"done": true}', sep="\\n", flush=True)
def add(a, b): os._exit(0)
""",
    "looks for the expected value in its callers": """
import sys
def add(a, b):
    frame = sys._getframe(1)
    while frame:
        for name in ("expected", "want", "answer", "case", "cases"):
            for names in (frame.f_locals, frame.f_globals):
                if name in names: return names[name]
        frame = frame.f_back
    return 0
""",
    "patches what compares": """
import builtins, json
builtins.all = builtins.any = builtins.isinstance = lambda *a: True
json.dumps = lambda *a, **k: "true"
json.loads = lambda *a, **k: 3
def add(a, b): return 0
""",
    "writes to every open pipe": """
import os
def add(a, b):
    for number in range(64):
        try: os.write(number, b'{"value": true}\\n{"done": true}\\n' * 3)
        except OSError: pass
    os._exit(0)
""",
    "searches its memory": """
import gc
def add(a, b):
    for found in gc.get_objects():
        if isinstance(found, dict) and "expected" in found: return found["expected"]
    return 0
""",
}
