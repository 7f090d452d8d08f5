#!/usr/bin/env python3
"""Makes calls of its own, each with a permit of a Paceline daemon, so that the limits of a lane hold.

usage: permits.py DAEMON LANE URL [CALLS]    such as http://127.0.0.1:7400 books https://example.org/ 20
PACELINE_TOKEN is the token, if the daemon asks for one.
"""

import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener, urlopen

TTL = 30  # the daemon takes the slot back after this, so the call itself must be over sooner
# A redirect is an answer: a permit is for one request.
opener = build_opener(type("Keep", (HTTPRedirectHandler,), {"redirect_request": lambda *_: None}))

def post(path, body, patience):
    """Asks the daemon. Where it names a time to come again, comes again then, `patience` seconds in all."""
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("PACELINE_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    until = time.monotonic() + patience
    while True:
        try:
            with urlopen(Request(daemon + path, json.dumps(body).encode(), headers), timeout=60) as response:
                return json.load(response)
        except HTTPError as error:
            problem, again = json.load(error), error.headers.get("Retry-After")
        except OSError as error:
            sys.exit(f"permits: {daemon}: {error}")
        if again is None or time.monotonic() + int(again) > until:  # None: the lane is paused, or the request wrong
            sys.exit(f"permits: {problem['reason']}: {problem['detail']}")
        time.sleep(int(again))


def ask(url):
    """The status of one call, and the daemon is told how it went."""
    permit = post(f"/api/v1/lanes/{lane}/permits", {"max_wait": "20s", "ttl": f"{TTL}s"}, patience=300)
    told = {"failed": True}
    try:
        with opener.open(url, timeout=TTL / 4) as response:
            told = {"status": response.status, "headers": dict(response.headers)}
            response.read()
    except HTTPError as error:  # an answer: 429 and Retry-After close the lane for every program
        told = {"status": error.code, "headers": dict(error.headers)}
    except OSError as error:  # of which URLError, timeouts and lost connections are kinds
        print(f"permits: {url}: {error}", file=sys.stderr)
    finally:
        post(f"/api/v1/permits/{permit['permit']}/settle", told, patience=10)
    return told.get("status", "failed")


if len(sys.argv) not in (4, 5):
    sys.exit(__doc__)
daemon, lane, url, calls = sys.argv[1].rstrip("/"), sys.argv[2], sys.argv[3], int((*sys.argv, 20)[4])
with ThreadPoolExecutor(4) as threads:
    answers = list(threads.map(ask, [url] * calls))
print(f"{calls} calls: " + ", ".join(f"{answers.count(it)} x {it}" for it in sorted(set(answers), key=str)))
sys.exit(0 if all(it == 200 for it in answers) else 1)
