"""Serves moto: moto_server.py PORT [CERTIFICATE KEY].

moto looks whether a key is taken, and puts it later, without a lock between: of two conditional PUTs at once both could
win. A real store does not do that, so requests that write come one at a time here.
"""

import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

served = DomainDispatcherApplication(create_backend_app)
writing = threading.Lock()


def application(environ, start_response):
    if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
        return served(environ, start_response)
    with writing:
        return list(served(environ, start_response))


port, *certificate = sys.argv[1:]
run_simple("127.0.0.1", int(port), application, threaded=True, ssl_context=tuple(certificate) or None)
