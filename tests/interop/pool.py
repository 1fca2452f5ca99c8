# SPDX-License-Identifier: MIT
"""A pool in a file of its own, for the tests beside this file."""
import json

from program import stint


class Pool:
    """A pool in a file of its own, in virtual time that a test sets."""

    def __init__(self, folder, keys="a,b,c", quota="log 2/10m", *options):
        quotas = [quota] if isinstance(quota, str) else quota
        self.state = folder / "pool.stint"
        self.keys = keys
        self.now = 0
        self.options = [word for each in quotas for word in ("--quota", each)] + list(options)

    def arguments(self):
        return ["--state", self.state, "--keys", self.keys, *self.options, "--now", self.now]

    def run(self, verb, *words, code=0, **given):
        return stint("pool", verb, *self.arguments(), *words, code=code, **given)

    def next(self, *words):
        return self.run("next", *words)[0].rstrip("\n")

    def wait(self, *words):
        out, err = self.run("next", *words, code=3)
        assert err == ""
        return out.rstrip("\n")

    def status(self):
        """name -> what --json says of the key"""
        return {key.pop("key"): key
                for key in json.loads(self.run("status", "--json")[0])["keys"]}

    def standings(self):
        return {name: key["standing"] for name, key in self.status().items()}
