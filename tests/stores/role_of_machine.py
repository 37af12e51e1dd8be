"""Runs a test of the suite with the role of the machine, in a network that is this process's own:
role_of_machine.py DIRECTORY. Prints what went wrong, and ends with 1."""

import http.server
import json
import pathlib
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from stores.fault_proxy import FaultProxy
from stores.server import make_bucket, moto
from stores.test_stores import run_suite

ADDRESS = "169.254.169.254"
asked: list[str] = []


class Machine(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def _say(self, text: str) -> None:
        asked.append(f"{self.command} {self.path}")
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self) -> None:
        self._say("the-token")

    def do_GET(self) -> None:
        if self.headers.get("x-aws-ec2-metadata-token") != "the-token":
            self.send_error(401)
        elif self.path.rstrip("/").endswith("security-credentials"):
            self._say("train")
        else:
            self._say(json.dumps({"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "of-machine",
                                  "SecretAccessKey": "s", "Token": "t", "LastUpdated": "2026-01-01T00:00:00Z",
                                  "Expiration": "2099-01-01T00:00:00Z"}))


subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
server = http.server.ThreadingHTTPServer((ADDRESS, 80), Machine)
threading.Thread(target=server.serve_forever, daemon=True).start()
directory = pathlib.Path(sys.argv[1])
with moto(directory) as port:
    make_bucket(f"http://127.0.0.1:{port}")
    proxy = FaultProxy(f"http://127.0.0.1:{port}")
    result = run_suite(proxy.endpoint, "--gtest_filter=*PutIfAbsent_TheName*", AWS_ACCESS_KEY_ID="",
                       AWS_SECRET_ACCESS_KEY="", AWS_EC2_METADATA_DISABLED="false", HOME=str(directory))
    proxy.close()
print(result.stdout, asked, proxy.access_keys)
sys.exit(result.returncode != 0 or proxy.access_keys != ["of-machine"] or "PUT /latest/api/token" not in asked)
